//! Shuts a client down: it acquires no more locks, asks holders to release theirs, and then ends the session.

use std::time::Duration;

use tokio::time::timeout;
use zlock_core::{Close, Result};

use crate::client::Client;

/// The outcome of [`Client::shutdown`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shutdown {
    /// The number of locks that were still held at the end of the grace period, and were then lost. 0 if all holders
    /// released theirs in time.
    pub still_held: usize,
    /// The outcome of [`Client::close`]: whether the store has confirmed the end of the session.
    pub close: Close,
}

impl Client {
    /// Shuts the client down: acquires no more locks, asks the holders of its locks to release them, waits for them up to
    /// `grace`, and then closes the client as [`close`](Self::close) does.
    ///
    /// From the first poll on, new acquisitions fail with [`ShuttingDown`](zlock_core::ErrorKind::ShuttingDown). So do
    /// acquisitions that are waiting for their turn; their nodes are removed. The same goes for waits at a barrier or a latch, and for
    /// members of a double barrier that wait for the others to leave. Watches end with
    /// [`Closed`](zlock_core::ErrorKind::Closed) when the client is closed. For holders,
    /// [`revocation_requested`](crate::LockContext::revocation_requested) completes at once, without a request to the store.
    /// Holders may enter their own locks again. The wait ends when the client's last guard is released or dropped, and no release
    /// is in flight. While no server answers, the end of a job's run, which is recorded with its release, may take until the session
    /// is over and for the backend's operation timeout after that. A zero `grace` does not wait.
    ///
    /// # Errors
    /// Those of [`close`](Self::close).
    ///
    /// # Cancel safety
    /// The shutdown begins with the first poll. Dropping the future does not undo that: the client acquires no more locks,
    /// but is not closed. Call this method again, or [`close`](Self::close).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
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
    ///     guard.revocation_requested().await?; // clean up, then release
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
        client.shutdown.begun.raise();
        // Fails if some locks are still held.
        let _ = timeout(grace, client.shutdown.idle(|| client.holds.lock().is_empty())).await;
        let still_held = client.live_holds();
        let close = self.close().await?;
        Ok(Shutdown { still_held, close })
    }
}
