//! A row with a fence, for unit tests.

use std::sync::{Mutex, MutexGuard, PoisonError};

use zlock_core::{Error, FencedStorage, FencingToken, Result};

/// A value that compares fencing tokens as a row with a fence does: it refuses a token that is lower than the highest one so far. For
/// unit tests of code that takes its storage as [`FencedStorage`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> zlock::Result<()> {
/// use zlock::mem::{FencedRow, MemServer};
/// use zlock::{Client, FencedStorage};
///
/// let (server, row) = (MemServer::new(), FencedRow::new("new"));
/// let backend = server.connect();
/// let link = backend.link();
/// let paused = Client::new(backend).mutex("/orders/42")?.acquire().await?;
/// link.expire(); // the server takes the process for dead
///
/// let next = Client::new(server.connect()).mutex("/orders/42")?.acquire().await?;
/// row.write(next.fencing_token(), "shipped").await?;
/// let late = row.write(paused.fencing_token(), "cancelled").await.unwrap_err();
/// assert!(late.is_lock_lost());
/// assert_eq!(row.value(), "shipped");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FencedRow<T>(Mutex<(FencingToken, T)>);

impl<T> FencedRow<T> {
    /// Creates a row whose fence is below every token.
    pub fn new(value: T) -> Self {
        FencedRow(Mutex::new((FencingToken::new(0), value)))
    }

    fn admit(
        &self,
        operation: &'static str,
        token: FencingToken,
    ) -> Result<MutexGuard<'_, (FencingToken, T)>> {
        let mut row = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if token < row.0 {
            return Err(Error::overtaken(operation, token));
        }
        row.0 = token;
        Ok(row)
    }
}

impl<T: Clone> FencedRow<T> {
    /// Returns the value without a token, as a test looks at it.
    pub fn value(&self) -> T {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}

impl<T: Clone + Send> FencedStorage for FencedRow<T> {
    type Value = T;
    type Error = Error;

    async fn read(&self, token: FencingToken) -> Result<T> {
        self.admit("read", token).map(|row| row.1.clone())
    }

    async fn write(&self, token: FencingToken, value: T) -> Result<()> {
        self.admit("write", token).map(|mut row| row.1 = value)
    }
}
