//! Semaphores for threads.

use std::sync::Arc;
use std::time::Duration;

use zlock_core::{LockPath, Result};

use super::client::Client;
use super::driver::Driver;
use super::guard::Guard;
use super::lock::{LockHandle, PermitRequest};
use crate::Participant;

/// A number of permits that threads of many processes share. The blocking form of [`zlock::Semaphore`](crate::Semaphore).
///
/// # Examples
/// ```
/// # fn main() -> zlock::Result<()> {
/// # let client = zlock::blocking::connect("mem://")?;
/// use zlock::blocking::Semaphore;
///
/// let workers = Semaphore::new(&client, "/app/workers", 10)?;
/// let guard = workers.acquire(3)?;
/// assert_eq!(guard.permits(), Some(3));
/// guard.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    semaphore: crate::Semaphore,
    driver: Driver,
}

impl Semaphore {
    /// Creates a handle to the semaphore of this path with this many permits. Performs no I/O.
    ///
    /// # Errors
    /// [`InvalidPath`](zlock_core::ErrorKind::InvalidPath), and
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) for 0 permits.
    pub fn new(client: &Client, path: impl AsRef<str>, max: u32) -> Result<Self> {
        let semaphore = client.as_async().semaphore(path, max)?;
        Ok(Semaphore { semaphore, driver: client.driver().clone() })
    }

    /// Replaces the client's node data for nodes that this semaphore's users create.
    ///
    /// # Errors
    /// As [`zlock::LockHandle::with_node_data`](crate::LockHandle::with_node_data).
    pub fn with_node_data(self, data: impl Into<Vec<u8>>) -> Result<Self> {
        Ok(Semaphore { semaphore: self.semaphore.with_node_data(data)?, driver: self.driver })
    }

    /// Sets the name of the lock in measurements, as
    /// [`zlock::LockHandle::with_metric_name`](crate::LockHandle::with_metric_name).
    #[must_use]
    pub fn with_metric_name(self, name: impl Into<Arc<str>>) -> Self {
        Semaphore { semaphore: self.semaphore.with_metric_name(name), driver: self.driver }
    }

    /// Returns the path of the semaphore.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.semaphore.path()
    }

    /// Returns the number of permits that there are.
    #[must_use]
    pub fn max_permits(&self) -> u32 {
        self.semaphore.max_permits()
    }

    /// Returns a handle that acquires this many permits. Performs no I/O.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) for 0 permits, and for more than there are.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let three = client.semaphore("/app/workers", 10)?.permits(3)?;
    /// three.run(|_lock| { /* with three permits */ })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn permits(&self, n: u32) -> Result<PermitRequest> {
        self.semaphore.permits(n).map(|lock| LockHandle::of(lock, &self.driver))
    }

    /// Acquires `n` permits at once, waiting for them without a time limit.
    ///
    /// # Errors
    /// As [`permits`](Self::permits) and [`LockHandle::acquire`].
    pub fn acquire(&self, n: u32) -> Result<Guard> {
        self.permits(n)?.acquire()
    }

    /// Acquires `n` permits at once, waiting for at most `time`.
    ///
    /// # Errors
    /// As [`permits`](Self::permits) and [`LockHandle::acquire_timeout`].
    pub fn acquire_timeout(&self, n: u32, time: Duration) -> Result<Guard> {
        self.permits(n)?.acquire_timeout(time)
    }

    /// Acquires `n` permits if they are free, without waiting.
    ///
    /// # Errors
    /// As [`permits`](Self::permits) and [`LockHandle::try_acquire`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let workers = client.semaphore("/app/workers", 10)?;
    /// let six = workers.acquire(6)?;
    /// assert!(workers.try_acquire(6)?.is_none());
    /// six.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_acquire(&self, n: u32) -> Result<Option<Guard>> {
        self.permits(n)?.try_acquire()
    }

    /// Returns `true` if this client holds any of the permits, on any thread. Performs no I/O.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        !self.driver.is_forked() && self.semaphore.is_acquired_in_this_process()
    }

    /// Returns the clients that hold permits or wait for some, head of the queue first.
    ///
    /// # Errors
    /// As [`LockHandle::participants`].
    pub fn participants(&self) -> Result<Vec<Participant>> {
        self.driver.run("participants", self.semaphore.participants())
    }

    /// Asks all current holders to release their permits. Returns how many were asked.
    ///
    /// # Errors
    /// As [`LockHandle::request_revocation`].
    pub fn request_revocation(&self) -> Result<usize> {
        self.driver.run("request_revocation", self.semaphore.request_revocation())
    }
}
