//! The backend's side of a session's state.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::observer::Slot;
use crate::session::events::SessionEvents;
use crate::session::shared::{Current, Shared};
use crate::session::{CloseReason, Session, SessionId, SessionState};

/// The epoch is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over;

/// The backend's side of [`SessionEvents`], which sets the state of the session. Dropping it closes the view.
///
/// A method that takes an epoch is a no-op once a newer one has begun, so that late news of an old session cannot affect the
/// new one. `Lost` is final for an epoch: once any caller has seen that the deadline has passed, a late heartbeat cannot
/// revive the session.
#[derive(Debug)]
pub struct SessionPublisher(Arc<Shared>);

impl SessionPublisher {
    /// Creates a publisher without a session: epoch 0, lost.
    #[must_use]
    pub fn new() -> Self {
        let session = Session { id: SessionId::new(0), epoch: 0, state: SessionState::Lost, deadline: None };
        let current = Mutex::new(Current { session, refused: false, life: None });
        SessionPublisher(Arc::new(Shared { current, changed: Notify::new(), observer: Slot::default() }))
    }

    /// Begins the next epoch as `Connected` and returns its number, or `None` if the view is closed.
    pub fn establish(&self, id: SessionId, deadline: Instant) -> Option<u64> {
        let mut current = self.0.lock();
        if matches!(current.session.state, SessionState::Closed(_)) {
            return None;
        }
        let epoch = current.session.epoch + 1;
        let session = Session { id, epoch, state: SessionState::Connected, deadline: Some(deadline) };
        *current = Current { session, refused: false, life: None };
        current.note_life();
        self.0.changed.notify_waiters();
        Some(epoch)
    }

    /// Extends the deadline after a response to a request that was sent at `sent`. Returns `false` if the epoch is over.
    ///
    /// A session at rest stays without a deadline.
    pub fn extend(&self, epoch: u64, sent: Instant, deadline: Instant) -> bool {
        let moved = {
            let mut current = self.0.now();
            let session = &mut current.session;
            if session.epoch != epoch || !session.is_live() {
                return false;
            }
            let before = session.deadline;
            let after = before.map(|before| before.max(deadline));
            session.deadline = after;
            current.note_life();
            before.zip(after)
        };
        if let (Some(observer), Some((before, after))) = (self.0.observer.get(), moved) {
            let now = Instant::now();
            observer.session_slack(Some(before.saturating_duration_since(now)));
            observer
                .session_renewed(now.saturating_duration_since(sent), after.saturating_duration_since(now));
        }
        true
    }

    /// Brings the deadline forward to this instant if it is later. Returns `false` if the epoch is over, which it also is once
    /// the deadline has passed.
    ///
    /// For a backend that shows a deadline although the session owns no node: it calls this with what is proved when the
    /// session gets its first one.
    pub fn limit(&self, epoch: u64, deadline: Instant) -> bool {
        let mut current = self.0.now();
        let Current { session, refused, .. } = &mut *current;
        if session.epoch != epoch || !session.is_live() {
            return false;
        }
        if session.deadline.is_some_and(|shown| shown > deadline) {
            session.deadline = Some(deadline);
            if session.is_overdue() {
                self.0.expire(session, *refused);
                return false;
            }
            // Tasks that wait for the end have an earlier one to wait for.
            self.0.changed.notify_waiters();
        }
        true
    }

    /// Puts the session at rest, without a deadline, if `owns_nothing` returns `true`. Returns `true` if it is at rest.
    ///
    /// `owns_nothing` runs under the same lock as `insert` of [`own`](Self::own), and must not call the publisher.
    pub(crate) fn rest(&self, epoch: u64, owns_nothing: impl FnOnce() -> bool) -> bool {
        let session = &mut self.0.now().session;
        if session.epoch != epoch || !session.is_live() {
            return false;
        }
        if session.deadline.is_some() && owns_nothing() {
            session.deadline = None;
        }
        session.deadline.is_none()
    }

