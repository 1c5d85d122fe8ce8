//! Guards that stay on a thread.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::MutexGuard;
use std::time::Duration;

use tokio::time::timeout;
use tracing::Span;
use zlock_core::{Error, ErrorKind, FencingToken, LockPath, NodeName, Result};

use super::driver::{Driver, Mine, held, may_block};
use crate::Release;
use crate::guard::LockGuard;
use crate::hold::REENTER;

/// A guard of a lock that a thread holds. [`Guard`], [`WriteGuard`] and [`MultiGuard`] are aliases of it. The lock is
/// released when the last guard of the hold is dropped.
///
/// A guard cannot be sent to another thread: the thread that acquired the lock may enter it again, and would then hold it
/// alongside the other thread. Other threads may use a reference to the guard, for example to wait for
/// [`lost`](Self::lost).
///
/// # Drop
/// Dropping the last guard passes the node to the client's thread, which removes it. The drop never waits. It also works
/// during unwinding and in the destructor of a thread-local. To wait for the removal, use [`release`](Self::release).
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
/// A guard stays on its thread:
///
/// ```compile_fail,E0277
/// # fn main() -> zlock::Result<()> {
/// # let client = zlock::blocking::connect("mem://")?;
/// let guard = client.mutex("/app/orders/42")?.acquire()?;
/// std::thread::spawn(move || drop(guard));
/// # Ok(())
/// # }
/// ```
// Does not deref to `LockContext`, which waits in futures.
#[derive(Debug)]
#[must_use = "a guard that is dropped releases the lock"]
pub struct BlockingGuard<G> {
    guard: G,
    driver: Driver,
    /// Lets the thread enter the lock again.
    _mine: Mine,
    /// Makes this type `Sync` but not `Send`, like the standard library's `MutexGuard`.
    stays: PhantomData<MutexGuard<'static, ()>>,
}

/// A guard of a lock that a thread holds.
pub type Guard = BlockingGuard<crate::Guard>;

/// A guard of a write lock that a thread holds. Can be [downgraded](BlockingGuard::downgrade) to a read lock.
pub type WriteGuard = BlockingGuard<crate::WriteGuard>;

/// A guard of several locks that a thread holds.
pub type MultiGuard = BlockingGuard<crate::MultiGuard>;

/// The error of a failed downgrade. Contains the write guard.
pub type DowngradeError = crate::DowngradeError<WriteGuard>;

impl Driver {
    /// Waits for an acquisition. It may enter locks that the thread holds again; the new lock is one of them from then on.
    pub(crate) fn acquire<G: LockGuard>(
        &self,
        operation: &'static str,
        acquisition: impl Future<Output = Result<G>>,
    ) -> Result<BlockingGuard<G>> {
        let acquired = self.run(operation, held(operation)?.scope(acquisition));
        Ok(BlockingGuard::entered(acquired.map_err(still_entered)?, self))
    }

    /// The version of [`acquire`](Self::acquire) for a single attempt.
    pub(crate) fn try_acquire<G: LockGuard>(
        &self,
        operation: &'static str,
        attempt: impl Future<Output = Result<Option<G>>>,
    ) -> Result<Option<BlockingGuard<G>>> {
        let attempted = self.run(operation, held(operation)?.scope(attempt));
        Ok(attempted.map_err(still_entered)?.map(|guard| BlockingGuard::entered(guard, self)))
    }
}

/// Says what to do about a lock that a thread cannot enter again, because it is lost. Trying again would not help.
pub(super) fn still_entered(error: Error) -> Error {
    if error.operation() != REENTER || !error.is_retryable() {
        return error;
    }
    let message = "this thread still has a guard of the lock, but the lock is lost: drop the guard first";
    Error::new(ErrorKind::StillEntered, REENTER)
        .with_path(error.path().unwrap_or_default())
        .with_message(message)
        .with_cause(error)
        .lock_lost()
}

impl<G: LockGuard> BlockingGuard<G> {
    /// Wraps a guard that this thread has just acquired.
    pub(crate) fn entered(guard: G, driver: &Driver) -> Self {
        let _mine = Mine::new(&guard);
        BlockingGuard { guard, driver: driver.clone(), _mine, stays: PhantomData }
    }

    pub(super) fn inner(&self) -> &G {
        &self.guard
    }

    pub(super) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Returns the async guards that this guard consists of: one, or those of a [`MultiGuard`] in the order of their paths.
    /// Each has its own path and fencing token.
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

