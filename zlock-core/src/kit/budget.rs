//! The time and the retries of one operation.

use std::fmt;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing::Span;

use super::failure::{Failure, Interrupted};
use super::options::Options;
use super::sessions::{SessionKey, Sessions};
use crate::contract::backend::MAX_DATA;
use crate::error::excerpt::Excerpt;
use crate::error::failure::LastFailure;
use crate::error::{Error, ErrorKind, Result};
use crate::nodes::node_id::NodeId;
use crate::nodes::path::LockPath;
use crate::observer::RequestOutcome;
use crate::retry::Retry;
use crate::session::SessionId;

/// The budget of time and retries that all requests of one operation share, and the errors that end the operation.
///
/// An operation of a backend asks for a [session](Self::session), and sends its requests in that session with the
/// [deadline](Self::deadline) as their limit. It passes each failure to [`retry`](Self::retry), which either returns for
/// the next attempt or returns the error to end with. [`repeat!`](super::repeat) is that loop:
///
/// ```
/// # use std::time::Duration;
/// # use zlock_core::kit::{Budget, Interrupted, Options, SessionKey, Sessions, repeat};
/// # use zlock_core::{LockPath, Result, SessionId};
/// # struct Connection;
/// # impl Connection {
/// #     async fn read(&self, _: &LockPath) -> Result<String, Interrupted> { Ok("data".into()) }
/// # }
/// async fn read(sessions: &Sessions<Connection>, options: &Options, path: &LockPath) -> Result<String> {
///     let mut budget = Budget::new(sessions, options, "read", path);
///     repeat!(budget, |session| read_once(sessions, &budget, session))
/// }
///
/// async fn read_once(
///     sessions: &Sessions<Connection>,
///     budget: &Budget<'_, Connection>,
///     session: SessionKey,
/// ) -> Result<String, Interrupted> {
///     let connection = sessions.get(session).ok_or_else(|| sessions.interrupted())?;
///     let read = connection.read(budget.path());
///     sessions.run_until_ended(session, budget.deadline(), read).await?
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let sessions = Sessions::new("refused");
/// # sessions.begin(SessionId::new(1), tokio::time::Instant::now() + Duration::from_secs(9), |_| Connection);
/// # assert_eq!(read(&sessions, &Options::new(["host"]), &LockPath::new("/app")?).await?, "data");
/// # Ok(())
/// # }
/// ```
///
/// Failures that are retried or waited out are reported to [`LastFailure`], so that a caller that times out learns the
/// cause. When the budget is dropped, the operation is reported to the session's observer, with the last outcome that was passed to
/// [`finish`](Self::finish), or the last error with which the budget ended it. Without one, it was cancelled. The budget is also the
/// trace span `request`, in which each retry is an event.
pub struct Budget<'a, T> {
    sessions: &'a Sessions<T>,
    options: &'a Options,
    operation: &'static str,
    path: &'a LockPath,
    deadline: Instant,
    retry: Retry,
    /// The last failure that was retried.
    retried: Option<Error>,
    /// The session that owned the operation's node, if the operation is pointless after it.
    owner: Option<SessionId>,
    /// `true` if a write of the operation may have taken effect without a response. The errors of the operation are then
    /// [ambiguous](Error::is_ambiguous).
    pub ambiguous: bool,
    began: Instant,
    /// `None` for a part of another operation.
    outcome: Option<RequestOutcome>,
    span: Span,
}

impl<'a, T> Budget<'a, T> {
    /// Starts the budget of an operation on the queue of this path. Errors contain the operation's name.
    #[must_use]
    pub fn new(
        sessions: &'a Sessions<T>,
        options: &'a Options,
        operation: &'static str,
        path: &'a LockPath,
    ) -> Self {
        let (began, retry) = (Instant::now(), options.retry.start());
        let span = tracing::trace_span!("request", operation, %path);
        Budget {
            sessions,
            options,
            operation,
            path,
            deadline: began + options.operation_timeout,
            retry,
            retried: None,
            owner: None,
            ambiguous: false,
            began,
            outcome: Some(RequestOutcome::Cancelled),
            span,
        }
    }

    /// Returns the budget for a part of another operation, which is not reported.
    #[must_use]
    pub fn unreported(mut self) -> Self {
        self.outcome = None;
        self
    }