    /// Records by `insert` that the session owns a node. A session at rest gets this deadline; one that has a deadline
    /// keeps it.
    ///
    /// Returns `Ok(None)` and inserts nothing if the session is at rest and no deadline is given. Returns `Err` if the
    /// epoch is over, which it also is once the deadline has passed.
    pub(crate) fn own<R>(
        &self,
        epoch: u64,
        deadline: Option<Instant>,
        insert: impl FnOnce() -> R,
    ) -> Result<Option<R>, Over> {
        let mut current = self.0.now();
        let Current { session, refused, .. } = &mut *current;
        if session.epoch != epoch || !session.is_live() {
            return Err(Over);
        }
        if session.deadline.is_none() {
            let Some(deadline) = deadline else { return Ok(None) };
            session.deadline = Some(deadline);
            if session.is_overdue() {
                self.0.expire(session, *refused);
                return Err(Over);
            }
            // Tasks that wait for the end now have a deadline to wait for, and the backend has one to extend.
            self.0.changed.notify_waiters();
        }
        Ok(Some(insert()))
    }

    /// Ends a session at rest whose store was silent for its whole timeout, as if a deadline had passed.
    ///
    /// A no-op for a session with a deadline, which only ends by that deadline.
    pub fn give_up(&self, epoch: u64) {
        let mut current = self.0.now();
        let Current { session, refused, .. } = &mut *current;
        if session.epoch == epoch && session.is_live() && session.deadline.is_none() {
            self.0.expire(session, *refused);
        }
    }

    /// Waits until the session has a deadline, or its epoch is over.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn has_deadline(&self, epoch: u64) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let session = self.current();
            if session.epoch != epoch || !session.is_live() || session.deadline.is_some() {
                return;
            }
            changed.await;
        }
    }

    /// Marks the session as `Suspended`: the connection is broken or silent.
    pub fn suspend(&self, epoch: u64) {
        let session = &mut self.0.now().session;
        if session.epoch == epoch && session.state == SessionState::Connected {
            self.0.update(session, SessionState::Suspended);
        }
    }

    /// Marks the session as `Connected` again. Returns `false` if the epoch is over.
    pub fn resume(&self, epoch: u64) -> bool {
        let session = &mut self.0.now().session;
        if session.epoch != epoch || !session.is_live() {
            return false;
        }
        self.0.update(session, SessionState::Connected);
        true
    }

    /// Records whether the store refused its last request to keep the session alive. If the deadline passes in that state,
    /// the session is not lost. Instead, the view is closed with [`CloseReason::AuthFailed`], because a next session would be
    /// refused as well.
    pub fn set_refused(&self, epoch: u64, refused: bool) {
        let mut current = self.0.now();
        if current.session.epoch == epoch && current.session.is_live() {
            current.refused = refused;
        }
    }

    /// Marks the session as `Lost`, because the store has ended it.
    pub fn lose(&self, epoch: u64) {
        let session = &mut self.0.now().session;
        if session.epoch == epoch && session.is_live() {
            self.0.update(session, SessionState::Lost);
        }
    }

    /// Closes the view: there will be no further session.
    pub fn close(&self, reason: CloseReason) {
        let session = &mut self.0.lock().session;
        if !matches!(session.state, SessionState::Closed(_)) {
            self.0.update(session, SessionState::Closed(reason));
        }
    }

    /// Returns a snapshot of the session.
    #[must_use]
    pub fn current(&self) -> Session {
        self.0.now().session
    }

    /// Returns the last snapshot of the session without reading the clock, so its deadline may have passed. For
    /// destructors, which may run when the thread's clock no longer exists.
    #[must_use]
    pub fn last_seen(&self) -> Session {
        self.0.lock().session
    }

    /// Returns a view for [`CoordinationBackend::session_events`](crate::CoordinationBackend::session_events).
    #[must_use]
    pub fn subscribe(&self) -> SessionEvents {
        let session = self.last_seen();
        SessionEvents { shared: self.0.clone(), seen: (session.epoch, session.state) }
    }
}

