//! Sessions, which own the nodes, and their deadlines.

use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until};

use crate::observer::{Observer, Slot};

/// The number that the store gave a session: ZooKeeper's session ID, etcd's lease ID.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(u64);

impl SessionId {
    /// Creates a session ID from its number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        SessionId(number)
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The state of a session.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionState {
    /// The store answers.
    Connected,
    /// The store does not answer. The session lives on there, with its nodes, until the deadline.
    Suspended,
    /// The session is over: the store said so, or the deadline has passed. The backend is connecting with a new one. Also
    /// the state of epoch 0, before the first session.
    Lost,
    /// The session is over, and there will be no new one.
    Closed(CloseReason),
}

/// The reason why there will be no new session.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The client was closed or dropped, or the runtime that its backend lives on has ended.
    Requested,
    /// The store refused the credentials, or a permission that the session needs.
    AuthFailed,
}

/// A snapshot of the session.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The number that the store gave the session.
    pub id: SessionId,
    /// The number of the session among those of its backend, from 1. A newer epoch means that every older one is lost. Before
    /// the first session begins, the epoch is 0, and so is the ID.
    pub epoch: u64,
    /// The state of the session.
    pub state: SessionState,
    /// The instant until which the session's nodes are guaranteed to exist: when the last request was sent whose answer
    /// proves that the store keeps the session, plus the session's timeout, less a margin. Moves on while the store
    /// answers. `None` while the session is at rest: it owns no node, so nothing depends on a deadline.
    pub deadline: Option<Instant>,
}

/// The timing of a session, as granted by the server when the session began.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTerms {
    /// The session timeout that the server granted, which may differ from the one that was requested.
    pub timeout: Duration,
    /// The time between two heartbeats while the session owns a node.
    pub heartbeat: Duration,
    /// The time from sending an answered heartbeat to the deadline, as long as no heartbeat is late.
    pub life: Duration,
}

impl SessionTerms {
    /// Creates the terms from their fields.
    #[must_use]
    pub const fn new(timeout: Duration, heartbeat: Duration, life: Duration) -> Self {
        SessionTerms { timeout, heartbeat, life }
    }
}

