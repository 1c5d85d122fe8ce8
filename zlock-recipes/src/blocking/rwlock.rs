//! Read/write locks for threads.

use std::sync::Arc;

use zlock_core::{LockPath, Result};

use super::client::Client;
use super::driver::Driver;
use super::lock::{LockHandle, ReadLock, WriteLock};
use crate::Participant;

/// A lock that many threads of many processes may hold for reading, or one for writing. The blocking form of
/// [`zlock::ReadWriteLock`](crate::ReadWriteLock).
///
/// A thread that writes may also read, and enters again; one that reads may not write:
/// [`UpgradeRefused`](zlock_core::ErrorKind::UpgradeRefused).
///
/// # Examples
/// ```
/// # fn main() -> zlock::Result<()> {
/// # let client = zlock::blocking::connect("mem://")?;
/// use zlock::blocking::ReadWriteLock;
///
/// let prices = ReadWriteLock::new(&client, "/app/prices")?;
/// let reading = prices.read().acquire()?;
/// assert!(std::thread::scope(|scope| {
///     scope.spawn(|| prices.write().try_acquire().map(|guard| guard.is_none())).join().unwrap()
/// })?);
/// reading.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReadWriteLock {
    lock: crate::ReadWriteLock,
    driver: Driver,
}

impl ReadWriteLock {
    /// Creates a handle to the read/write lock of this path. Performs no I/O.
    ///
    /// # Errors
    /// [`InvalidPath`](zlock_core::ErrorKind::InvalidPath), with the offending part in the message.
    pub fn new(client: &Client, path: impl AsRef<str>) -> Result<Self> {
        let lock = client.as_async().read_write_lock(path)?;
        Ok(ReadWriteLock { lock, driver: client.driver().clone() })
    }

    /// Replaces the client's node data for nodes that this lock's readers and writers create.
    ///
    /// # Errors
    /// As [`zlock::LockHandle::with_node_data`](crate::LockHandle::with_node_data).
    pub fn with_node_data(self, data: impl Into<Vec<u8>>) -> Result<Self> {
        Ok(ReadWriteLock { lock: self.lock.with_node_data(data)?, driver: self.driver })
    }

    /// Sets the name of the lock in measurements, as
    /// [`zlock::LockHandle::with_metric_name`](crate::LockHandle::with_metric_name).
    #[must_use]
    pub fn with_metric_name(self, name: impl Into<Arc<str>>) -> Self {
        ReadWriteLock { lock: self.lock.with_metric_name(name), driver: self.driver }
    }

    /// Returns the path of the lock.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.lock.path()
    }

    /// Returns the reading side of the lock.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let reading = client.read_write_lock("/app/prices")?.read().acquire()?;
    /// reading.release()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn read(&self) -> ReadLock {
        LockHandle::of(self.lock.read(), &self.driver)
    }

    /// Returns the writing side of the lock.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let writing = client.read_write_lock("/app/prices")?.write().acquire()?;
    /// writing.release()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn write(&self) -> WriteLock {
        LockHandle::of(self.lock.write(), &self.driver)
    }

    /// Returns the readers and writers that hold the lock or wait for it, head of the queue first.
    ///
    /// # Errors
    /// As [`LockHandle::participants`].
    pub fn participants(&self) -> Result<Vec<Participant>> {
        self.read().participants()
    }

    /// Asks the current holders, the writer or all readers, to release the lock. Returns how many were asked.
    ///
    /// # Errors
    /// As [`LockHandle::request_revocation`].
    pub fn request_revocation(&self) -> Result<usize> {
        self.read().request_revocation()
    }
}