impl Default for SessionPublisher {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SessionPublisher {
    fn drop(&mut self) {
        self.close(CloseReason::Requested);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ID: SessionId = SessionId::new(7);

    fn after(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_turns_it_lost_for_good() {
        let publisher = SessionPublisher::new();
        let mut events = publisher.subscribe();
        let epoch = publisher.establish(ID, after(10)).unwrap();
        assert_eq!(events.changed().await.state, SessionState::Connected);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(publisher.extend(epoch, Instant::now(), after(10)));
        let began = Instant::now();
        assert_eq!(events.changed().await.state, SessionState::Lost);
        assert_eq!(began.elapsed(), Duration::from_secs(10));
        assert!(!publisher.extend(epoch, Instant::now(), after(10)), "a late heartbeat cannot take it back");
        assert!(!publisher.resume(epoch));
        assert!(!events.is_live(epoch));
    }

    #[tokio::test(start_paused = true)]
    async fn slack_is_the_time_to_the_deadline() {
        let publisher = SessionPublisher::new();
        let epoch = publisher.establish(ID, after(10)).unwrap();
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(publisher.current().slack(), Some(Duration::from_secs(6)));
        assert!(publisher.rest(epoch, || true));
        assert_eq!(publisher.current().slack(), None);
        publisher.own(epoch, Some(after(2)), || ()).unwrap();
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(publisher.current().slack(), Some(Duration::ZERO));
        publisher.establish(ID, after(10));
        publisher.close(CloseReason::Requested);
        assert_eq!(publisher.current().slack(), Some(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_is_brought_forward_and_never_back() {
        let publisher = SessionPublisher::new();
        let epoch = publisher.establish(ID, after(10)).unwrap();
        let mut events = publisher.subscribe();
        let began = Instant::now();
        let (over, ()) = tokio::join!(events.over(epoch), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(publisher.limit(epoch, after(3)));
            assert!(publisher.limit(epoch, after(5)));
        });
        assert_eq!((over.state, began.elapsed()), (SessionState::Lost, Duration::from_secs(4)));
        let next = publisher.establish(ID, after(10)).unwrap();
        assert!(!publisher.limit(epoch, after(1)));
        assert!(!publisher.limit(next, Instant::now()));
        assert_eq!(publisher.current().state, SessionState::Lost);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_heartbeat_does_not_save_it_even_if_nobody_looked() {
        let publisher = SessionPublisher::new();
        let epoch = publisher.establish(ID, after(10)).unwrap();
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!publisher.extend(epoch, Instant::now(), after(10)));
        assert_eq!(publisher.current().state, SessionState::Lost);
    }

    #[tokio::test(start_paused = true)]
    async fn news_of_an_old_epoch_is_ignored() {
        let publisher = SessionPublisher::new();
        let old = publisher.establish(ID, after(10)).unwrap();
        let new = publisher.establish(SessionId::new(8), after(10)).unwrap();
        publisher.lose(old);
        publisher.suspend(old);
        assert!(!publisher.extend(old, Instant::now(), after(60)));
        let session = publisher.current();
        assert_eq!((session.epoch, session.state), (new, SessionState::Connected));
    }

    /// Found by the simulation: two runs with the same seed differed.
    #[tokio::test(start_paused = true)]
    async fn those_who_wait_wake_in_their_order() {
        let publisher = SessionPublisher::new();
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        for i in 0..20 {
            let (mut events, tell) = (publisher.subscribe(), tell.clone());
            tokio::spawn(async move {
                events.changed().await;
                tell.send(i).unwrap();
            });
        }
        tokio::task::yield_now().await;
        publisher.establish(ID, after(10));
        for i in 0..20 {
            assert_eq!(told.recv().await, Some(i));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_is_refused_to_its_end_is_the_last() {
        let closed = SessionState::Closed(CloseReason::AuthFailed);
        for (refused, state) in [(false, SessionState::Lost), (true, closed)] {
            let publisher = SessionPublisher::new();
            let epoch = publisher.establish(ID, after(10)).unwrap();
            let mut events = publisher.subscribe();
            // Records for another epoch do not count, and neither does a refusal that was withdrawn.
            publisher.set_refused(epoch + 1, true);
            publisher.set_refused(epoch, true);
            publisher.set_refused(epoch, refused);
            assert_eq!(publisher.current().state, SessionState::Connected);
            assert_eq!(events.over(epoch).await.state, state);
            assert_eq!(publisher.establish(ID, after(10)).is_none(), refused);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn closed_is_final() {
        let publisher = SessionPublisher::new();
        publisher.establish(ID, after(10));
        publisher.close(CloseReason::AuthFailed);
        publisher.close(CloseReason::Requested);
        assert_eq!(publisher.establish(ID, after(10)), None);
        assert_eq!(publisher.current().state, SessionState::Closed(CloseReason::AuthFailed));
    }
}
