//! One operation: its budget of time and retries, and what it says when that is used up.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use zlock_core::{Deletion, Error, ErrorKind, LastFailure, LockPath, Result, Retry, Session, SessionState};

use crate::request::{Answer, Request};
use crate::session::{Asked, Shared};

/// An operation under way.
pub(crate) struct Call<'a> {
    shared: &'a Shared,
    operation: &'static str,
    path: &'a LockPath,
    /// A write was sent and not answered.
    uncertain: AtomicBool,
    /// A write that was sent will never be answered.
    unanswered: AtomicBool,
}

impl<'a> Call<'a> {
    pub(crate) fn new(shared: &'a Shared, operation: &'static str, path: &'a LockPath) -> Self {
        Call {
            shared,
            operation,
            path,
            uncertain: AtomicBool::new(false),
            unanswered: AtomicBool::new(false),
        }
    }

    /// Runs the operation's steps within its time, and ends them when the client is closed.
    pub(crate) async fn within_budget<T>(&self, steps: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.shared.options.operation_timeout;
        let deadline = Instant::now() + limit;
        tokio::select! {
            biased;
            () = self.shared.closed() => Err(self.error(ErrorKind::Closed)),
            result = steps => result,
            () = sleep_until(deadline) => Err(self.unavailable(format!("not done within {limit:?}"))),
        }
    }

    pub(crate) fn error(&self, kind: ErrorKind) -> Error {
        let error = Error::new(kind, self.operation).with_path(self.path);
        if self.uncertain.load(Ordering::Relaxed) { error.ambiguous() } else { error }
    }

    /// What a delete has come to that finds no node.
    pub(crate) fn deleted(&self) -> Deletion {
        if self.unanswered.load(Ordering::Relaxed) { Deletion::Deleted } else { Deletion::AlreadyDeleted }
    }

    fn unavailable(&self, why: String) -> Error {
        self.error(ErrorKind::Unavailable).with_message(why)
    }

    pub(crate) fn retries(&self) -> Retries {
        Retries { retry: self.shared.options.retry.start(), done: 0 }
    }

    /// Waits for a session.
    pub(crate) async fn session(&self) -> Session {
        let mut events = self.shared.events();
        loop {
            let session = events.current();
            if session.state == SessionState::Connected {
                return session;
            }
            LastFailure::note(|| self.unavailable("not connected to the server".into()));
            events.changed().await;
        }
    }

    /// Sends a write or a read, and waits for its answer.
    pub(crate) async fn ask(&self, session: Session, request: Request) -> Asked {
        let writes = request.writes();
        let pending = self.shared.send(session, request);
        let was_sent = pending.was_sent();
        self.note_sent(writes);
        let asked = self.shared.answer(pending).await;
        self.note_answered(writes, &asked);
        if writes && was_sent && !matches!(asked, Asked::Answer(_)) {
            self.unanswered.store(true, Ordering::Relaxed);
        }
        asked
    }

    pub(crate) fn note_sent(&self, writes: bool) {
        if writes {
            self.uncertain.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn note_answered(&self, writes: bool, asked: &Asked) {
        if writes && matches!(asked, Asked::Answer(_)) {
            self.uncertain.store(false, Ordering::Relaxed);
        }
    }

    /// Asks until there is an answer, each time in the session that lives then.
    pub(crate) async fn answer_to(
        &self,
        retries: &mut Retries,
        mut request: impl FnMut() -> Request,
    ) -> Result<(Session, Answer)> {
        loop {
            let session = self.session().await;
            match self.ask(session, request()).await {
                Asked::Answer(answer) => return Ok((session, answer)),
                Asked::Lost | Asked::Over => self.again(retries).await?,
            }
        }
    }

    /// Waits until the next attempt is due.
    pub(crate) async fn again(&self, retries: &mut Retries) -> Result<()> {
        retries.done += 1;
        let error = || self.unavailable(format!("no answer to {} attempts", retries.done));
        LastFailure::note(error);
        if retries.retry.sleep().await { Ok(()) } else { Err(error()) }
    }

    /// An answer that does not belong to the request.
    pub(crate) fn unexpected(&self, answer: &Answer) -> Error {
        self.error(ErrorKind::Unexpected).with_message(format!("{answer:?}"))
    }
}

/// The retries of one operation.
pub(crate) struct Retries {
    retry: Retry,
    /// How many attempts have failed.
    done: u32,
}

/// The delays between attempts that no policy counts: those which a parent costs that vanished.
pub(crate) struct ParentDelays(Duration);

impl ParentDelays {
    pub(crate) fn new() -> Self {
        ParentDelays(Duration::ZERO)
    }

    /// None at first, then 1 ms and twice as much each time, to 64 ms.
    pub(crate) async fn wait(&mut self) {
        if !self.0.is_zero() {
            sleep(self.0).await;
        }
        self.0 = (self.0 * 2).clamp(Duration::from_millis(1), Duration::from_millis(64));
    }
}
