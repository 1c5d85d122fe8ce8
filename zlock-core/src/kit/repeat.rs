//! The loop of attempts at one operation.

use std::future::{Future, ready};
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

    /// Removes what the attempts have left, once the operation has failed. Does nothing by default. Not called if the operation's
    /// future is dropped: what must be removed even then is left to the caller.
    fn clean_up(&mut self, operation: &mut O) -> impl Future<Output = ()> + Send {
        let _ = operation;
        ready(())
    }
}

/// Makes attempts at an operation, each in the session that is connected then, until one has the result or the operation's
/// [`Budget`] is used up. [Cleans up](Attempt::clean_up) before it fails.
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
    let error = loop {
        let session = match operation.as_mut().session().await {
            Ok(session) => session,
            Err(error) => break error,
        };
        match attempt.attempt(operation, session).await {
            Ok(ControlFlow::Break(result)) => return Ok(result),
            Ok(ControlFlow::Continue(())) => {}
            Err(failure) => {
                if let Err(error) = operation.as_mut().retry(failure).await {
                    break error;
                }
            }
        }
    };
    attempt.clean_up(operation).await;
    Err(error)
}

impl<T> AsMut<Self> for Budget<'_, T> {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::error::ErrorKind;
    use crate::kit::{Interrupted, Options, Sessions};
    use crate::nodes::path::LockPath;
    use crate::session::SessionId;

    /// Ends with the sessions of its attempts.
    #[derive(Default)]
    struct Outcomes {
        sessions: Vec<u64>,
        cleaned_up: bool,
        outcomes: Vec<Result<ControlFlow<()>, Interrupted>>,
    }

    impl<'a> Attempt<Budget<'a, ()>, Interrupted> for Outcomes {
        type Output = Vec<u64>;

        async fn attempt(
            &mut self,
            _: &mut Budget<'a, ()>,
            session: SessionKey,
        ) -> Result<ControlFlow<Vec<u64>>, Interrupted> {
            self.sessions.push(session.id.get());
            match self.outcomes.remove(0)? {
                ControlFlow::Continue(()) => Ok(ControlFlow::Continue(())),
                ControlFlow::Break(()) => Ok(ControlFlow::Break(std::mem::take(&mut self.sessions))),
            }
        }

        async fn clean_up(&mut self, _: &mut Budget<'a, ()>) {
            self.cleaned_up = true;
        }
    }

    fn begin(sessions: &Sessions<()>, id: u64) -> SessionKey {
        let deadline = Instant::now() + Duration::from_secs(60);
        sessions.begin(SessionId::new(id), deadline, |_| ()).unwrap().0
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_follow_at_once_or_after_a_pause_until_one_has_the_result() {
        let (sessions, path) = (Sessions::new("refused"), LockPath::new("/app").unwrap());
        begin(&sessions, 7);
        let options = Options::new(["one"]);
        let mut budget = Budget::new(&sessions, &options, "read", &path);
        let outcomes =
            vec![Ok(ControlFlow::Continue(())), Err(Interrupted::Disconnected), Ok(ControlFlow::Break(()))];
        let began = Instant::now();
        let mut attempts = Outcomes { outcomes, ..Outcomes::default() };
        assert_eq!(repeat(&mut budget, &mut attempts).await.unwrap(), [7, 7, 7]);
        assert!(!attempts.cleaned_up);
        assert!(began.elapsed() > Duration::ZERO, "the second one has failed");
    }

    #[tokio::test(start_paused = true)]
    async fn no_attempt_is_made_for_a_node_of_a_past_session() {
        let (sessions, path) = (Sessions::new("refused"), LockPath::new("/app").unwrap());
        let first = begin(&sessions, 7);
        sessions.end(first);
        let options = Options::new(["one"]);
        let mut attempts = Outcomes::default();
        // Neither does it wait for the next session.
        let mut budget = Budget::new(&sessions, &options, "delete", &path).of_node(Some(first.id));
        let error = repeat(&mut budget, &mut attempts).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SessionLost);
        assert!(attempts.sessions.is_empty());
        let second = begin(&sessions, 8);
        attempts.outcomes.push(Ok(ControlFlow::Break(())));
        let mut budget = Budget::new(&sessions, &options, "delete", &path).of_node(Some(second.id));
        assert_eq!(repeat(&mut budget, &mut attempts).await.unwrap(), [8]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_operation_that_fails_cleans_up() {
        let (sessions, path) = (Sessions::new("refused"), LockPath::new("/app").unwrap());
        begin(&sessions, 7);
        let options = Options::new(["one"]);
        let outcomes = vec![Ok(ControlFlow::Continue(())), Err(Interrupted::Closed)];
        let mut attempts = Outcomes { outcomes, ..Outcomes::default() };
        let error = repeat(&mut Budget::new(&sessions, &options, "read", &path), &mut attempts).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Closed);
        assert!(attempts.cleaned_up);
    }
}
