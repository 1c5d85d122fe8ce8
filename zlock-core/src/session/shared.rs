//! The state that [`SessionPublisher`](crate::SessionPublisher) and [`SessionEvents`](crate::SessionEvents) share.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::observer::Slot;
use crate::session::{CloseReason, Session, SessionState};

/// The state of a backend's session, which [`SessionPublisher`](crate::SessionPublisher) sets and
/// [`SessionEvents`](crate::SessionEvents) shows.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) current: Mutex<Current>,
    /// Notified at each change of epoch or state, and when a session at rest gets a deadline, but not when the deadline
    /// moves. It wakes in the order of waiting. Tokio's watch channel wakes in a random order, so that runs with the same
    /// seed would differ.
    pub(crate) changed: Notify,
    pub(crate) observer: Slot,
}

#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) session: Session,
    /// `true` if the store refused its last request to keep this session alive.
    pub(crate) refused: bool,
    /// The longest time to the deadline so far. `None` before the first session.
    pub(crate) life: Option<Duration>,
}

impl Current {
    pub(crate) fn note_life(&mut self) {
        let left = self.session.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.life = self.life.max(left);
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session, which is over if its deadline has passed. The clock is read under the mutex, so that two calls in
    /// a row never go from lost to live.
    pub(crate) fn now(&self) -> MutexGuard<'_, Current> {
        let mut current = self.lock();
        let Current { session, refused, .. } = &mut *current;
        if session.is_live() && session.is_overdue() {
            self.expire(session, *refused);
        }
        current
    }

    pub(crate) fn expire(&self, session: &mut Session, refused: bool) {
        let closed = SessionState::Closed(CloseReason::AuthFailed);
        self.update(session, if refused { closed } else { SessionState::Lost });
    }

    pub(crate) fn update(&self, session: &mut Session, state: SessionState) {
        if session.state != state {
            session.state = state;
            self.changed.notify_waiters();
        }
    }
}
