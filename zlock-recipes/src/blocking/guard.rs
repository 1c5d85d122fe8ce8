//! Guards that belong to a thread.

use std::fmt;
use std::marker::PhantomData;
use std::sync::MutexGuard;
use std::time::Duration;

use tokio::time::timeout;
use zlock_core::{Error, FencingToken, LockPath, NodeName, Result};

use super::driver::{Driver, Mine, may_block};
use crate::Release;
use crate::guard::LockGuard;

/// A lock that a thread holds. [`Guard`], [`WriteGuard`] and [`MultiGuard`] are aliases of it. The lock is released when the
/// last guard of the hold is dropped.
///
/// It cannot be sent to another thread: the thread that acquired it enters the lock again, and would do so beside the one that
/// has the guard. Other threads may use a reference to it, for example to wait for [`lost`](Self::lost).
///
/// # Drop
/// Dropping the last guard hands the node to the client's thread, which removes it. The drop never waits, and works while
/// unwinding and in the destructor of a thread-local. Use [`release`](Self::release) to know when it is done.
///
/// # Examples
/// ```
/// # fn main() -> zlock::Result<()> {
/// # let client = zlock::blocking::connect("mem://")?;
/// let guard = client.mutex("/app/orders/42")?.acquire()?;
/// for _step in 0..3 {
///     guard.check()?; // an error if the lock is lost
/// }
/// guard.release()?;
/// # Ok(())
/// # }
/// ```
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// # fn main() -> zlock::Result<()> {
/// # let client = zlock::blocking::connect("mem://")?;
/// let guard = client.mutex("/app/orders/42")?.acquire()?;
/// std::thread::spawn(move || drop(guard));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a guard that is dropped releases the lock"]
pub struct BlockingGuard<G> {
    guard: G,
    driver: Driver,
    /// Lets the thread enter again.
    _mine: Mine,
    /// As the guard of a mutex in the standard library: not `Send`, and `Sync`.
    stays: PhantomData<MutexGuard<'static, ()>>,
}

/// A lock that a thread holds.
pub type Guard = BlockingGuard<crate::Guard>;

/// A write lock that a thread holds, and that can be [downgraded](BlockingGuard::downgrade).
pub type WriteGuard = BlockingGuard<crate::WriteGuard>;

/// Several locks that a thread holds.
pub type MultiGuard = BlockingGuard<crate::MultiGuard>;

impl<G: LockGuard> BlockingGuard<G> {
    /// For a guard that this thread has just acquired.
    pub(crate) fn entered(guard: G, driver: &Driver) -> Self {
        let _mine = Mine::new(&guard);
        BlockingGuard { guard, driver: driver.clone(), _mine, stays: PhantomData }
    }

    /// The async guard, and what runs its calls.
    #[cfg(feature = "suite")]
    pub(crate) fn into_parts(self) -> (G, Driver) {
        (self.guard, self.driver)
    }