impl Session {
    /// Returns `true` if nodes of this session certainly existed when the snapshot was taken.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let session = client.session_events().current();
    /// assert!(session.is_live());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self.state, SessionState::Connected | SessionState::Suspended)
    }

    /// Returns how much time is left until the deadline, and zero if the session is over. `None` while it is at rest:
    /// then nothing depends on a deadline. Reads the clock, and performs no I/O.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use std::time::Duration;
    ///
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// let slack = client.session_events().current().slack();
    /// assert!(slack.is_some_and(|slack| slack > Duration::from_secs(1)));
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn slack(&self) -> Option<Duration> {
        if !self.is_live() {
            return Some(Duration::ZERO);
        }
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    fn is_overdue(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// The epoch is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over;

/// The backend's side of [`SessionEvents`], which sets the state of the session. Dropping it closes the view.
///
/// A method that takes an epoch is a no-op once a newer one has begun, so that late news of an old session cannot
/// affect the new one. `Lost` is final for an epoch: once any caller has seen that the deadline has passed, a late
/// heartbeat cannot revive the session.
#[derive(Debug)]
pub struct SessionPublisher(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    current: Mutex<Current>,
    /// Told at each change of epoch or state, and when a session at rest gets a deadline; not when that moves. It wakes in the order of waiting:
    /// tokio's watch channel does so in a random one, and then a seed is not the same run twice.
    changed: Notify,
    observer: Slot,
}

#[derive(Debug)]
struct Current {
    session: Session,
    /// The store refused its last request to keep this session alive.
    refused: bool,
    /// The longest time to the deadline so far.
    life: Duration,
}

impl Current {
    fn note_life(&mut self) {
        let left = self.session.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.life = self.life.max(left.unwrap_or_default());
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session, over if its deadline has passed. The clock is read under the lock: two looks in a row
    /// can never go from lost to live.
    fn now(&self) -> MutexGuard<'_, Current> {
        let mut current = self.lock();
        let Current { session, refused, .. } = &mut *current;
        if session.is_live() && session.is_overdue() {
            self.expire(session, *refused);
        }
        current
    }

    fn expire(&self, session: &mut Session, refused: bool) {
        let closed = SessionState::Closed(CloseReason::AuthFailed);
        self.update(session, if refused { closed } else { SessionState::Lost });
    }

    fn update(&self, session: &mut Session, state: SessionState) {
        if session.state != state {
            session.state = state;
            self.changed.notify_waiters();
        }
    }
}

impl SessionPublisher {
    /// Creates a publisher in whose view no session has begun: epoch 0, lost.
    #[must_use]
    pub fn new() -> Self {
        let session = Session { id: SessionId::new(0), epoch: 0, state: SessionState::Lost, deadline: None };
        let current = Mutex::new(Current { session, refused: false, life: Duration::ZERO });
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
        *current = Current { session, refused: false, life: Duration::ZERO };
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
            // Those who wait for the end now have a deadline to wait for, and the backend has one to keep.
            self.0.changed.notify_waiters();
        }
        Ok(Some(insert()))
    }

    /// Ends a session at rest whose store was silent for its whole timeout, as if a deadline had passed.
    ///
    /// Does nothing to a session with a deadline, which ends by that alone.
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

    /// Records whether the store refused its last request to keep the session alive. If the deadline passes while
    /// it does, the view is closed with [`CloseReason::AuthFailed`] instead of the session being lost: no next
    /// session would fare better.
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

/// A level-triggered view of a backend's session: it returns the current state and waits for changes. States between
/// two calls may be skipped. A newer epoch means that the older one is lost.
#[derive(Clone, Debug)]
pub struct SessionEvents {
    shared: Arc<Shared>,
    pub(crate) seen: (u64, SessionState),
}

impl SessionEvents {
    /// Returns the current state of the session. After the deadline it is [`Lost`](SessionState::Lost), whatever the
    /// network or the client library says. Performs no I/O.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use zlock::SessionState;
    ///
    /// let session = client.session_events().current();
    /// assert_eq!((session.epoch, session.state), (1, SessionState::Connected));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn current(&self) -> Session {
        self.shared.now().session
    }

    /// Returns the epoch of the latest session. Unlike [`current`](Self::current) it needs no clock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// assert_eq!(client.session_events().epoch(), 1); // the client's first session
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.shared.lock().session.epoch
    }

    /// Returns the longest time to the deadline that the present session has had, by the answers so far; zero before the
    /// first session. A healthy session stays well above half of it. Needs no clock.
    #[must_use]
    pub fn longest_slack(&self) -> Duration {
        self.shared.lock().life
    }

    /// Returns `true` if the session of `epoch` is live at this moment.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let events = client.session_events();
    /// assert!(events.is_live(events.epoch()));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_live(&self, epoch: u64) -> bool {
        let session = self.current();
        session.epoch == epoch && session.is_live()
    }

    /// Sets the observer of the session, for as long as its backend lives. Returns `false` if it has one already, which it
    /// then keeps: the first one of the clients that share a backend.
    ///
    /// [`Client::observe`](https://docs.rs/zlock/latest/zlock/struct.Client.html#method.observe) calls it. The observer must not panic.
    pub fn observe(&self, observer: Arc<dyn Observer>) -> bool {
        self.shared.observer.set(observer)
    }

    pub(crate) fn observer(&self) -> &Slot {
        &self.shared.observer
    }

    /// The session as it was last seen. Reads no clock.
    pub(crate) fn last_seen(&self) -> Session {
        self.shared.lock().session
    }

    /// Completes at the next change of epoch or state, or when a session at rest gets a deadline.
    pub(crate) fn notified(&self) -> Notified<'_> {
        self.shared.changed.notified()
    }

    /// Returns `true` if both are views of the same backend's session.
    #[must_use]
    pub fn is_same(&self, other: &SessionEvents) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Waits until the epoch or the state differs from the last one seen here, and returns the session.
    /// [`Closed`](SessionState::Closed) is the last change; after it this never completes.
    ///
    /// # Cancel safety
    /// Safe: a change that was not returned is returned by the next call.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// use zlock::{Client, SessionState};
    /// use zlock::mem::MemServer;
    ///
    /// let backend = MemServer::new().connect();
    /// let link = backend.link();
    /// let client = Client::new(backend);
    /// let mut events = client.session_events();
    /// link.expire();
    /// while events.current().epoch < 2 {
    ///     println!("{:?}", events.changed().await.state);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn changed(&mut self) -> Session {
        let shared = self.shared.clone();
        loop {
            let mut changed = pin!(shared.changed.notified());
            changed.as_mut().enable();
            let session = self.current();
            if (session.epoch, session.state) != self.seen {
                self.seen = (session.epoch, session.state);
                return session;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = deadline(session), if session.is_live() => {}
            }
        }
    }

    /// Waits until the session of `epoch` is over, and returns the session at that moment.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// # let backend = server.connect();
    /// # let link = backend.link();
    /// # let client = zlock::Client::new(backend);
    /// let mut events = client.session_events();
    /// let epoch = events.epoch();
    /// link.expire(); // the server ends the session
    /// let session = events.over(epoch).await;
    /// assert!(!session.is_live() || session.epoch > epoch);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn over(&mut self, epoch: u64) -> Session {
        loop {
            let session = self.current();
            if session.epoch != epoch || !session.is_live() {
                return session;
            }
            self.changed().await;
        }
    }

    /// Completes when the view is closed. Needs neither a timer nor a clock.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let mut events = client.session_events();
    /// client.close().await?;
    /// events.closed().await; // completes at once
    /// # Ok(())
    /// # }
    /// ```
    pub async fn closed(&self) {
        loop {
            let mut changed = pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            if matches!(self.shared.lock().session.state, SessionState::Closed(_)) {
                return;
            }
            changed.await;
        }
    }
}

/// Waits for the deadline; for ever if there is none.
async fn deadline(session: Session) {
    match session.deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
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

    /// Found by the simulation: a seed was not the same run twice.
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
            // What is said of another epoch does not count, nor does a refusal that was taken back.
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