    /// Records this result as the outcome of the operation, unless a later one follows.
    ///
    /// # Errors
    /// The same as `result`.
    pub fn finish<R>(&mut self, result: Result<R>) -> Result<R> {
        self.outcome = self.outcome.map(|_| match &result {
            Ok(_) => RequestOutcome::Answered,
            Err(error) => RequestOutcome::Failed(error.kind()),
        });
        result
    }

    /// Sets the session that owned the operation's node, if known. Once it is [past](Sessions::is_past), so is the node: no
    /// further attempt is made, and [`session`](Self::session) fails with [`ErrorKind::SessionLost`].
    #[must_use]
    pub fn of_node(mut self, owner: Option<SessionId>) -> Self {
        self.owner = owner;
        self
    }

    /// Restarts the time and the retries, for an operation that may wait without a limit as long as the store responds.
    pub fn restart(&mut self) {
        self.deadline = Instant::now() + self.options.operation_timeout;
        self.retry = self.options.retry.start();
        self.retried = None;
    }

    pub(super) fn sessions(&self) -> &'a Sessions<T> {
        self.sessions
    }

    /// Returns the name of the operation.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns the path that the operation is about.
    #[must_use]
    pub fn path(&self) -> &'a LockPath {
        self.path
    }

    /// Returns the instant at which the operation's time is used up.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Waits for a session that is connected.
    ///
    /// # Errors
    /// - [`ErrorKind::Unavailable`] if there is none by the deadline. The message says whether there is no session or
    ///   no connection. The cause is the error of the last attempt at a session.
    /// - [`ErrorKind::Closed`] or [`ErrorKind::NotAuthorized`] if the backend is closed.
    /// - [`ErrorKind::SessionLost`] at once if the session of the operation's [node](Self::of_node) is past.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled, if no session is connected.
    pub async fn session(&mut self) -> Result<SessionKey> {
        // The operation may be dropped between two of its requests.
        self.outcome = self.outcome.map(|_| RequestOutcome::Cancelled);
        let session = self.connected().await;
        if session.is_err() { self.finish(session) } else { session }
    }

    async fn connected(&self) -> Result<SessionKey> {
        if self.owner.is_some_and(|owner| self.sessions.is_past(owner)) && self.sessions.closed().is_none() {
            return Err(self.error(ErrorKind::SessionLost));
        }
        let session = self.sessions.wait(self.deadline, || LastFailure::note(|| self.no_session("")));
        session.await.map_err(|interrupted| match interrupted {
            Interrupted::TimedOut => self.no_session(" within the operation timeout"),
            interrupted => self.fail(interrupted),
        })
    }

    /// Returns the error while no session is connected.
    fn no_session(&self, within: &str) -> Error {
        let what = if self.sessions.session().is_live() { "connection" } else { "session" };
        let message = format!("no {what} with {}{within}", self.options.hosts_text());
        let error = self.error(ErrorKind::Unavailable).with_message(message);
        match self.sessions.last_attempt() {
            Some(cause) => error.with_cause(cause),
            None => error,
        }
    }

    /// Records the outcome of a write: sets [`ambiguous`](Self::ambiguous) if it failed and may have taken effect.
    ///
    /// # Errors
    /// The same as `outcome`.
    pub fn record<R, F: Failure>(&mut self, outcome: Result<R, F>) -> Result<R, F> {
        if let Err(failure) = &outcome {
            self.ambiguous |= failure.classify().ambiguous;
        }
        outcome
    }

    /// Waits before the next attempt, or returns the error if there is none.
    ///
    /// If the session was lost, returns at once and uses up no retry: [`session`](Self::session) waits for the next one.
    /// A backend that learns of the loss from an answer must publish it first, with
    /// [`Sessions::lose`]; otherwise the next attempt is made in the same session
    /// without a pause.
    ///
    /// # Errors
    /// The error for `failure` if it cannot be retried, the retries are used up, or the next one would be past the
    /// deadline; otherwise the error for a backend that is closed during the wait. If the time ran out during an
    /// attempt, the cause is the failure of the attempt before.
    ///
    /// # Cancel safety
    /// Safe, but the retry is used up.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled, if it has to wait.
    pub async fn retry(&mut self, failure: impl Failure) -> Result<()> {
        let retried = self.retried_after(failure).await;
        if retried.is_err() { self.finish(retried) } else { retried }
    }

    async fn retried_after(&mut self, failure: impl Failure) -> Result<()> {
        let class = failure.classify();
        if !class.retryable {
            return Err(self.end(failure));
        }
        if class.kind == ErrorKind::SessionLost {
            self.note(failure);
            return Ok(());
        }
        let Some(delay) = self.retry.next_delay() else {
            return Err(self.fail(failure));
        };
        let (operation, path) = (self.operation, self.path);
        self.span.in_scope(|| tracing::debug!(operation, %path, ?delay, ?failure, "retrying"));
        let until = Instant::now() + delay;
        if until >= self.deadline {
            return Err(self.fail(failure));
        }
        self.note(failure);
        self.sessions.sleep_until(until).await.map_err(|interrupted| self.fail(interrupted))
    }

    /// Keeps a failure that is retried or waited out, in case the time runs out.
    fn note(&mut self, failure: impl Failure) {
        let error = self.fail(failure);
        LastFailure::note(|| error.clone());
        self.retried = Some(error);
    }

    /// Returns the error for a failure that is not retried.
    fn end(&self, failure: impl Failure) -> Error {
        let error = self.fail(failure);
        match &self.retried {
            Some(cause) if error.cause().is_none() && Instant::now() >= self.deadline => {
                error.with_cause(cause.clone())
            }
            _ => error,
        }
    }

    /// Returns the error with which a failure ends the operation.
    #[must_use]
    pub fn fail(&self, failure: impl Failure) -> Error {
        let error = self.error(failure.classify().kind);
        failure.explain(error)
    }

    /// Refuses data of a node or a value that is longer than [`MAX_DATA`], before anything is sent. The limit is that of the
    /// store with the smallest requests, so that a lock can move from one store to another.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn check_size(&mut self, data: &[u8]) -> Result<()> {
        if data.len() <= MAX_DATA {
            return Ok(());
        }
        let message = format!("{} bytes of node data; the limit is {MAX_DATA}", data.len());
        Err(self.refuse(ErrorKind::InvalidArgument).with_message(message))
    }

    /// Refuses a new node whose ID is not a UUID, and what [`check_size`](Self::check_size) refuses.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn check_node(&mut self, node_id: &NodeId, data: &[u8]) -> Result<()> {
        if !node_id.is_uuid() {
            let why = format!("the node ID {} is not a UUID", Excerpt::of(node_id.as_str()));
            return Err(self.refuse(ErrorKind::InvalidArgument).with_message(why));
        }
        self.check_size(data)
    }

    /// Ends the operation with an [error](Self::error) of this kind, which it returns.
    #[must_use]
    pub fn refuse(&mut self, kind: ErrorKind) -> Error {
        self.outcome = self.outcome.map(|_| RequestOutcome::Failed(kind));
        self.error(kind)
    }

    /// Returns an error of the operation. It is ambiguous if [`ambiguous`](Self::ambiguous) is set.
    #[must_use]
    pub fn error(&self, kind: ErrorKind) -> Error {
        let error = Error::new(kind, self.operation).with_path(self.path);
        if self.ambiguous { error.ambiguous() } else { error }
    }
}

