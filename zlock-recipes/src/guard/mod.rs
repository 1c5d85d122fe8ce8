//! Guards of held locks.

pub(crate) mod context;
pub(crate) mod scope;
pub(crate) mod write;

use std::fmt::Debug;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

use tracing::Instrument as _;
use zlock_core::{CoordinationBackend, Error, LockPath, Result, Version};

use crate::client::hold_record::Entry;
use crate::guard::context::LockContext;
use crate::guard::scope::Scope;
use crate::hold::{Hold, REENTER, Remaining};
use crate::release::{Release, relabel, release, release_with_write};

/// A held lock. The lock is released when the last guard of the hold is dropped. Derefs to [`LockContext`], which has the
/// methods that look at the lock.
///
/// # Safety of the lock
/// [`is_held`](LockContext::is_held) and [`lost`](LockContext::lost) report every loss before the store gives the lock to another
/// client. That relies on clocks that run at about the same speed, a machine that does not sleep, and a store that keeps
/// the session for its whole timeout. The exception is an operator who deletes the node or ends the session at the server.
/// Then two clients believe that they hold the lock, until this one learns of it by a heartbeat or when it reconnects. On
/// ZooKeeper, every sixth heartbeat looks for the session's nodes, so the client learns of it within about half a session timeout.
/// With more than 1,000 nodes, it looks for each less often. No lock service can prevent that. Storage that checks the [`fencing_token`](LockContext::fencing_token) is
/// protected even then.
///
/// # Drop
/// Dropping the last guard does not release at once: it hands the node to the backend's task, which removes it on the
/// runtime that the backend lives on. The drop does not block, and works outside a runtime and while unwinding. Use
/// [`release`](Guard::release) to know when it is done.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// use zlock::Release;
///
/// let guard = client.mutex("/app/orders/42")?.acquire().await?;
/// tokio::select! {
///     biased;
///     lost = guard.lost() => return Err(lost),
///     () = async { /* work; look at `guard.is_held()` before each step that matters */ } => {}
/// }
/// assert_eq!(guard.release().await?, Release::Released);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a guard that is dropped releases the lock"]
pub struct Guard {
    hold: Arc<Hold>,
    context: LockContext,
    /// `true` once `release` has taken over the entry.
    released: bool,
}

impl Guard {
    /// Creates the guard of a new entry.
    pub(crate) fn new(hold: Arc<Hold>, entry: Entry) -> Self {
        let context = LockContext::new(&hold, entry);
        Guard { hold, context, released: false }
    }

    /// Creates the guard of another entry in an existing hold. Returns an error if the hold is lost.
    pub(crate) fn reentered(hold: Arc<Hold>, entry: Entry) -> Result<Self> {
        let bad = hold.ended_by().map(|_| hold.loss(REENTER));
        let guard = Guard::new(hold, entry);
        bad.map_or(Ok(guard), Err)
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// Records that the writer's guard has become a reader's.
    pub(crate) fn become_reader(&mut self) {
        self.context = LockContext::new(&self.hold, Entry::Reader);
    }

    /// Releases the lock and waits until the server has done so. With a [`Handoff`](crate::Handoff), a lock that other
    /// users of the client wait for is passed on instead, without a request.
    ///
    /// Returns [`Release::Pending`] at once if the connection is interrupted, and after the client's response timeout if the
    /// store does not answer. The release then continues in the background.
    ///
    /// # Errors
    /// [`NotAuthorized`](zlock_core::ErrorKind::NotAuthorized) or [`Unexpected`](zlock_core::ErrorKind::Unexpected) if the
    /// server refused to remove the node. The client keeps trying in the background.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the rest to the background.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use zlock::Release;
    ///
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// match guard.release().await? {
    ///     Release::Released => {} // the lock is free
    ///     other => eprintln!("not free yet: {other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(mut self) -> Result<Release> {
        self.released = true;
        let hold = self.hold.clone();
        let _releasing = hold.client().shutdown.release();
        match self.hold.leave(self.context.entry()) {
            Remaining::Nobody => return release(&self.hold).await,
            // The result is dropped, because the remaining guards report a lost lock.
            Remaining::Readers => drop(relabel(&self.hold).await),
            Remaining::Others => {}
        }
        Ok(Release::StillHeld)
    }

