//! The pauses of a waiter whose requests fail although its session lives.
//!
//! A waiter keeps its place as long as its session lives.

use std::time::Duration;

use zlock_core::kit::FailureLog;
use zlock_core::{
    Error, LastFailure, LockPath, Node, Result, Retry, RetryPolicy, Sequence, SessionEvents, SessionState,
};

/// The longest pause.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);

/// The pauses of work that is attempted until it succeeds. They are random, so that clients that fail together do not all try
/// again together.
pub(crate) const PAUSES: RetryPolicy =
    RetryPolicy::bounded_exponential(Duration::from_millis(50), LONGEST, u32::MAX);

/// The pauses between the attempts at one request.
#[derive(Debug)]
pub(crate) struct Pauses {
    pauses: Retry,
    log: FailureLog,
}

impl Default for Pauses {
    fn default() -> Self {
        Pauses { pauses: PAUSES.start(), log: FailureLog::default() }
    }
}

impl Pauses {
    /// Waits before the next attempt. Returns the error if there must be none: the store refused the request, or the session
    /// is over.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn after(
        &mut self,
        error: Error,
        path: &LockPath,
        session: &SessionEvents,
    ) -> Result<()> {
        if !error.is_retryable() || error.is_lock_lost() || !session.current().is_live() {
            return Err(error);
        }
        if self.log.record(&error) {
            tracing::warn!(%path, %error, "a request failed; it is repeated while the session lives");
        }
        LastFailure::note(|| error);
        self.pauses.sleep().await;
        Ok(())
    }
}

/// The pauses of a waiter whose store lists a node that another request does not find. The servers of an ensemble may answer
/// differently for a while.
#[derive(Debug, Default)]
pub(crate) struct Contradictions {
    /// The foremost node that was listed and not found.
    foremost: Option<Sequence>,
    pauses: Pauses,
}

impl Contradictions {
    /// Takes a node that was listed and not found. Returns the pause before the queue is listed again. There is none while the
    /// queue moves: nodes only leave, so each such node is ahead of the one before.
    pub(crate) fn not_found(&mut self, node: &Node) -> Duration {
        if self.foremost.is_some_and(|foremost| foremost <= node.sequence) {
            return self.pauses.pauses.next_delay().unwrap_or(LONGEST);
        }
        *self = Contradictions { foremost: Some(node.sequence), pauses: Pauses::default() };
        Duration::ZERO
    }
}

/// Waits while the connection is interrupted. Requests would only wait for it, and fail after their timeout.
pub(crate) async fn connected(session: &SessionEvents) {
    if session.current().state != SessionState::Suspended {
        return;
    }
    session.clone().until(|session| session.state != SessionState::Suspended).await;
}
