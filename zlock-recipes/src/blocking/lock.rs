//! Blocking lock handles.

use std::sync::Arc;
use std::time::Duration;

use zlock_core::{LockPath, Result};

use super::client::Client;
use super::driver::Driver;
use super::guard::BlockingGuard;
use crate::locks::dyn_lock::{DynLock, sealed};
use crate::locks::kind::Kind;
use crate::locks::lock::Lock;
use crate::{Handoff, Participant};

/// The blocking version of a lock. [`InterProcessMutex`], [`ReadLock`], [`WriteLock`] and [`MultiLock`]
/// are aliases of it. Cheap to clone. Threads may share it.
#[derive(Clone, Debug)]
pub struct LockHandle<L> {
    lock: L,
    driver: Driver,
}

/// A mutex that excludes other processes and other threads of this process. At most one thread holds a path at a time.
///
/// # Examples
/// ```
/// # fn main() -> zlock::Result<()> {
/// # let client = zlock::blocking::connect("mem://")?;
/// let mutex = client.mutex("/app/orders/42")?;
/// let guard = mutex.acquire()?;
/// let again = mutex.acquire()?; // the same thread: returns at once
/// again.release()?;
/// guard.release()?;
/// # Ok(())
/// # }
/// ```
pub type InterProcessMutex = LockHandle<crate::InterProcessMutex>;

/// The reading side of a [`ReadWriteLock`](super::ReadWriteLock), shared with other readers.
pub type ReadLock = LockHandle<crate::ReadLock>;

/// The writing side of a [`ReadWriteLock`](super::ReadWriteLock), exclusive. Its guard can be
/// [downgraded](BlockingGuard::downgrade).
pub type WriteLock = LockHandle<crate::WriteLock>;

/// Several locks that are acquired together. Created by [`Client::multi_lock`].
pub type MultiLock = LockHandle<crate::MultiLock>;

impl<L> LockHandle<L> {
    pub(crate) fn of(lock: L, driver: &Driver) -> Self {
        LockHandle { lock, driver: driver.clone() }
    }

    pub(super) fn as_async(&self) -> &L {
        &self.lock
    }

    pub(super) fn into_async(self) -> L {
        self.lock
    }

    pub(super) fn driver(&self) -> &Driver {
        &self.driver
    }
}

impl<L: Lock> LockHandle<L> {
    /// Acquires the lock, waiting without a time limit. If the calling thread already holds it, returns at once.
    ///
    /// # Errors
    /// Those of [`zlock::LockHandle::acquire`](crate::LockHandle::acquire), and
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused). [`StillEntered`](zlock_core::ErrorKind::StillEntered) if the
    /// thread still has a guard of the lock, but that lock is lost: drop the guard before acquiring the lock again.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let guard = client.mutex("/app/orders/42")?.acquire()?;
    /// // no other holder, on any machine
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire(&self) -> Result<BlockingGuard<L::Guard>> {
        self.driver.acquire("acquire", self.lock.acquire())
    }

    /// Acquires the lock, waiting for at most `time`. A zero duration makes a single attempt.
    ///
    /// # Errors
    /// Those of [`zlock::LockHandle::acquire_timeout`](crate::LockHandle::acquire_timeout), and
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// use std::time::Duration;
    ///
    /// use zlock::ErrorKind;
    ///
    /// match client.mutex("/app/orders/42")?.acquire_timeout(Duration::from_secs(2)) {
    ///     Ok(guard) => drop(guard),
    ///     Err(error) if error.kind() == ErrorKind::Busy => eprintln!("another client holds it"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire_timeout(&self, time: Duration) -> Result<BlockingGuard<L::Guard>> {
        self.driver.acquire("acquire", self.lock.acquire_timeout(time))
    }

    /// Acquires the lock if it is free, without waiting for other holders. Returns `None` if another thread or client holds
    /// it or is ahead in the queue.
    ///
    /// # Errors
    /// Those of [`zlock::LockHandle::try_acquire`](crate::LockHandle::try_acquire), and
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// match client.mutex("/app/orders/42")?.try_acquire()? {
    ///     Some(guard) => drop(guard.release()?),
    ///     None => println!("another thread or process has it"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_acquire(&self) -> Result<Option<BlockingGuard<L::Guard>>> {
        self.driver.try_acquire("try_acquire", self.lock.try_acquire())
    }

    /// Acquires the lock, runs the closure, and releases the lock, even if the closure panics. The closure cannot be
    /// cancelled: it should [check](BlockingGuard::check) the guard between its steps.
    ///
    /// # Errors
    /// - Those of [`acquire`](Self::acquire).
    /// - The loss of the lock, if it is lost when the closure returns. The lock may have had another holder during the last
    ///   steps.
    ///
    /// A failed release is logged and continues in the background.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let mut number = 41;
    /// client.mutex("/app/orders")?.run(|lock| -> zlock::Result<()> {
    ///     lock.check()?;
    ///     number += 1;
    ///     Ok(())
    /// })??;
    /// assert_eq!(number, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<T>(&self, closure: impl FnOnce(&BlockingGuard<L::Guard>) -> T) -> Result<T> {
        self.acquire()?.run_and_release(closure)
    }

    /// Returns `true` if this client holds the lock, on any thread. Performs no I/O.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let mutex = client.mutex("/app/orders/42")?;
    /// let guard = mutex.acquire()?;
    /// assert!(mutex.is_acquired_in_this_process());
    /// guard.release()?;
    /// assert!(!mutex.is_acquired_in_this_process());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.lock.is_acquired_in_this_process()
    }

    /// Returns the clients that hold the lock or wait for it, head of the queue first.
    ///
    /// # Errors
    /// Those of [`zlock::LockHandle::participants`](crate::LockHandle::participants), and
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let mutex = client.mutex("/app/orders/42")?;
    /// let guard = mutex.acquire()?;
    /// assert_eq!(mutex.participants()?.len(), 1);
    /// # guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn participants(&self) -> Result<Vec<Participant>> {
        self.driver.run("participants", self.lock.participants())
    }

    /// Asks the current holders to release the lock. Returns the number of holders that were asked.
    ///
    /// # Errors
    /// Those of [`zlock::LockHandle::request_revocation`](crate::LockHandle::request_revocation), and
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let mutex = client.mutex("/app/orders/42")?;
    /// let guard = mutex.acquire()?;
    /// assert_eq!(mutex.request_revocation()?, 1); // in another process
    /// guard.revocation_requested()?; // returns at once
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn request_revocation(&self) -> Result<usize> {
        self.driver.run("request_revocation", self.lock.request_revocation())
    }
}

