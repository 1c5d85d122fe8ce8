//! The loop of attempts at one operation.

use std::future::Future;
use std::ops::ControlFlow;

use super::budget::Budget;
use super::failure::Failure;
use super::sessions::SessionKey;
use crate::error::Result;

/// An operation, as the attempts at it. `O` is what all operations of a backend have, such as their [`Budget`], and `F` the
/// reason why an attempt fails. The implementing type is what one operation knows between its attempts.
pub trait Attempt<O, F> {
    /// The result of the operation.
    type Output;

    /// Makes an attempt in this session. Returns `Break` with the result of the operation, or `Continue` if the next attempt
    /// may follow at once and does not count as a retry.
    fn attempt(
        &mut self,
        operation: &mut O,
        session: SessionKey,
    ) -> impl Future<Output = Result<ControlFlow<Self::Output>, F>> + Send;
}

/// Makes attempts at an operation, each in the session that is connected then, until one has the result or the operation's
/// [`Budget`] is used up.
///
/// # Errors
/// Those of [`Budget::session`] and [`Budget::retry`].
///
/// # Cancel safety
/// As safe as the attempts.
///
/// # Panics
/// Panics outside a tokio runtime with time enabled, if it has to wait.
pub async fn repeat<'a, O, T, F, A>(operation: &mut O, attempt: &mut A) -> Result<A::Output>
where
    O: AsMut<Budget<'a, T>>,
    T: 'a,
    F: Failure,
    A: Attempt<O, F>,
{
    loop {
        let session = operation.as_mut().session().await?;
        match attempt.attempt(operation, session).await {
            Ok(ControlFlow::Break(result)) => return Ok(result),
            Ok(ControlFlow::Continue(())) => {}
            Err(failure) => operation.as_mut().retry(failure).await?,
        }
    }
}

impl<T> AsMut<Self> for Budget<'_, T> {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}
