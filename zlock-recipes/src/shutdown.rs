//! Shutting a client down: no new locks, holders are asked to let go, and then the session ends.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use zlock_core::{Close, Error, ErrorKind, LockPath, Result};

use crate::client::Client;
use crate::client_inner::ClientInner;

/// The outcome of [`Client::shutdown`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shutdown {
    /// The number of locks that were still held when the grace period was over: 0 if every holder let go in time. Their
    /// holders have lost them.
    pub still_held: usize,
    /// Whether the store has confirmed the end of the session, as [`Client::close`] returns it.
    pub close: Close,
}

impl Client {
    /// Shuts the client down: acquires no more locks, asks the holders of its locks to release them, waits up to `grace`
    /// until they have, and then closes the client as [`close`](Self::close) does.
    ///
    /// From the first poll on, each acquisition fails with [`ErrorKind::ShuttingDown`], and so do those that wait for their
    /// turn; their nodes are removed. Holders are asked by [`Guard::revocation_requested`](crate::Guard::revocation_requested),
    /// which completes at once, without a request to the store. A holder may enter its own lock again. The wait is over when
    /// the client's last guard is dropped or released. A zero `grace` does not wait.
    ///
    /// # Errors
    /// Those of [`close`](Self::close).
    ///
    /// # Cancel safety
    /// The shutdown begins with the first poll, and dropping the future does not take it back: the client acquires no more
    /// locks. It is then not closed; call this again, or [`close`](Self::close).
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use std::time::Duration;
    ///
    /// use zlock::ErrorKind;
    ///
    /// let mutex = client.mutex("/app/orders/42")?;
    /// let guard = mutex.acquire().await?;
    /// let holder = tokio::spawn(async move {
    ///     guard.revocation_requested().await?; // tidy up, then let go
    ///     guard.release().await
    /// });
    /// let outcome = client.shutdown(Duration::from_secs(10)).await?;
    /// assert_eq!(outcome.still_held, 0);
    /// assert_eq!(mutex.acquire().await.unwrap_err().kind(), ErrorKind::ShuttingDown);
    /// # holder.await.unwrap()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn shutdown(&self, grace: Duration) -> Result<Shutdown> {
        let client = self.inner();
        client.shutdown.begin();
        // An error if some are held still.
        let _ = timeout(grace, client.nothing_held()).await;
        let still_held = client.live_holds();
        let close = self.close().await?;
        Ok(Shutdown { still_held, close })
    }
}

/// Whether the client is shutting down, and what it waits for then.
#[derive(Debug, Default)]
pub(crate) struct ShutdownState {
    begun: AtomicBool,
    releasing: AtomicUsize,
    /// Notified once, at the beginning.
    begins: Notify,
    /// Notified when a hold or a release ends.
    ended: Notify,
}

impl ShutdownState {
    fn begin(&self) {
        self.begun.store(true, Ordering::SeqCst);
        self.begins.notify_waiters();
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// Waits until the client is shutting down.
    pub(crate) async fn begun(&self) {
        let mut begins = pin!(self.begins.notified());
        begins.as_mut().enable();
        if !self.has_begun() {
            begins.await;
        }
    }

    /// A hold has ended.
    pub(crate) fn hold_ended(&self) {
        if self.has_begun() {
            self.ended.notify_waiters();
        }
    }

    /// Counts a release that is about to be sent, until what is returned is dropped.
    pub(crate) fn release(&self) -> Releasing<'_> {
        self.releasing.fetch_add(1, Ordering::SeqCst);
        Releasing(self)
    }
}

/// A release under way.
pub(crate) struct Releasing<'a>(&'a ShutdownState);

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        self.0.releasing.fetch_sub(1, Ordering::SeqCst);
        self.0.hold_ended();
    }
}

impl ClientInner {
    /// Runs an acquisition, unless the client is shut down before the lock is granted.
    pub(crate) async fn unless_shut_down<T>(
        &self,
        path: &LockPath,
        acquisition: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let refused = || Error::new(ErrorKind::ShuttingDown, "acquire").with_path(path);
        tokio::select! {
            biased;
            () = self.shutdown.begun() => Err(refused()),
            acquired = acquisition => {
                // A grant counts as a hold by now: either the shutdown waits for it, or it is given back here.
                if self.shutdown.has_begun() { Err(refused()) } else { acquired }
            }
        }
    }

    /// Waits until the client has no guard, and no release under way.
    async fn nothing_held(&self) {
        loop {
            let mut ended = pin!(self.shutdown.ended.notified());
            ended.as_mut().enable();
            if !self.has_holds() && self.shutdown.releasing.load(Ordering::SeqCst) == 0 {
                return;
            }
            ended.await;
        }
    }
}
