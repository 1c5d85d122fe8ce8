//! What a session is now: its state, its deadline, and the news that change them.
//!
//! A method that takes a session is a no-op once that session is over, so that late news of an old session cannot affect the
//! next one. `Lost` is final: once any caller has seen that the deadline has passed, a late heartbeat cannot revive the session.

use tokio::time::Instant;

use super::{SessionKey, Sessions};
use crate::kit::Interrupted;
use crate::nodes::node_id::NodeId;
use crate::nodes::own_nodes::DeletionNotice;
use crate::session::events::{Now, SessionEvents};
use crate::session::{Session, SessionState};

impl<T> Sessions<T> {
    /// Returns a snapshot of the latest session. Before the first one, that is epoch 0, lost.
    #[must_use]
    pub fn session(&self) -> Session {
        self.published.now().session
    }

    /// Returns the last snapshot of the session without reading the clock, so its deadline may have passed. For
    /// destructors, which may run when the thread's clock no longer exists.
    #[must_use]
    pub fn last_seen(&self) -> Session {
        self.published.now.lock().session
    }

    /// Returns a view for [`CoordinationBackend::session_events`](crate::CoordinationBackend::session_events).
    #[must_use]
    pub fn events(&self) -> SessionEvents {
        SessionEvents::new(&self.published)
    }

    /// Changes the state of a session, unless it is over.
    fn change<R>(&self, key: SessionKey, change: impl FnOnce(&mut Now) -> R) -> Option<R> {
        let mut now = self.published.now();
        (now.session.epoch == key.epoch && now.session.is_live()).then(|| change(&mut now))
    }

    /// Sets the deadline, which ends the session if it has passed. Returns `false` if it did.
    fn set_deadline(&self, now: &mut Now, deadline: Instant) -> bool {
        now.session.deadline = Some(deadline);
        self.published.expire_if_overdue(now);
        // Tasks that wait for the end have another time to wait for.
        self.published.changed.notify();
        now.session.is_live()
    }

    /// Extends the deadline after a response to a request that was sent at `sent`. Returns `false` if the session is over.
    ///
    /// A session at rest stays without a deadline.
    pub fn extend(&self, key: SessionKey, sent: Instant, deadline: Instant) -> bool {
        let moved = self.change(key, |now| {
            let before = now.session.deadline?;
            let after = before.max(deadline);
            now.session.deadline = Some(after);
            now.note_life();
            Some((before, after))
        });
        if let (Some(observer), Some(Some((before, after)))) = (self.published.observer.get(), moved) {
            let now = Instant::now();
            observer.session_slack(Some(before.saturating_duration_since(now)));
            observer
                .session_renewed(now.saturating_duration_since(sent), after.saturating_duration_since(now));
        }
        moved.is_some()
    }

    /// Brings the deadline forward to this instant if it is later. Returns `false` if the session is over, which it also is
    /// once the deadline has passed.
    ///
    /// For a backend that shows a deadline although the session owns no node: it calls this with what is proved when the
    /// session gets its first one.
    pub fn limit(&self, key: SessionKey, deadline: Instant) -> bool {
        let limited = self.change(key, |now| {
            let is_later = now.session.deadline.is_some_and(|shown| shown > deadline);
            !is_later || self.set_deadline(now, deadline)
        });
        limited == Some(true)
    }

    /// Puts a session at rest if it owns no node: it has no deadline until [`insert_own`](Self::insert_own) sets one.
    /// Returns `true` if it is at rest.
    ///
    /// A backend calls it before each heartbeat. At rest, it need not prove that the store keeps the session, and
    /// [`extend`](Self::extend) does nothing. The sessions of a backend that never calls it always have a
    /// deadline, so it may use [`OwnNodes::insert`](crate::OwnNodes::insert) alone.
    pub fn rest(&self, key: SessionKey) -> bool {
        let rests = self.change(key, |now| {
            if now.session.deadline.is_some() && !self.own.owns_any() {
                now.session.deadline = None;
            }
            now.session.deadline.is_none()
        });
        rests == Some(true)
    }

