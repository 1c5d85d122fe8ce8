//! Storage that compares fencing tokens.

use std::future::Future;

use crate::{Error, ErrorKind, FencingToken};

/// Data that a lock protects, in storage that refuses a holder once a later one has been here.
///
/// Code that works under a lock takes its storage by this trait, so that a unit test can pass it one without a server, such as
/// `zlock::mem::FencedRow`. The implementation for a database has the statements of the guide's chapter on fencing.
///
/// # Examples
/// ```
/// use zlock::{Client, FencedStorage, Result};
///
/// async fn next<S>(client: &Client, number: &S) -> Result<u32, S::Error>
/// where
///     S: FencedStorage<Value = u32>,
/// {
///     let guard = client.mutex("/app/number")?.acquire().await?;
///     let next = number.read(guard.fencing_token()).await? + 1;
///     number.write(guard.fencing_token(), next).await?;
///     guard.release().await?;
///     Ok(next)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// let number = zlock::mem::FencedRow::new(41);
/// assert_eq!(next(&client, &number).await?, 42);
/// # Ok(())
/// # }
/// ```
pub trait FencedStorage: Send + Sync {
    /// What is stored.
    type Value;
    /// The error of the storage.
    type Error: From<Error>;

    /// Reads under the lock. From then on, the storage refuses lower tokens, so that what was read does not change before it is
    /// written.
    ///
    /// # Errors
    /// [`Error::overtaken`] if a later holder has read or written; those of the storage.
    fn read(&self, token: FencingToken) -> impl Future<Output = Result<Self::Value, Self::Error>> + Send;

    /// Writes under the lock.
    ///
    /// # Errors
    /// [`Error::overtaken`] if a later holder has read or written, and nothing has changed; those of the storage.
    fn write(
        &self,
        token: FencingToken,
        value: Self::Value,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

impl Error {
    /// The error of a holder whose token is refused, because a later holder has been here. The lock was lost, so
    /// [`is_lock_lost`](Error::is_lock_lost) is `true`.
    ///
    /// # Examples
    /// ```
    /// let error = zlock::Error::overtaken("write", zlock::FencingToken::new(7));
    /// assert!(error.is_lock_lost());
    /// ```
    #[must_use]
    pub fn overtaken(operation: &'static str, token: FencingToken) -> Self {
        let message = format!("a later holder of the lock has been here, so the token {token} is refused");
        Error::new(ErrorKind::SessionLost, operation).with_message(message)
    }
}
