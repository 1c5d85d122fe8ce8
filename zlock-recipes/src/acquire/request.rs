//! What to acquire, and the checks and errors that need no place in the queue.

use std::sync::Arc;

use tokio::time::Instant;
use zlock_core::{Error, ErrorKind, Label, LockPath, Phase, Queue, Result, SessionState};

use crate::client::inner::ClientInner;
use crate::queue::{Event, SHARED_MAX, other_max};
use crate::value::Counter;

/// What to acquire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) client: &'a Arc<ClientInner>,
    pub(crate) path: &'a LockPath,
    pub(crate) label: Label,
    /// The maximum of a semaphore, if it is a value that may change.
    pub(crate) shared_max: Option<&'a Counter>,
    pub(crate) data: &'a Arc<[u8]>,
    /// The lock's name in measurements.
    pub(crate) metric_name: Option<&'a Arc<str>>,
    /// The end of the acquisition's time, if that is limited and the request does not end by itself then.
    pub(crate) deadline: Option<Instant>,
}

/// The progress of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The acquisition has its place in the queue.
    Queued,
    /// The acquisition is waiting for a place ahead of its own. May be reported more than once.
    Waiting,
}

impl Request<'_> {
    /// Refuses permits if the head of the queue uses another maximum.
    pub(crate) fn check_max(&self, queue: &Queue) -> Result<()> {
        let Some(other) = other_max(queue, self.label) else { return Ok(()) };
        let mine = if let Label::Permits { max, .. } = self.label { max } else { 0 };
        let [mine, other] = [mine, other].map(|max| match max {
            SHARED_MAX => "shared".to_owned(),
            max => max.to_string(),
        });
        let message = format!("the maximum is {mine} here, and {other} for the head of the queue");
        Err(Error::new(ErrorKind::PermitLimitMismatch, "acquire").with_path(self.path).with_message(message))
    }

    /// Refuses what a create shows of the queue as [`check_max`](Self::check_max) does.
    pub(crate) fn checked(&self, event: Option<Event>) -> Result<Option<Event>> {
        if let Some(Event::Listed(queue)) = &event {
            self.check_max(queue)?;
        }
        Ok(event)
    }

    /// Logs a warning if the calling task already holds the lock: outside the lock's scope it waits for its own release. That can
    /// be intended (in a sibling branch), so it is not an error.
    ///
    /// A task may well take permits of a semaphore more than once.
    pub(crate) fn warn_of_waiting_for_itself(self) {
        let Request { client, path, label, .. } = self;
        if !matches!(label, Label::Permits { .. }) && client.is_held_by_this_task(path) {
            tracing::warn!(
                %path,
                "this task waits for a lock that it holds itself: use `reenter`, or acquire it inside `scope`"
            );
        }
    }

    /// The error of an acquisition that ran out of time. Its kind depends on whether the acquisition had its place in the queue.
    /// Its cause is the store's last failure, unless that was overcome.
    pub(crate) fn timed_out(self, operation: &'static str, queued: bool, last: Option<Error>) -> Error {
        let state = self.client.session.current().state;
        let kind = match state {
            _ if queued => ErrorKind::Busy,
            SessionState::Connected => ErrorKind::Timeout(Phase::Queueing),
            _ => ErrorKind::Timeout(Phase::Connecting),
        };
        let error = Error::new(kind, operation).with_path(self.path);
        // A request that waits for the connection has not failed yet.
        let suspended = || {
            let error = Error::new(ErrorKind::Unavailable, "session");
            (state == SessionState::Suspended).then(|| error.with_message("the connection is interrupted"))
        };
        match last.or_else(suspended) {
            Some(cause) => error.with_cause(cause),
            None => error,
        }
    }
}