    /// Adds a node to those of this session when its create was answered, and sets the deadline of a session at rest.
    ///
    /// `deadline` is the instant until which the store keeps the session, as proved by the response to the create and
    /// counted from the time at which the create was *sent*. A session that has a deadline keeps it, even if `deadline`
    /// is later, since a write need not renew a session.
    ///
    /// # Errors
    /// [`interrupted`](Self::interrupted) if the session is over, and also if `deadline` has passed, which ends it.
    pub fn insert_own(
        &self,
        key: SessionKey,
        node_id: &NodeId,
        deadline: Instant,
    ) -> Result<DeletionNotice, Interrupted> {
        let inserted = self.change(key, |now| {
            let lives = now.session.deadline.is_some() || self.set_deadline(now, deadline);
            lives.then(|| self.own.insert(node_id))
        });
        inserted.flatten().ok_or_else(|| self.interrupted())
    }

    /// Adds a node to those of this session if the session has a deadline, and returns `None` if it is at rest. For a
    /// create whose response proves no deadline: the backend then needs a proof before it calls
    /// [`insert_own`](Self::insert_own).
    ///
    /// # Errors
    /// [`interrupted`](Self::interrupted) if the session is over.
    pub fn insert_own_if_active(
        &self,
        key: SessionKey,
        node_id: &NodeId,
    ) -> Result<Option<DeletionNotice>, Interrupted> {
        let inserted = self.change(key, |now| now.session.deadline.map(|_| self.own.insert(node_id)));
        inserted.ok_or_else(|| self.interrupted())
    }

    /// Waits until a session is no longer at rest, or is over.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn active(&self, key: SessionKey) {
        let rests = || self.change(key, |now| now.session.deadline.is_none()) == Some(true);
        self.published.changed.until(|| (!rests()).then_some(())).await;
    }

    /// Ends a session at rest whose store was silent for its whole timeout, as if a deadline had passed.
    ///
    /// A no-op for a session with a deadline, which only ends by that deadline.
    pub fn give_up(&self, key: SessionKey) {
        self.change(key, |now| {
            if now.session.deadline.is_none() {
                self.published.expire(now);
            }
        });
    }

    /// Marks a session as `Suspended`: the connection is broken or silent.
    pub fn suspend(&self, key: SessionKey) {
        self.change(key, |now| self.published.set(now, SessionState::Suspended));
    }

    /// Marks a session as `Suspended`, unless it was [resumed](Self::resume) after [`responses`](Self::responses) returned this number.
    pub(in crate::kit) fn suspend_if_silent(&self, key: SessionKey, responses: u64) {
        self.change(key, |now| {
            if now.responses == responses {
                self.published.set(now, SessionState::Suspended);
            }
        });
    }

    /// Marks a session as `Connected` again. Returns `false` if it is over.
    ///
    /// A backend calls it after each response that shows that the store answers, even while the session is connected: a heartbeat that
    /// is under way at that time then does not suspend the session if it fails.
    pub fn resume(&self, key: SessionKey) -> bool {
        let resumed = self.change(key, |now| {
            now.responses += 1;
            self.published.set(now, SessionState::Connected);
        });
        resumed.is_some()
    }

    /// Returns how often a session was [resumed](Self::resume). 0 if it is over.
    pub(in crate::kit) fn responses(&self, key: SessionKey) -> u64 {
        self.change(key, |now| now.responses).unwrap_or_default()
    }

    /// Records whether the store refused its last request to keep the session alive. If the deadline passes in that state,
    /// the session is not lost. Instead, the backend is closed with
    /// [`CloseReason::AuthFailed`](crate::CloseReason::AuthFailed), because a next session would be refused as well.
    pub fn set_refused(&self, key: SessionKey, refused: bool) {
        self.change(key, |now| now.refused = refused);
    }

    /// Marks a session as `Lost`, for whatever learns first that the store has ended it. It stays the current one until
    /// [`end`](Self::end) is called.
    pub fn lose(&self, key: SessionKey) {
        self.change(key, |now| self.published.set(now, SessionState::Lost));
    }

    /// Returns `true` if the session is live: its deadline has not passed and the store has not ended it.
    #[must_use]
    pub fn is_live(&self, key: SessionKey) -> bool {
        self.change(key, |_| ()).is_some()
    }

    /// Returns `true` if a session is connected, `false` if it is suspended.
    ///
    /// # Errors
    /// [`interrupted`](Self::interrupted) if it is over.
    pub fn is_connected(&self, key: SessionKey) -> Result<bool, Interrupted> {
        let connected = self.change(key, |now| now.session.state == SessionState::Connected);
        connected.ok_or_else(|| self.interrupted())
    }
}