    /// Runs a future inside the lock's [scope](Guard::scope), and cancels it at its current await point if the lock is
    /// lost. The lock stays held.
    ///
    /// # Errors
    /// The loss of the lock, as [`lost`](LockContext::lost) reports it. A future that blocks its thread past the loss runs to
    /// completion. The error is returned nevertheless, because the lock may have had another holder during its last steps.
    ///
    /// # Cancel safety
    /// As cancel safe as the future. Dropping it does not release the lock.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    /// let number = guard.run(async { 42 }).await?;
    /// guard.release().await?;
    /// # assert_eq!(number, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output> {
        self.run_boxed(Box::pin(future)).await
    }

    /// Runs a future inside the lock's scope: acquiring this lock there enters it again instead of waiting.
    /// See [`Scope`].
    ///
    /// # Cancel safety
    /// As cancel safe as the future. Dropping it does not release the lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let mutex = client.mutex("/app/orders/42")?;
    /// let guard = mutex.acquire().await?;
    /// guard
    ///     .scope(async {
    ///         let inner = mutex.acquire().await?; // at once, without a request
    ///         inner.release().await
    ///     })
    ///     .await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        self.scope_boxed(Box::pin(future)).await
    }

    /// Returns another guard of the same hold. The lock is released when all of them are dropped or released. Performs no
    /// I/O.
    ///
    /// # Errors
    /// The loss of the lock, as [`lost`](LockContext::lost) returns it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use zlock::Release;
    ///
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// let other = guard.reenter()?;
    /// assert_eq!(guard.release().await?, Release::StillHeld);
    /// assert_eq!(other.release().await?, Release::Released);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reenter(&self) -> Result<Guard> {
        let entry = self.context.entry();
        self.hold.enter_again(entry);
        Guard::reentered(self.hold.clone(), entry)
    }

    /// Returns a view of the lock that cannot release it, and that may outlive this guard.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// let context = guard.context(); // for code that must not release the lock
    /// assert!(context.is_held());
    /// guard.release().await?;
    /// assert!(!context.is_held());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn context(&self) -> LockContext {
        self.context.clone()
    }

    /// Does the same for a future that is on the heap.
    ///
    /// Each async function that passes a user's future on stores it once more. So it is boxed where it comes in: otherwise each
    /// nested lock would multiply the size.
    pub(crate) async fn run_boxed<F: Future>(&self, future: Pin<Box<F>>) -> Result<F::Output> {
        run_until_lost(self.scope_boxed(future), || self.lost(), || self.is_held()).await
    }

    /// Does the same for a future that is on the heap.
    pub(crate) async fn scope_boxed<F: Future>(&self, future: Pin<Box<F>>) -> F::Output {
        // Read when the future runs, not when it is created: in `x.scope(y.scope(f))`, the inner future is created first.
        Scope::current().and(&self.hold).scope(future).instrument(self.hold.span()).await
    }

    /// Writes a value under the lock, and releases the lock in the same transaction. If other guards of the hold exist, the lock
    /// stays held. While the session lives, a write without an answer is repeated. If the write fails, the background releases the
    /// lock.
    ///
    /// # Errors
    /// The loss of the lock, also if another client has written the value; those of [`write_value`](zlock_core::Values::write_value).
    pub(crate) async fn release_with_write(
        mut self,
        values: &dyn CoordinationBackend,
        value: &LockPath,
        expected: Version,
        data: &[u8],
    ) -> Result<()> {
        self.released = true;
        let hold = self.hold.clone();
        let _releasing = hold.client().shutdown.release();
        let is_last = self.hold.leave(self.context.entry()) == Remaining::Nobody;
        release_with_write(&self.hold, is_last, (values, value), expected, data).await
    }

    /// Releases the lock for a caller that does not need the outcome.
    pub(crate) async fn release_or_log(self) {
        let path = self.path().clone();
        match self.release().await {
            Ok(Release::Pending) => tracing::warn!(%path, "the release continues in the background"),
            Ok(release) => tracing::trace!(%path, ?release, "released"),
            Err(error) => tracing::warn!(%path, %error, "the release continues in the background"),
        }
    }
}

