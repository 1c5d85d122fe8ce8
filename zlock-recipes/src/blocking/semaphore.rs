//! The blocking semaphore.

use std::sync::Arc;
use std::time::Duration;

use zlock_core::{LockPath, Result};

use super::client::Client;
use super::driver::Driver;
use super::guard::Guard;
use super::lock::{LockHandle, PermitRequest};
use super::value::Counter;
use crate::Participant;

/// A number of permits shared by threads of many processes. The blocking version of [`zlock::Semaphore`](crate::Semaphore).
///
/// # Examples
/// ```
/// # fn main() -> zlock::Result<()> {
/// # let client = zlock::blocking::connect("mem://")?;
/// let workers = client.semaphore("/app/workers", 10)?;
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

impl Client {
    /// Returns a handle to the semaphore of this path with this many permits. Performs no I/O.
    ///
    /// # Errors
    /// [`InvalidPath`](zlock_core::ErrorKind::InvalidPath), and
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) for 0 permits.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let guard = client.semaphore("/app/workers", 10)?.acquire(3)?;
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn semaphore(&self, path: impl AsRef<str>, max: u32) -> Result<Semaphore> {
        let semaphore = self.as_async().semaphore(path, max)?;
        Ok(Semaphore { semaphore, driver: self.driver().clone() })
    }
}

impl Client {
    /// Returns a handle to the semaphore whose maximum is the number of a counter, as
    /// [`zlock::Client::semaphore_with_shared_max`](crate::Client::semaphore_with_shared_max) does.
    ///
    /// # Errors
    /// Those of [`zlock::Client::semaphore_with_shared_max`](crate::Client::semaphore_with_shared_max).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let max = client.counter("/app/max-workers")?;
    /// max.add(10)?;
    /// let guard = client.semaphore_with_shared_max("/app/workers", &max)?.acquire(3)?;
    /// guard.release()?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn semaphore_with_shared_max(&self, path: impl AsRef<str>, max: &Counter) -> Result<Semaphore> {
        let semaphore = self.as_async().semaphore_with_shared_max(path, max.as_async())?;
        Ok(Semaphore { semaphore, driver: self.driver().clone() })
    }
}

impl Semaphore {
    /// Replaces the client's node data for nodes that this handle creates.
    ///
    /// # Errors
    /// Those of [`zlock::LockHandle::with_node_data`](crate::LockHandle::with_node_data).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let workers = client.semaphore("/app/workers", 10)?.with_node_data("import job 7")?;
    /// # let _ = workers;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_node_data(self, data: impl Into<Vec<u8>>) -> Result<Self> {
        Ok(Semaphore { semaphore: self.semaphore.with_node_data(data)?, driver: self.driver })
    }

    /// Sets the name of the semaphore in metrics, as
    /// [`zlock::LockHandle::with_metric_name`](crate::LockHandle::with_metric_name) does.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let workers = client.semaphore("/app/workers", 10)?.with_metric_name("workers");
    /// # let _ = workers;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_metric_name(self, name: impl Into<Arc<str>>) -> Self {
        Semaphore { semaphore: self.semaphore.with_metric_name(name), driver: self.driver }
    }

    /// Returns the path of the semaphore.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// assert_eq!(client.semaphore("/app/workers", 10)?.path().as_str(), "/app/workers");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.semaphore.path()
    }

    /// Returns the total number of permits.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// assert_eq!(client.semaphore("/app/workers", 10)?.max_permits(), 10);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn max_permits(&self) -> u32 {
        self.semaphore.max_permits()
    }

    /// Returns a handle that acquires this many permits. Performs no I/O.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) for 0 permits, or for more than
    /// [`max_permits`](Self::max_permits).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let three = client.semaphore("/app/workers", 10)?.permits(3)?;
    /// three.run(|_lock| { /* while holding three permits */ })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn permits(&self, n: u32) -> Result<PermitRequest> {
        self.semaphore.permits(n).map(|lock| LockHandle::of(lock, &self.driver))
    }

    /// Acquires `n` permits together, waiting without a time limit.
    ///
    /// # Errors
    /// Those of [`permits`](Self::permits) and [`LockHandle::acquire`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let guard = client.semaphore("/app/workers", 10)?.acquire(3)?;
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire(&self, n: u32) -> Result<Guard> {
        self.permits(n)?.acquire()
    }

    /// Acquires `n` permits together, waiting for at most `time`. A zero duration makes a single attempt.
    ///
    /// # Errors
    /// Those of [`permits`](Self::permits) and [`LockHandle::acquire_timeout`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// use std::time::Duration;
    ///
    /// let guard = client.semaphore("/app/workers", 10)?.acquire_timeout(3, Duration::from_secs(2))?;
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire_timeout(&self, n: u32, time: Duration) -> Result<Guard> {
        self.permits(n)?.acquire_timeout(time)
    }

    /// Acquires `n` permits together if they are free, without waiting for other holders. Returns `None` otherwise.
    ///
    /// # Errors
    /// Those of [`permits`](Self::permits) and [`LockHandle::try_acquire`].
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

    /// Returns `true` if this client holds at least one permit, on any thread. Performs no I/O.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let workers = client.semaphore("/app/workers", 10)?;
    /// let guard = workers.acquire(3)?;
    /// assert!(workers.is_acquired_in_this_process());
    /// # guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        !self.driver.is_forked() && self.semaphore.is_acquired_in_this_process()
    }

    /// Returns the clients that hold permits or wait for them, head of the queue first.
    ///
    /// # Errors
    /// Those of [`LockHandle::participants`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let workers = client.semaphore("/app/workers", 10)?;
    /// let guard = workers.acquire(3)?;
    /// assert_eq!(workers.participants()?.len(), 1);
    /// # guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn participants(&self) -> Result<Vec<Participant>> {
        self.driver.run("participants", self.semaphore.participants())
    }

    /// Asks all current holders to release their permits. Returns the number of holders that were asked.
    ///
    /// # Errors
    /// Those of [`LockHandle::request_revocation`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let workers = client.semaphore("/app/workers", 10)?;
    /// let guard = workers.acquire(3)?;
    /// assert_eq!(workers.request_revocation()?, 1); // elsewhere
    /// # guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn request_revocation(&self) -> Result<usize> {
        self.driver.run("request_revocation", self.semaphore.request_revocation())
    }
}