    /// Returns `true` if the lock is guaranteed to be held at this moment. Performs no I/O.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let guard = client.mutex("/app/orders/42")?.acquire()?;
    /// assert!(guard.is_held());
    /// client.close()?;
    /// assert!(!guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Returns an error if the lock is lost. Code that holds a lock for a long time calls this between its steps. Performs no
    /// I/O.
    ///
    /// # Errors
    /// The loss of the lock, as returned by [`zlock::LockContext::lost`](crate::LockContext::lost).
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
        self.guard.check()
    }

    /// Waits until the lock is lost, and returns the reason. The guard cannot be released meanwhile. A thread that monitors the one
    /// that works, until the work is done, uses [`lost_timeout`](Self::lost_timeout).
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

    /// Waits like [`lost`](Self::lost), but for at most `time`. Returns `None` if the lock is still held by then. Sends no
    /// request.
    ///
    /// # Errors
    /// Those of [`lost`](Self::lost).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::time::Duration;
    ///
    /// let guard = client.mutex("/app/orders/42")?.acquire()?;
    /// let (done, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         while !done.load(Ordering::SeqCst) {
    ///             if !matches!(guard.lost_timeout(Duration::from_millis(100)), Ok(None)) {
    ///                 stop.store(true, Ordering::SeqCst);
    ///                 break;
    ///             }
    ///         }
    ///     });
    ///     for _step in 0..3 {
    ///         // ends early if `stop` is set
    ///     }
    ///     done.store(true, Ordering::SeqCst);
    /// });
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lost_timeout(&self, time: Duration) -> Result<Option<Error>> {
        self.driver.run("lost", async { Ok(timeout(time, self.guard.lost()).await.ok()) })
    }

    /// Waits until another client requests revocation, or this client [shuts down](super::Client::shutdown). Returns at once
    /// if one of them has already happened. Does not release the lock: that is up to the holder.
    ///
    /// # Errors
    /// Those of [`zlock::LockContext::revocation_requested`](crate::LockContext::revocation_requested), and
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let mutex = client.mutex("/app/orders/42")?;
    /// let guard = mutex.acquire()?;
    /// mutex.request_revocation()?; // elsewhere
    /// guard.revocation_requested()?;
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn revocation_requested(&self) -> Result<()> {
        self.driver.run("revocation_requested", self.guard.revocation_requested())
    }

    /// Waits like [`revocation_requested`](Self::revocation_requested), but for at most `time`. Returns `true` if revocation
    /// was requested. Each call sends a request to the store: if `time` is too short for the response, it returns `false`.
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

    /// Returns another guard of the same hold for the calling thread, which may enter the lock again from then on. Performs
    /// no I/O.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
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

    /// Releases the lock and waits for the server to confirm it, as [`zlock::Guard::release`](crate::Guard::release) does.
    ///
    /// # Errors
    /// - Those of [`zlock::Guard::release`](crate::Guard::release).
    /// - [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused). The lock is released in the background then.
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

    /// Returns the span in which closures under the lock run.
    pub(super) fn span(&self) -> Span {
        self.guard.guards().last().map_or(Span::none(), |guard| guard.hold().span())
    }

    /// Runs the closure, then releases the lock.
    pub(crate) fn run_and_release<T>(self, closure: impl FnOnce(&Self) -> T) -> Result<T> {
        let output = self.span().in_scope(|| closure(&self));
        let checked = self.check();
        self.release_or_log();
        checked.map(|()| output)
    }

    pub(crate) fn release_or_log(self) {
        match self.release() {
            Ok(Release::Pending) => tracing::warn!("the release continues in the background"),
            Ok(release) => tracing::trace!(?release, "released"),
            Err(error) => tracing::warn!(%error, "the release continues in the background"),
        }
    }
}

/// Guards of a single lock.
pub(crate) mod sealed {
    pub trait Single {
        fn single(&self) -> &crate::Guard;
    }

    impl Single for crate::Guard {
        fn single(&self) -> &crate::Guard {
            self
        }
    }

    impl Single for crate::Leadership {
        fn single(&self) -> &crate::Guard {
            self.guard()
        }
    }

    impl Single for crate::WriteGuard {
        fn single(&self) -> &crate::Guard {
            self
        }
    }
}

/// Methods of the guard of a single lock: a [`Guard`], a [`WriteGuard`] or a [`Leadership`](super::Leadership).
impl<G: sealed::Single> BlockingGuard<G> {
    /// Returns the async guard, for calls that need the lock, such as [`write_under`](crate::SharedValue::write_under).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let state = client.as_async().shared_value("/app/state")?;
    /// let guard = client.mutex("/app/orders/42")?.acquire()?;
    /// client.wait(state.write_under(guard.guard(), b"shipped"))?;
    /// guard.release()?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn guard(&self) -> &crate::Guard {
        self.guard.single()
    }

    /// Returns the path of the lock.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let guard = client.mutex("/app/orders/42")?.acquire()?;
    /// assert_eq!(guard.path().as_str(), "/app/orders/42");
    /// # guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.guard.single().path()
    }

    /// Returns the token to pass to the storage that the lock protects, as
    /// [`zlock::LockContext::fencing_token`](crate::LockContext::fencing_token) does.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let mutex = client.mutex("/app/orders/42")?;
    /// let earlier = mutex.run(|lock| lock.fencing_token())?;
    /// let later = mutex.run(|lock| lock.fencing_token())?;
    /// assert!(earlier < later);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.guard.single().fencing_token()
    }

    /// Returns the name of the lock's node below its path, as [`zlock::LockContext::node`](crate::LockContext::node) does.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let guard = client.mutex("/app/orders/42")?.acquire()?;
    /// println!("{}/{}", guard.path(), guard.node());
    /// # guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn node(&self) -> NodeName {
        self.guard.single().node()
    }

    /// Returns the number of a semaphore's permits that this hold has acquired, or `None` for other locks.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// use zlock::locks::Permits;
    ///
    /// let three = Permits { n: 3, max: 10 };
    /// let template = client.lock_template("/app/workers")?.with_kind(three)?;
    /// assert_eq!(template.execute("reports", |lock| lock.permits())?, Some(3));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn permits(&self) -> Option<u32> {
        self.guard.single().permits()
    }
}

impl WriteGuard {
    /// Converts the write lock into a read lock, with no writer in between, as
    /// [`zlock::WriteGuard::downgrade`](crate::WriteGuard::downgrade) does.
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
    /// // change the prices, alone
    /// let reading = writing.downgrade()?;
    /// // read them, alongside other readers
    /// reading.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn downgrade(self) -> Result<Guard, DowngradeError> {
        if let Err(error) = may_block("downgrade") {
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
