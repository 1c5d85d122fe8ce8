//! The guard of several locks.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use tracing::{Instrument as _, Span};
use zlock_core::{Error, Result};

use crate::guard::scope::Scope;
use crate::guard::{Guard, lock_guard, run_until_lost};
use crate::release::Release;

/// The guard of several held locks. Dropping it releases all of them, as dropping their [`Guard`]s does.
#[derive(Debug)]
#[must_use = "a guard that is dropped releases the locks"]
pub struct MultiGuard {
    /// In the order of acquisition.
    guards: Vec<Guard>,
}

impl MultiGuard {
    pub(crate) fn new(guards: Vec<Guard>) -> Self {
        MultiGuard { guards }
    }

    /// Returns the guards of the locks, in the order of their paths. Each has its own fencing token.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let (one, two) = (client.mutex("/app/accounts/1")?, client.mutex("/app/accounts/2")?);
    /// let both = zlock::MultiLock::new([&two, &one])?;
    /// let guard = both.acquire().await?;
    /// for guard in guard.guards() {
    ///     println!("{}: token {}", guard.path(), guard.fencing_token());
    /// }
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Returns `true` if all the locks are certainly still held. Performs no I/O.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let (one, two) = (client.mutex("/app/accounts/1")?, client.mutex("/app/accounts/2")?);
    /// let both = zlock::MultiLock::new([&two, &one])?;
    /// let guard = both.acquire().await?;
    /// assert!(guard.is_held());
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(|guard| guard.is_held())
    }

    /// Waits until the first of the locks is lost, and returns why. The error's path names the lock. The other locks
    /// are still held.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// # use zlock::MultiLock;
    /// # let both = MultiLock::new([client.mutex("/app/a")?, client.mutex("/app/b")?])?;
    /// let guard = both.acquire().await?;
    /// tokio::select! {
    ///     biased;
    ///     lost = guard.lost() => return Err(lost),
    ///     () = async { /* work */ } => {}
    /// }
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost(&self) -> Error {
        first_loss(&self.guards).await
    }

    /// Waits until another client requests revocation of any of the locks, as [`LockContext::revocation_requested`](crate::LockContext::revocation_requested).
    ///
    /// # Errors
    /// The first error of [`LockContext::revocation_requested`](crate::LockContext::revocation_requested) of any lock.
    ///
    /// # Cancel safety
    /// Safe: dropping the future removes the watches.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// # use zlock::MultiLock;
    /// # let both = MultiLock::new([client.mutex("/app/a")?, client.mutex("/app/b")?])?;
    /// let guard = both.acquire().await?;
    /// assert_eq!(both.request_revocation().await?, 2); // elsewhere
    /// guard.revocation_requested().await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn revocation_requested(&self) -> Result<()> {
        first(self.guards.iter().map(|guard| guard.revocation_requested())).await
    }

    /// Returns another guard of the same holds. The locks are released when all of them are dropped or released. Performs
    /// no I/O.
    ///
    /// # Errors
    /// Those of [`Guard::reenter`], if one of the locks is lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use zlock::Release;
    ///
    /// # use zlock::MultiLock;
    /// # let both = MultiLock::new([client.mutex("/app/a")?, client.mutex("/app/b")?])?;
    /// let guard = both.acquire().await?;
    /// let other = guard.reenter()?;
    /// assert_eq!(guard.release().await?, Release::StillHeld);
    /// assert_eq!(other.release().await?, Release::Released);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reenter(&self) -> Result<MultiGuard> {
        let guards = self.guards.iter().map(Guard::reenter).collect::<Result<_>>()?;
        Ok(MultiGuard { guards })
    }

    pub(crate) fn into_guards(self) -> Vec<Guard> {
        self.guards
    }

    /// Runs a future inside the scope of all the locks, and cancels it at its current await point if one of them is lost, as
    /// [`Guard::run`].
    ///
    /// # Errors
    /// The loss of the first lock that is lost.
    ///
    /// # Cancel safety
    /// As cancel safe as the future. Dropping it does not release the locks.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// # use zlock::MultiLock;
    /// # let both = MultiLock::new([client.mutex("/app/a")?, client.mutex("/app/b")?])?;
    /// let guard = both.acquire().await?;
    /// let number = guard.run(async { 42 }).await?;
    /// # assert_eq!(number, 42);
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output> {
        self.run_boxed(Box::pin(future)).await
    }

    /// Does the same for a future that is on the heap, as [`Guard::run_boxed`].
    pub(crate) async fn run_boxed<F: Future>(&self, future: Pin<Box<F>>) -> Result<F::Output> {
        run_until_lost(self.scope_boxed(future), || self.lost(), || self.is_held()).await
    }

    /// Runs a future inside the scope of all the locks, as [`Guard::scope`].
    ///
    /// # Cancel safety
    /// As cancel safe as the future. Dropping it does not release the locks.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// # use zlock::MultiLock;
    /// # let both = MultiLock::new([client.mutex("/app/a")?, client.mutex("/app/b")?])?;
    /// let guard = both.acquire().await?;
    /// guard
    ///     .scope(async {
    ///         let inner = client.mutex("/app/a")?.acquire().await?; // at once, without a request
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

    async fn scope_boxed<F: Future>(&self, future: Pin<Box<F>>) -> F::Output {
        let within = |scope: Scope, guard: &Guard| scope.and(guard.hold());
        let span = self.guards.last().map_or(Span::none(), |guard| guard.hold().span());
        self.guards.iter().fold(Scope::current(), within).scope(future).instrument(span).await
    }

    /// Releases all the locks, in the reverse order of acquisition, and waits until their stores have done so. A release that
    /// fails does not prevent the others. Returns [`Released`](Release::Released) if all locks are free, and otherwise the
    /// first outcome that differs from it, in the order of the releases.
    ///
    /// # Errors
    /// The first error of any release, as [`Guard::release`]. Its path names the lock.
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
    /// let (one, two) = (client.mutex("/app/accounts/1")?, client.mutex("/app/accounts/2")?);
    /// let both = zlock::MultiLock::new([&two, &one])?;
    /// let guard = both.acquire().await?;
    /// assert_eq!(guard.release().await?, Release::Released);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(mut self) -> Result<Release> {
        let mut result = Ok(Release::Released);
        while let Some(guard) = self.guards.pop() {
            let released = guard.release().await;
            if matches!(result, Ok(Release::Released)) || (result.is_ok() && released.is_err()) {
                result = released;
            }
        }
        result
    }
}

lock_guard!(MultiGuard, |guard| guards: &guard.guards, runs: guard, looks: guard, release);

/// Waits until one of these locks is lost, and returns the loss.
pub(crate) async fn first_loss(guards: &[Guard]) -> Error {
    first(guards.iter().map(|guard| guard.lost())).await
}

/// Returns the output of the first future that completes. If several complete at once, the first of them in their order
/// counts.
async fn first<F: Future>(futures: impl Iterator<Item = F>) -> F::Output {
    let mut futures: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    poll_fn(move |cx| {
        let done = futures.iter_mut().find_map(|future| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        });
        done.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
