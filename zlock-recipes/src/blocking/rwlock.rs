//! The blocking read/write lock.

use std::sync::Arc;
use std::time::Duration;

use zlock_core::{LockPath, Result};

use super::client::Client;
use super::driver::Driver;
use super::lock::{LockHandle, ReadLock, WriteLock};
use crate::Participant;

/// A lock with either many readers or one writer, across processes and threads. The blocking version of
/// [`zlock::ReadWriteLock`](crate::ReadWriteLock).
///
/// A thread that holds the write lock may acquire both sides again. A thread that holds the read lock may acquire it again,
/// but not the write lock: that fails with [`UpgradeRefused`](zlock_core::ErrorKind::UpgradeRefused).
///
/// # Examples
/// ```
/// # fn main() -> zlock::Result<()> {
/// # let client = zlock::blocking::connect("mem://")?;
/// let prices = client.read_write_lock("/app/prices")?;
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

impl Client {
    /// Returns a handle to the read/write lock of this path. Performs no I/O.
    ///
    /// # Errors
    /// [`InvalidPath`](zlock_core::ErrorKind::InvalidPath), with the offending part in the message.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let prices = client.read_write_lock("/app/prices")?;
    /// prices.read().acquire()?.release()?;
    /// prices.write().acquire()?.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_write_lock(&self, path: impl AsRef<str>) -> Result<ReadWriteLock> {
        let lock = self.as_async().read_write_lock(path)?;
        Ok(ReadWriteLock { lock, driver: self.driver().clone() })
    }
}

impl ReadWriteLock {
    /// Replaces the client's node data for nodes that this lock's readers and writers create.
    ///
    /// # Errors
    /// Those of [`zlock::LockHandle::with_node_data`](crate::LockHandle::with_node_data).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let prices = client.read_write_lock("/app/prices")?.with_node_data("import job 7")?;
    /// # let _ = prices;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_node_data(self, data: impl Into<Vec<u8>>) -> Result<Self> {
        Ok(ReadWriteLock { lock: self.lock.with_node_data(data)?, driver: self.driver })
    }

    /// Limits how long each reader and each writer holds the lock, as [`LockHandle::max_hold`] does.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if the time is zero.
    pub fn max_hold(self, time: Duration) -> Result<Self> {
        Ok(ReadWriteLock { lock: self.lock.max_hold(time)?, driver: self.driver })
    }

    /// Sets the name of the lock in metrics, as
    /// [`zlock::LockHandle::with_metric_name`](crate::LockHandle::with_metric_name) does.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let prices = client.read_write_lock("/app/prices/tea")?.with_metric_name("prices");
    /// # let _ = prices;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_metric_name(self, name: impl Into<Arc<str>>) -> Self {
        ReadWriteLock { lock: self.lock.with_metric_name(name), driver: self.driver }
    }

    /// Returns the path of the lock.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// assert_eq!(client.read_write_lock("/app/prices")?.path().as_str(), "/app/prices");
    /// # Ok(())
    /// # }
    /// ```
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
    /// Those of [`LockHandle::participants`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let prices = client.read_write_lock("/app/prices")?;
    /// let reading = prices.read().acquire()?;
    /// assert_eq!(prices.participants()?.len(), 1);
    /// # reading.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn participants(&self) -> Result<Vec<Participant>> {
        self.read().participants()
    }

    /// Asks the current holders, the writer or all readers, to release the lock. Returns the number of holders that were
    /// asked.
    ///
    /// # Errors
    /// Those of [`LockHandle::request_revocation`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let prices = client.read_write_lock("/app/prices")?;
    /// let reading = prices.read().acquire()?;
    /// assert_eq!(prices.request_revocation()?, 1); // elsewhere
    /// # reading.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn request_revocation(&self) -> Result<usize> {
        self.read().request_revocation()
    }
}
