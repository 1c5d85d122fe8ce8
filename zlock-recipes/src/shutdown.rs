//! Shutting a client down: no new locks, holders are asked to let go, and then the session ends.

use std::time::Duration;

use tokio::time::timeout;
use zlock_core::{Close, Result};

use crate::client::Client;

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
    /// From the first poll on, each acquisition fails with [`ShuttingDown`](zlock_core::ErrorKind::ShuttingDown), and so do those that wait for their
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
