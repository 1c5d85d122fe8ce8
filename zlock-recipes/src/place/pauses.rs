//! The pauses of a waiter whose requests fail although its session lives.
//!
//! A waiter keeps its place as long as its session lives.

use std::time::Duration;

use tokio::time::sleep;
use zlock_core::{Error, LastFailure, LockPath, Result, SessionEvents, SessionState};

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);

/// The pauses between the attempts at one request: they double.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Pauses { next: FIRST }
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
        let pause = self.next;
        tracing::warn!(%path, %error, ?pause, "a waiter got no answer; it keeps its place and asks again");
        LastFailure::note(|| error);
        sleep(pause).await;
        self.next = (pause * 2).min(LONGEST);
        Ok(())
    }
}

/// Waits while the connection is interrupted. Requests would only wait for it, and fail after their timeout.
pub(crate) async fn connected(session: &SessionEvents) {
    if session.current().state != SessionState::Suspended {
        return;
    }
    let mut session = session.clone();
    while session.current().state == SessionState::Suspended {
        session.changed().await;
    }
}