    /// Returns the guards that this one consists of: one, or those of a [`MultiGuard`] in the order of their paths. Each has a
    /// path and a fencing token of its own.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let (one, two) = (client.mutex("/app/orders/41")?, client.mutex("/app/orders/42")?);
    /// let guard = client.multi_lock([&one, &two])?.acquire()?;
    /// let tokens: Vec<_> = guard.guards().iter().map(|guard| guard.fencing_token()).collect();
    /// assert_eq!(tokens.len(), 2);
    /// # guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn guards(&self) -> &[crate::Guard] {
        self.guard.guards()
    }

    /// Returns `true` if the lock is certainly still held. Performs no I/O.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.driver.is_forked() && self.guard.is_held()
    }

    /// Returns an error if the lock is lost. For code that holds it for long, between its steps. Performs no I/O.
    ///
    /// # Errors
    /// The loss of the lock, as [`zlock::Guard::lost`](crate::Guard::lost) returns it;
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused) in a forked child, which does not hold its parent's locks.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let guard = client.mutex("/app/orders/42")?.acquire()?;
    /// guard.check()?;
    /// client.close()?;
    /// assert!(guard.check().unwrap_err().is_lock_lost());
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self) -> Result<()> {
        if self.driver.is_forked() {
            return may_block("check", self.driver.process());
        }
        self.guard.check()
    }

    /// Waits until the lock is lost, and returns why. For a thread that watches the one that works.
    ///
    /// # Errors
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let guard = client.mutex("/app/orders/42")?.acquire()?;
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| println!("{:?}", guard.lost()));
    ///     client.close()
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lost(&self) -> Result<Error> {
        self.driver.run("lost", async { Ok(self.guard.lost().await) })
    }

    /// Waits until another client requests revocation, or this client [shuts down](super::Client::shutdown). Returns at once
    /// if that has happened. What follows is up to the holder.
    ///
    /// # Errors
    /// Those of [`zlock::Guard::revocation_requested`](crate::Guard::revocation_requested), and
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    pub fn revocation_requested(&self) -> Result<()> {
        self.driver.run("revocation_requested", self.guard.revocation_requested())
    }

    /// Waits as [`revocation_requested`](Self::revocation_requested), for at most `time`, and returns whether the holder was
    /// asked. The store needs time for one request.
    ///
    /// # Errors
    /// Those of [`revocation_requested`](Self::revocation_requested).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// use std::time::Duration;
    ///
    /// let guard = client.mutex("/app/orders/42")?.acquire()?;
    /// while !guard.revocation_requested_timeout(Duration::from_millis(100))? {
    ///     // a short step
    /// #   break;
    /// }
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn revocation_requested_timeout(&self, time: Duration) -> Result<bool> {
        self.driver.run("revocation_requested", async {
            timeout(time, self.guard.revocation_requested())
                .await
                .map_or(Ok(false), |asked| asked.map(|()| true))
        })
    }

    /// Returns another guard of the same hold, for the calling thread. From then on that thread may enter the lock again.
    /// Performs no I/O.
    ///
    /// # Errors
    /// The loss of the lock, as [`check`](Self::check) returns it.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let mutex = client.mutex("/app/orders/42")?;
    /// let guard = mutex.acquire()?;
    /// std::thread::scope(|scope| {
    ///     let helper = scope.spawn(|| {
    ///         let _mine = guard.reenter()?;
    ///         mutex.acquire()?.release() // at once
    ///     });
    ///     helper.join().unwrap()
    /// })?;
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reenter(&self) -> Result<Self> {
        self.check()?;
        Ok(BlockingGuard::entered(self.guard.reenter()?, &self.driver))
    }

    /// Releases the lock and waits until the server has done so, as [`zlock::Guard::release`](crate::Guard::release).
    ///
    /// # Errors
    /// Those of [`zlock::Guard::release`](crate::Guard::release), and
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused): the lock is then released in the background.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// use zlock::Release;
    ///
    /// let guard = client.mutex("/app/orders/42")?.acquire()?;
    /// assert_eq!(guard.release()?, Release::Released);
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(self) -> Result<Release> {
        let BlockingGuard { guard, driver, .. } = self;
        driver.run("release", guard.release())
    }

    /// Runs the closure, and releases the lock.
    pub(crate) fn run_and_release<T>(self, closure: impl FnOnce(&Self) -> T) -> Result<T> {
        let output = closure(&self);
        let checked = self.check();
        match self.release() {
            Ok(Release::Pending) => tracing::warn!("the release goes on in the background"),
            Ok(release) => tracing::trace!(?release, "released"),
            Err(error) => tracing::warn!(%error, "the release goes on in the background"),
        }
        checked.map(|()| output)
    }
}

/// The guards of one lock.
pub(crate) mod sealed {
    pub trait Single {
        fn single(&self) -> &crate::Guard;
    }

    impl Single for crate::Guard {
        fn single(&self) -> &crate::Guard {
            self
        }
    }

    impl Single for crate::WriteGuard {
        fn single(&self) -> &crate::Guard {
            self
        }
    }
}

/// A [`Guard`] or a [`WriteGuard`].
impl<G: sealed::Single> BlockingGuard<G> {
    /// Returns the path of the lock.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.guard.single().path()
    }

    /// Returns the token to pass to the storage that the lock protects, as
    /// [`zlock::Guard::fencing_token`](crate::Guard::fencing_token).
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.guard.single().fencing_token()
    }

    /// Returns the name of the lock's node under its path, as [`zlock::Guard::node`](crate::Guard::node).
    #[must_use]
    pub fn node(&self) -> NodeName {
        self.guard.single().node()
    }

    /// Returns the number of a semaphore's permits that this hold has taken, and `None` for other locks.
    #[must_use]
    pub fn permits(&self) -> Option<u32> {
        self.guard.single().permits()
    }
}

impl WriteGuard {
    /// Converts the write lock into a read lock, with no writer in between, as
    /// [`zlock::WriteGuard::downgrade`](crate::WriteGuard::downgrade).
    ///
    /// # Errors
    /// Those of [`zlock::WriteGuard::downgrade`](crate::WriteGuard::downgrade), and
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused). The error contains the guard.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let prices = client.read_write_lock("/app/prices")?;
    /// let writing = prices.write().acquire()?;
    /// // alone: change
    /// let reading = writing.downgrade()?;
    /// // with other readers: look at what was changed; no writer has been here
    /// reading.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn downgrade(self) -> Result<Guard, DowngradeError> {
        if let Err(error) = may_block("downgrade", self.driver.process()) {
            return Err(DowngradeError { error, guard: self });
        }
        let BlockingGuard { guard, driver, .. } = self;
        let downgraded = driver.block_on(guard.downgrade());
        downgraded.map(|guard| BlockingGuard::entered(guard, &driver)).map_err(|refused| DowngradeError {
            error: refused.error,
            guard: BlockingGuard::entered(refused.guard, &driver),
        })
    }
}

/// The error of a downgrade that failed, with the write guard.
#[derive(Debug)]
pub struct DowngradeError {
    /// Why the downgrade failed.
    pub error: Error,
    /// The guard. Dropping it releases the lock if it is still held.
    pub guard: WriteGuard,
}

impl fmt::Display for DowngradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for DowngradeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Drops the guard.
impl From<DowngradeError> for Error {
    fn from(e: DowngradeError) -> Self {
        e.error
    }
}