impl<K: Kind> LockHandle<crate::LockHandle<K>> {
    /// Returns the path of the lock.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let mutex = client.mutex("/app/orders/42")?;
    /// assert_eq!(mutex.path().as_str(), "/app/orders/42");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.lock.path()
    }

    /// Replaces the client's node data for nodes that this handle creates.
    ///
    /// # Errors
    /// Those of [`zlock::LockHandle::with_node_data`](crate::LockHandle::with_node_data).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let mutex = client.mutex("/app/orders/42")?.with_node_data("import job 7")?;
    /// # let _ = mutex;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_node_data(self, data: impl Into<Vec<u8>>) -> Result<Self> {
        Ok(LockHandle { lock: self.lock.with_node_data(data)?, driver: self.driver })
    }

    /// Limits how long the lock is held, as [`zlock::LockHandle::max_hold`](crate::LockHandle::max_hold) does. A thread is not
    /// cancelled: the guard says that the time is over.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if the time is zero.
    pub fn max_hold(self, time: Duration) -> Result<Self> {
        Ok(LockHandle { lock: self.lock.max_hold(time)?, driver: self.driver })
    }

    /// Sets the name of the lock in metrics, as
    /// [`zlock::LockHandle::with_metric_name`](crate::LockHandle::with_metric_name) does.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let mutex = client.mutex("/app/orders/42")?.with_metric_name("orders");
    /// # let _ = mutex;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_metric_name(self, name: impl Into<Arc<str>>) -> Self {
        LockHandle { lock: self.lock.with_metric_name(name), driver: self.driver }
    }
}

impl Client {
    /// Returns a handle to the mutex of this path. Performs no I/O.
    ///
    /// # Errors
    /// [`InvalidPath`](zlock_core::ErrorKind::InvalidPath), with the offending part in the message.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let guard = client.mutex("/app/orders/42")?.acquire()?;
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn mutex(&self, path: impl AsRef<str>) -> Result<InterProcessMutex> {
        self.as_async().mutex(path).map(|lock| self.handle(lock))
    }

    /// Combines several locks into one that acquires all or none, as [`zlock::MultiLock::new`](crate::MultiLock::new) does.
    /// Performs no I/O.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) for no locks, or for the same path twice.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let (one, two) = (client.mutex("/app/orders/41")?, client.mutex("/app/orders/42")?);
    /// let guard = client.multi_lock([&one, &two])?.acquire()?;
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn multi_lock(&self, locks: impl IntoIterator<Item = impl DynLock>) -> Result<MultiLock> {
        crate::MultiLock::new(locks).map(|lock| self.handle(lock))
    }

    pub(crate) fn handle<L: crate::Lock>(&self, lock: L) -> LockHandle<L> {
        LockHandle::of(lock, self.driver())
    }
}

impl InterProcessMutex {
    /// Enables hand-off between the threads of this client, as
    /// [`zlock::InterProcessMutex::with_handoff`](crate::InterProcessMutex::with_handoff) does.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// use std::time::Duration;
    ///
    /// use zlock::Handoff;
    ///
    /// let mutex = client.mutex("/app/orders")?.with_handoff(Handoff::within(Duration::from_millis(10)));
    /// mutex.acquire()?.release()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_handoff(self, handoff: Handoff) -> Self {
        LockHandle { lock: self.lock.with_handoff(handoff), driver: self.driver }
    }
}

impl<L: DynLock> DynLock for LockHandle<L> {
    fn path(&self) -> &LockPath {
        self.lock.path()
    }
}

impl<L: DynLock> sealed::Dyn for LockHandle<L> {
    fn to_handle(&self) -> crate::LockHandle<zlock_core::Label> {
        self.lock.to_handle()
    }
}
