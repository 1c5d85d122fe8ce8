//! The loop of attempts at one operation.

/// Makes attempts at an operation, each in the session that is connected then, until one succeeds or the operation's
/// [`Budget`](crate::kit::Budget) is used up. Evaluates to the result of the operation.
///
/// `repeat!(budget, |session| attempt)` belongs in an `async fn`. It waits for the session of `budget`, binds its
/// [key](crate::kit::SessionKey) to `session`, and awaits `attempt`, a future of a `Result` whose error is a
/// [`Failure`](crate::kit::Failure). The expression is evaluated again for each attempt. So what the operation knows between
/// its attempts is in variables around it. An attempt may use the budget.
///
/// # Errors
/// Those of [`Budget::session`](crate::kit::Budget::session) and [`Budget::retry`](crate::kit::Budget::retry).
///
/// # Cancel safety
/// As safe as the attempts.
///
/// # Panics
/// Panics outside a tokio runtime with time enabled, if it has to wait.
#[doc(hidden)]
#[macro_export]
macro_rules! __repeat {
    ($budget:expr, |$session:ident| $attempt:expr) => {
        loop {
            let $session = match $budget.session().await {
                Ok(session) => session,
                Err(error) => break Err(error),
            };
            let attempted = $attempt.await;
            match attempted {
                Ok(result) => break $budget.finish(Ok(result)),
                Err(failure) => {
                    if let Err(error) = $budget.retry(failure).await {
                        break Err(error);
                    }
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use crate::error::ErrorKind;
    use crate::kit::{Budget, Interrupted, Options, SessionKey, Sessions, repeat};
    use crate::nodes::path::LockPath;
    use crate::session::SessionId;

    /// Ends with the sessions of its attempts, once each of these has failed.
    async fn attempt(
        sessions: &mut Vec<u64>,
        session: SessionKey,
        failures: &[Interrupted],
    ) -> Result<Vec<u64>, Interrupted> {
        sessions.push(session.id.get());
        failures.get(sessions.len() - 1).map_or(Ok(sessions.clone()), |failure| Err(*failure))
    }

    fn begin(sessions: &Sessions<()>, id: u64) -> SessionKey {
        let deadline = Instant::now() + Duration::from_secs(60);
        sessions.begin(SessionId::new(id), deadline, |_| ()).unwrap().0
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_follow_after_a_pause_until_one_succeeds() {
        let (sessions, path) = (Sessions::new("refused"), LockPath::new("/app").unwrap());
        begin(&sessions, 7);
        let (options, mut made) = (Options::new(["one"]), Vec::new());
        let mut budget = Budget::new(&sessions, &options, "read", &path);
        let began = Instant::now();
        let result = repeat!(budget, |session| attempt(&mut made, session, &[Interrupted::Disconnected]));
        assert_eq!(result.unwrap(), [7, 7]);
        assert!(began.elapsed() > Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn no_attempt_is_made_for_a_node_of_a_past_session() {
        let (sessions, path) = (Sessions::new("refused"), LockPath::new("/app").unwrap());
        let first = begin(&sessions, 7);
        sessions.end(first);
        let (options, mut made) = (Options::new(["one"]), Vec::new());
        // Neither does it wait for the next session.
        let mut budget = Budget::new(&sessions, &options, "delete", &path).of_node(Some(first.id));
        let error = repeat!(budget, |session| attempt(&mut made, session, &[])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SessionLost);
        assert!(made.is_empty());
        let second = begin(&sessions, 8);
        let mut budget = Budget::new(&sessions, &options, "delete", &path).of_node(Some(second.id));
        assert_eq!(repeat!(budget, |session| attempt(&mut made, session, &[])).unwrap(), [8]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_that_is_not_retried_is_the_result() {
        let (sessions, path) = (Sessions::new("refused"), LockPath::new("/app").unwrap());
        begin(&sessions, 7);
        let (options, mut made) = (Options::new(["one"]), Vec::new());
        let mut budget = Budget::new(&sessions, &options, "read", &path);
        let result = repeat!(budget, |session| attempt(&mut made, session, &[Interrupted::Closed]));
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(made, [7]);
    }
}