/// Reports the operation, even if its future was dropped before its end.
impl<T> Drop for Budget<'_, T> {
    fn drop(&mut self) {
        if let (Some(observer), Some(outcome)) = (self.sessions.observer(), self.outcome) {
            // A runtime that shuts down may drop this without a clock.
            let is_past = Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed());
            let duration = if is_past { Duration::ZERO } else { self.began.elapsed() };
            observer.request_ended(self.operation, duration, outcome);
        }
    }
}

impl<T> fmt::Debug for Budget<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("operation", &self.operation)
            .field("path", &self.path)
            .field("deadline", &self.deadline)
            .field("retry", &self.retry)
            .field("ambiguous", &self.ambiguous)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::kit::FailureClass;
    use crate::retry::RetryPolicy;
    use crate::session::CloseReason;

    const HALF_A_SECOND: Duration = Duration::from_millis(500);

    fn options() -> Options {
        let mut options = Options::new(["one", "two"]);
        options.operation_timeout = Duration::from_secs(10);
        options.retry = RetryPolicy::n_times(2, HALF_A_SECOND);
        options
    }

    #[derive(Debug)]
    struct Refused {
        retryable: bool,
    }

    impl Failure for Refused {
        fn classify(&self) -> FailureClass {
            let Refused { retryable } = *self;
            FailureClass { kind: ErrorKind::Unavailable, ambiguous: true, retryable }
        }

        fn explain(self, error: Error) -> Error {
            error.with_message("refused")
        }
    }

    fn path() -> LockPath {
        LockPath::new("/app").unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn retries_until_they_are_used_up() {
        let (sessions, options, path) = (Sessions::<()>::new("refused"), options(), path());
        let mut budget = Budget::new(&sessions, &options, "create", &path);
        let began = Instant::now();
        let last = LastFailure::default();
        for _ in 0..2 {
            last.observe(budget.retry(Refused { retryable: true })).await.unwrap();
            assert_eq!(last.take().unwrap().to_string(), "create /app: no server available: refused");
        }
        assert_eq!(began.elapsed(), 2 * HALF_A_SECOND);
        budget.record(Err::<(), _>(Refused { retryable: true })).unwrap_err();
        let error = last.observe(budget.retry(Refused { retryable: true })).await.unwrap_err();
        let text = "create /app: no server available: refused (may have taken effect)";
        assert_eq!(error.to_string(), text);
        assert!(last.take().is_none());
        budget.restart();
        budget.retry(Refused { retryable: true }).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_past_the_deadline_is_not_made() {
        let (sessions, path) = (Sessions::<()>::new("refused"), path());
        let options = Options { operation_timeout: HALF_A_SECOND, ..options() };
        let mut budget = Budget::new(&sessions, &options, "create", &path);
        let began = Instant::now();
        budget.retry(Refused { retryable: true }).await.unwrap_err();
        budget.retry(Refused { retryable: false }).await.unwrap_err();
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_is_cut_off_names_the_failure_before_it() {
        let (sessions, options, path) = (Sessions::<()>::new("refused"), options(), path());
        let mut budget = Budget::new(&sessions, &options, "delete", &path);
        budget.retry(Refused { retryable: true }).await.unwrap();
        let early = budget.retry(Interrupted::Closed).await.unwrap_err();
        assert!(early.cause().is_none());
        tokio::time::sleep_until(budget.deadline()).await;
        let cut_off = budget.retry(Interrupted::TimedOut).await.unwrap_err();
        let text = "delete /app: no server available: no response within the operation timeout: delete /app: no server \
                    available: refused";
        assert_eq!(cut_off.to_string(), text);
        budget.restart();
        tokio::time::sleep_until(budget.deadline()).await;
        let restarted = budget.retry(Interrupted::TimedOut).await.unwrap_err();
        assert!(restarted.cause().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_session_takes_no_retry() {
        let (sessions, path) = (Sessions::<()>::new("refused"), path());
        let options = Options { retry: RetryPolicy::never(), ..options() };
        let mut budget = Budget::new(&sessions, &options, "create", &path);
        budget.retry(Interrupted::SessionLost).await.unwrap();
        let error = budget.retry(Interrupted::TimedOut).await.unwrap_err();
        let text = "create /app: no server available: no response within the operation timeout";
        assert_eq!(error.to_string(), text);
    }

    #[tokio::test(start_paused = true)]
    async fn says_why_there_is_no_session() {
        let (sessions, options, path) = (Sessions::new("the server refused us"), options(), path());
        let mut budget = Budget::new(&sessions, &options, "create", &path);
        let last = LastFailure::default();
        let wait = async {
            tokio::task::yield_now().await;
            let noted = last.take().unwrap();
            assert_eq!(noted.to_string(), "create /app: no server available: no session with one,two");
            sessions.attempt_failed(Error::new(ErrorKind::Unavailable, "connect"));
        };
        let (error, ()) = tokio::join!(last.observe(budget.session()), wait);
        let cause = "no session with one,two within the operation timeout: connect: no server available";
        assert_eq!(error.unwrap_err().to_string(), format!("create /app: no server available: {cause}"));
        let mut budget = Budget::new(&sessions, &options, "create", &path);
        let deadline = Instant::now() + 2 * options.operation_timeout;
        let (key, _) = sessions.begin(SessionId::new(1), deadline, |_| ()).unwrap();
        assert_eq!(budget.session().await.unwrap(), key);
        sessions.suspend(key);
        let error = budget.session().await.unwrap_err();
        let text =
            "create /app: no server available: no connection with one,two within the operation timeout";
        assert_eq!(error.to_string(), text);
        sessions.close(CloseReason::AuthFailed);
        let error = budget.session().await.unwrap_err();
        assert_eq!(error.to_string(), "create /app: not authorized: the server refused us");
    }
}