/// Runs the future until it completes or the lock is lost.
pub(crate) async fn run_until_lost<T, L: Future<Output = Error>>(
    future: impl Future<Output = T>,
    lost: impl Fn() -> L,
    is_held: impl Fn() -> bool,
) -> Result<T> {
    let output = tokio::select! {
        biased;
        loss = lost() => return Err(loss),
        output = future => output,
    };
    // A future that blocks its thread past the deadline is completed by the same poll.
    if is_held() { Ok(output) } else { Err(lost().await) }
}

/// A guard of any lock, for code that is generic over locks. Each method is equivalent to that of [`Guard`] (and of the
/// [`LockContext`] that it derefs to) or [`MultiGuard`](crate::MultiGuard). This trait is sealed.
pub trait LockGuard: sealed::Sealed + Debug + Send + Sync + Sized + 'static {
    /// Returns the guards that this one consists of: itself, or those of a [`MultiGuard`](crate::MultiGuard) in the
    /// order of their paths. Each has its own fencing token.
    fn guards(&self) -> &[Guard];

    /// See [`LockContext::is_held`].
    fn is_held(&self) -> bool;

    /// See [`LockContext::check`].
    ///
    /// # Errors
    /// Those of [`LockContext::check`].
    fn check(&self) -> Result<()> {
        self.guards().iter().try_for_each(|guard| guard.context.check())
    }

    /// See [`LockContext::lost`].
    fn lost(&self) -> impl Future<Output = Error> + Send;

    /// See [`LockContext::revocation_requested`].
    fn revocation_requested(&self) -> impl Future<Output = Result<()>> + Send;

    /// See [`Guard::reenter`].
    ///
    /// # Errors
    /// Those of [`Guard::reenter`].
    fn reenter(&self) -> Result<Self>;

    /// See [`Guard::run`].
    fn run<F: Future + Send>(&self, future: F) -> impl Future<Output = Result<F::Output>> + Send
    where
        F::Output: Send;

    /// See [`Guard::scope`].
    fn scope<F: Future + Send>(&self, future: F) -> impl Future<Output = F::Output> + Send;

    /// See [`Guard::release`].
    fn release(self) -> impl Future<Output = Result<Release>> + Send;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// Implements [`LockGuard`] with the methods of the same names: the guard's own, and those of what it derefs to, which runs
/// code inside the lock and looks at it.
macro_rules! lock_guard {
    ($guard:ty, |$this:ident| guards: $guards:expr, runs: $runs:expr, looks: $looks:expr, $release:ident) => {
        impl crate::guard::sealed::Sealed for $guard {}

        impl crate::guard::LockGuard for $guard {
            fn guards(&self) -> &[crate::guard::Guard] {
                let $this = self;
                $guards
            }

            fn is_held(&self) -> bool {
                let $this = self;
                $looks.is_held()
            }

            fn lost(&self) -> impl Future<Output = Error> + Send {
                let $this = self;
                $looks.lost()
            }

            fn revocation_requested(&self) -> impl Future<Output = Result<()>> + Send {
                let $this = self;
                $looks.revocation_requested()
            }

            fn reenter(&self) -> Result<Self> {
                <$guard>::reenter(self)
            }

            fn run<F: Future + Send>(&self, future: F) -> impl Future<Output = Result<F::Output>> + Send
            where
                F::Output: Send,
            {
                let $this = self;
                $runs.run(future)
            }

            fn scope<F: Future + Send>(&self, future: F) -> impl Future<Output = F::Output> + Send {
                let $this = self;
                $runs.scope(future)
            }

            fn release(self) -> impl Future<Output = Result<Release>> + Send {
                <$guard>::$release(self)
            }
        }
    };
}

pub(crate) use lock_guard;

lock_guard!(Guard, |guard| guards: std::slice::from_ref(guard), runs: guard, looks: guard.context, release);

impl Deref for Guard {
    type Target = LockContext;

    fn deref(&self) -> &LockContext {
        &self.context
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        match self.hold.leave(self.context.entry()) {
            Remaining::Nobody => self.hold.remove_in_background(),
            Remaining::Readers => self.hold.relabel_in_background(),
            Remaining::Others => {}
        }
    }
}
