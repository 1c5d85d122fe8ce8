//! The sessions of a backend.

use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::failure::{Failure as _, Interrupted};
use crate::contract::background::Background;
use crate::error::failure::LastFailure;
use crate::error::{Error, ErrorKind};
use crate::nodes::node_id::NodeId;
use crate::nodes::own_nodes::{DeletionNotice, OwnNodes};
use crate::session::publisher::{Over, SessionPublisher};
use crate::session::{CloseReason, SessionId, SessionState};

/// The identity of a session that a backend has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionKey {
    /// The position among the backend's sessions, from 1.
    pub epoch: u64,
    /// The store's number of the session.
    pub id: SessionId,
}

/// The sessions of a backend, which has one at a time.
///
/// The task that keeps the session alive calls [`begin`](Self::begin) and [`end`](Self::end). Operations wait for
/// the current session and keep its [`SessionKey`], so that an answer from one session is never used in another. They
/// send only while it is [`connected`](Self::connected). `T` is what the backend needs in order to use a session, such
/// as a connection; it is released when the session ends.
///
/// The session's state and deadline are in [`publisher`](Self::publisher). A session whose deadline has passed is
/// not live, but stays current until `end` is called.
pub struct Sessions<T> {
    publisher: SessionPublisher,
    auth_failed: &'static str,
    own: OwnNodes,
    background: Background,
    state: Mutex<State<T>>,
    /// Notified at each change of `state`.
    changed: Notify,
}

struct State<T> {
    current: Option<Current<T>>,
    /// The error of the last attempt at a new session, while there is none.
    last_attempt: Option<Error>,
    /// The last sessions that ended.
    past: VecDeque<SessionId>,
}

struct Current<T> {
    key: SessionKey,
    connection: Arc<T>,
    end: Arc<End>,
}

/// The end of one session. A `Notify` wakes in the order of waiting. Tokio's watch channel wakes in a random order, so that
/// runs with the same seed would differ.
#[derive(Debug, Default)]
struct End {
    has_come: AtomicBool,
    changed: Notify,
}

impl End {
    fn come(&self) {
        self.has_come.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    async fn wait(&self) {
        let mut changed = pin!(self.changed.notified());
        changed.as_mut().enable();
        if !self.has_come.load(Ordering::Acquire) {
            changed.await;
        }
    }
}

/// The number of past sessions that are remembered. No node is deleted that many sessions after it was created.
const MAX_PAST: usize = 1000;

impl<T> Sessions<T> {
    /// Creates the state of a backend without a session.
    ///
    /// `auth_failed` is the message of operations that fail because the view was closed with
    /// [`CloseReason::AuthFailed`].
    #[must_use]
    pub fn new(auth_failed: &'static str) -> Self {
        let state = State { current: None, last_attempt: None, past: VecDeque::new() };
        Sessions {
            publisher: SessionPublisher::new(),
            auth_failed,
            own: OwnNodes::default(),
            background: Background::new(),
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the publisher of the session's state and deadline.
    ///
    /// Sessions are begun, ended and closed by the methods of `Sessions`, not by those of the publisher. Only
    /// [`SessionPublisher::lose`] is also called directly, by whatever learns first that a session is over.
    #[must_use]
    pub fn publisher(&self) -> &SessionPublisher {
        &self.publisher
    }

    /// Returns the own nodes of the current session. The list is cleared when the session ends.
    #[must_use]
    pub fn own(&self) -> &OwnNodes {
        &self.own
    }

    /// Returns the jobs for [`CoordinationBackend::background`](crate::CoordinationBackend::background), which the
    /// backend's [`Task`](super::Task) runs until the backend is closed.
    #[must_use]
    pub fn background(&self) -> &Background {
        &self.background
    }

    /// Puts a session at rest if it owns no node: it has no deadline until [`insert_own`](Self::insert_own) sets one.
    /// Returns `true` if it is at rest.
    ///
    /// A backend calls it before each heartbeat. At rest, it need not prove that the store keeps the session, and
    /// [`extend`](SessionPublisher::extend) does nothing. The sessions of a backend that never calls it always have a
    /// deadline, so it may use [`OwnNodes::insert`] alone.
    pub fn rest(&self, key: SessionKey) -> bool {
        self.publisher.rest(key.epoch, || !self.own.owns_any())
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
        let inserted = self.publisher.own(key.epoch, Some(deadline), || self.own.insert(node_id));
        inserted.ok().flatten().ok_or_else(|| self.interrupted())
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
        self.publisher.own(key.epoch, None, || self.own.insert(node_id)).map_err(|Over| self.interrupted())
    }

    /// Waits until a session is no longer at rest, or is over.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn active(&self, key: SessionKey) {
        self.publisher.has_deadline(key.epoch).await;
    }

    /// Begins a session and makes it the current one. Returns `None` if the backend is closed.
    ///
    /// `connect` returns what the backend keeps for the session.
    pub fn begin(
        &self,
        id: SessionId,
        deadline: Instant,
        connect: impl FnOnce(SessionKey) -> T,
    ) -> Option<(SessionKey, Arc<T>)> {
        let epoch = self.publisher.establish(id, deadline)?;
        let key = SessionKey { epoch, id };
        let connection = Arc::new(connect(key));
        let current = Current { key, connection: connection.clone(), end: Arc::default() };
        {
            let mut state = self.lock();
            state.last_attempt = None;
            state.current = Some(current);
        }
        self.changed.notify_waiters();
        Some((key, connection))
    }

    /// Ends a session: publishes the loss, wakes all operations that run in it, and remembers its ID for
    /// [`is_past`](Self::is_past).
    ///
    /// Returns what was kept for the session, for the caller to clean up; `None` if the backend was closed before.
    pub fn end(&self, key: SessionKey) -> Option<Arc<T>> {
        self.publisher.lose(key.epoch);
        let ended = {
            let mut state = self.lock();
            state.past.push_back(key.id);
            let surplus = state.past.len().saturating_sub(MAX_PAST);
            state.past.drain(..surplus);
            state.current.take_if(|current| current.key == key)
        };
        if ended.is_some() {
            self.own.clear();
        }
        self.wake(ended)
    }

    /// Closes the backend: ends the current session and begins no other.
    ///
    /// Returns what was kept for the session, for the caller to clean up. Needs neither a runtime nor a clock.
    pub fn close(&self, reason: CloseReason) -> Option<Arc<T>> {
        self.publisher.close(reason);
        self.background.close();
        let ended = self.lock().current.take();
        self.own.clear();
        self.wake(ended)
    }

    fn wake(&self, ended: Option<Current<T>>) -> Option<Arc<T>> {
        if let Some(current) = &ended {
            current.end.come();
        }
        self.changed.notify_waiters();
        ended.map(|current| current.connection)
    }

    /// Records the failure of an attempt at a new session. Operations that time out while there is no session report
    /// the last such error as the cause.
    pub fn attempt_failed(&self, error: Error) {
        self.lock().last_attempt = Some(error);
        self.changed.notify_waiters();
    }

    /// Returns the error of the last attempt at a new session, while there is none.
    pub(super) fn last_attempt(&self) -> Option<Error> {
        self.lock().last_attempt.clone()
    }

    /// Returns why there will be no further session, or `None` if there may be one.
    #[must_use]
    pub fn closed(&self) -> Option<Interrupted> {
        self.closed_in(self.publisher.current().state)
    }

    fn closed_in(&self, state: SessionState) -> Option<Interrupted> {
        match state {
            SessionState::Closed(CloseReason::AuthFailed) => Some(Interrupted::AuthFailed(self.auth_failed)),
            SessionState::Closed(_) => Some(Interrupted::Closed),
            _ => None,
        }
    }

    /// Returns why a request in an ended session has no response: [`Interrupted::SessionLost`], unless the backend was
    /// closed.
    #[must_use]
    pub fn interrupted(&self) -> Interrupted {
        self.closed().unwrap_or(Interrupted::SessionLost)
    }

    /// Returns `true` if the session is live: its deadline has not passed and the store has not ended it.
    #[must_use]
    pub fn is_live(&self, key: SessionKey) -> bool {
        let session = self.publisher.current();
        session.epoch == key.epoch && session.is_live()
    }

    /// Returns `true` if this was one of the backend's last 1,000 sessions and is over, and its nodes with it.
    #[must_use]
    pub fn is_past(&self, id: SessionId) -> bool {
        let current = self.publisher.current();
        current.id == id && current.state == SessionState::Lost || self.lock().past.contains(&id)
    }

    /// Returns the key of the current session, or `None` if there is none.
    #[must_use]
    pub fn current_key(&self) -> Option<SessionKey> {
        self.lock().current.as_ref().map(|current| current.key)
    }

    /// Returns what the backend keeps for a session, or `None` if that is not the current session.
    #[must_use]
    pub fn get(&self, key: SessionKey) -> Option<Arc<T>> {
        self.current(key, |current| current.connection.clone())
    }

    fn current<R>(&self, key: SessionKey, read: impl FnOnce(&Current<T>) -> R) -> Option<R> {
        self.lock().current.as_ref().filter(|current| current.key == key).map(read)
    }

    /// Returns the current session if it is connected.
    fn connected_now(&self) -> Result<Option<SessionKey>, Interrupted> {
        let session = self.publisher.current();
        if let Some(closed) = self.closed_in(session.state) {
            return Err(closed);
        }
        if session.state != SessionState::Connected {
            return Ok(None);
        }
        let current = self.lock().current.as_ref().map(|current| current.key);
        Ok(current.filter(|key| key.epoch == session.epoch))
    }

    /// Waits for a session that is connected.
    ///
    /// `waiting` is called when the wait begins, after each attempt at a session that failed, and when the connection
    /// of a session is interrupted.
    ///
    /// # Errors
    /// [`Interrupted::TimedOut`] if there is none by the deadline; why there will be none if the backend is closed.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled, if no session is connected.
    pub(super) async fn wait(
        &self,
        deadline: Instant,
        waiting: impl Fn(),
    ) -> Result<SessionKey, Interrupted> {
        if let Some(key) = self.connected_now()? {
            return Ok(key);
        }
        let mut events = self.publisher.subscribe();
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(key) = self.connected_now()? {
                return Ok(key);
            }
            waiting();
            tokio::select! {
                biased;
                () = changed => {}
                _ = events.changed() => {}
                () = sleep_until(deadline) => return Err(Interrupted::TimedOut),
            }
        }
    }

    /// Returns `true` if a session is connected, `false` if it is suspended.
    ///
    /// # Errors
    /// [`interrupted`](Self::interrupted) if it is over.
    pub fn is_connected(&self, key: SessionKey) -> Result<bool, Interrupted> {
        let session = self.publisher.current();
        if session.epoch != key.epoch || !session.is_live() {
            return Err(self.interrupted());
        }
        Ok(session.state == SessionState::Connected)
    }

    /// Waits until a session is connected. A backend calls it directly before it sends a request, so that nothing is
    /// sent while the session is suspended. Otherwise, a client library may queue requests and send all of them later.
    ///
    /// Heartbeats must not wait, because only the response to a heartbeat shows that there is a connection again.
    ///
    /// # Errors
    /// [`Interrupted::NotConnected`] at the deadline; [`interrupted`](Self::interrupted) when the session has ended.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled, if the session is suspended.
    pub async fn connected(&self, key: SessionKey, deadline: Instant) -> Result<(), Interrupted> {
        if self.is_connected(key)? {
            return Ok(());
        }
        let mut events = self.publisher.subscribe();
        while !self.is_connected(key)? {
            LastFailure::note(|| {
                Interrupted::NotConnected.explain(Error::new(ErrorKind::Unavailable, "session"))
            });
            if timeout_at(deadline, events.changed()).await.is_err() {
                return Err(Interrupted::NotConnected);
            }
        }
        Ok(())
    }

    /// Waits until a session is no longer the current one.
    ///
    /// # Cancel safety
    /// Safe.
    pub fn ended(&self, key: SessionKey) -> impl Future<Output = ()> + Send + use<T> {
        let end = self.current(key, |current| current.end.clone());
        async move {
            if let Some(end) = end {
                end.wait().await;
            }
        }
    }

    /// Runs a future until it completes, the session ends, or the deadline passes.
    ///
    /// The future is not polled if the session is not the current one. A future that completes at the same moment as
    /// the session ends has completed.
    ///
    /// # Errors
    /// [`Interrupted::TimedOut`] at the deadline; [`interrupted`](Self::interrupted) when the session has ended.
    ///
    /// # Cancel safety
    /// As safe as the future.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    pub async fn run_until_ended<F: Future>(
        &self,
        key: SessionKey,
        deadline: Instant,
        future: F,
    ) -> Result<F::Output, Interrupted> {
        let Some(end) = self.current(key, |current| current.end.clone()) else {
            return Err(self.interrupted());
        };
        tokio::select! {
            biased;
            output = future => Ok(output),
            () = end.wait() => Err(self.interrupted()),
            () = sleep_until(deadline) => Err(Interrupted::TimedOut),
        }
    }

    /// Sleeps until `deadline`, unless the backend is closed first.
    ///
    /// # Errors
    /// The reason why the backend is closed.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    pub async fn sleep_until(&self, deadline: Instant) -> Result<(), Interrupted> {
        let mut events = self.publisher.subscribe();
        let closed = async {
            loop {
                if let Some(closed) = self.closed() {
                    return closed;
                }
                events.changed().await;
            }
        };
        match timeout_at(deadline, closed).await {
            Ok(closed) => Err(closed),
            Err(_) => Ok(()),
        }
    }
}

/// Shows the current session.
impl<T> fmt::Debug for Sessions<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sessions").field(&self.publisher.current()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;
    const ID: SessionId = SessionId::new(7);

    fn after(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    fn begun() -> (Sessions<()>, SessionKey) {
        let sessions = Sessions::new("refused");
        let (key, _) = sessions.begin(ID, after(10), |_| ()).unwrap();
        (sessions, key)
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_a_live_session() {
        let sessions = Sessions::new("refused");
        let began = Instant::now();
        assert_eq!(sessions.wait(after(1), || ()).await, Err(Interrupted::TimedOut));
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        let begin = async {
            tokio::task::yield_now().await;
            sessions.begin(ID, after(10), |key| key.epoch).unwrap()
        };
        let (waited, (key, connection)) = tokio::join!(sessions.wait(after(60), || ()), begin);
        assert_eq!((waited, *connection), (Ok(key), 1));
        advance(Duration::from_secs(10)).await;
        assert_eq!(sessions.wait(after(1), || ()).await, Err(Interrupted::TimedOut));
        assert!(sessions.get(key).is_some(), "it is current until it is ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspended_session_is_waited_for_until_it_is_connected() {
        let (sessions, key) = begun();
        sessions.publisher().suspend(key.epoch);
        assert_eq!(sessions.wait(after(1), || ()).await, Err(Interrupted::TimedOut));
        let last = LastFailure::default();
        let connected = last.observe(sessions.connected(key, after(1))).await;
        assert_eq!(connected, Err(Interrupted::NotConnected));
        assert!(last.take().unwrap().to_string().contains("no connection"));
        let resume = async {
            tokio::task::yield_now().await;
            assert!(sessions.publisher().resume(key.epoch));
        };
        let both = (sessions.wait(after(1), || ()), sessions.connected(key, after(1)));
        let (waited, connected, ()) = tokio::join!(both.0, both.1, resume);
        assert_eq!((waited, connected), (Ok(key), Ok(())));
        sessions.publisher().suspend(key.epoch);
        let end = async {
            tokio::task::yield_now().await;
            sessions.end(key);
        };
        let (connected, ()) = tokio::join!(sessions.connected(key, after(1)), end);
        assert_eq!(connected, Err(Interrupted::SessionLost));
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_end_of_a_session_leaves_the_own_nodes_of_the_next() {
        let (sessions, old) = begun();
        let (next, _) = sessions.begin(SessionId::new(8), after(10), |_| ()).unwrap();
        let _deletion = sessions.own().insert(&crate::NodeId::new("node"));
        sessions.end(old);
        assert_eq!(sessions.own().len(), 1);
        sessions.end(next);
        assert!(sessions.own().is_empty());
    }

    fn node_id() -> NodeId {
        NodeId::new("node")
    }

    fn deadline(sessions: &Sessions<()>) -> Option<Instant> {
        sessions.publisher().current().deadline
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_rests_while_it_owns_nothing() {
        let (sessions, key) = begun();
        let notice = sessions.insert_own(key, &node_id(), after(60)).unwrap();
        assert_eq!(deadline(&sessions), Some(after(10)), "a write does not extend it");
        assert!(!sessions.rest(key));
        drop(notice);
        let _ = sessions.own().mark();
        assert!(!sessions.rest(key), "the node is there, although nobody asks about it any more");
        sessions.own().remove(&node_id());
        assert!(sessions.rest(key));
        assert_eq!(deadline(&sessions), None);
        advance(Duration::from_secs(3600)).await;
        assert!(sessions.is_live(key));
        // A proof from this time sets no deadline on which a later hold would rely.
        assert!(sessions.publisher().extend(key.epoch, Instant::now(), after(3600)));
        assert_eq!(deadline(&sessions), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_node_after_a_rest_sets_the_deadline() {
        let (sessions, key) = begun();
        assert!(sessions.rest(key));
        let unproved = sessions.insert_own_if_active(key, &node_id());
        assert!(unproved.unwrap().is_none() && sessions.own().is_empty());
        let mut events = sessions.publisher().subscribe();
        let over = tokio::spawn(async move { events.over(1).await });
        let (active, notice) = tokio::join!(sessions.active(key), async {
            tokio::task::yield_now().await;
            sessions.insert_own(key, &node_id(), after(5)).unwrap()
        });
        let ((), began) = (active, Instant::now());
        assert_eq!(deadline(&sessions), Some(after(5)));
        let second = sessions.insert_own_if_active(key, &node_id()).unwrap();
        assert!(!sessions.rest(key) && !notice.is_deleted() && second.is_some());
        assert!(sessions.publisher().extend(key.epoch, Instant::now(), after(7)));
        assert_eq!(over.await.unwrap().state, SessionState::Lost);
        assert_eq!(
            began.elapsed(),
            Duration::from_secs(7),
            "who waited for the end has heard of the deadline"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_node_that_comes_too_late_ends_the_session() {
        let (sessions, key) = begun();
        assert!(sessions.rest(key));
        advance(Duration::from_secs(60)).await;
        let late = sessions.insert_own(key, &node_id(), Instant::now());
        assert_eq!(late.err(), Some(Interrupted::SessionLost));
        assert!(!sessions.is_live(key) && sessions.own().is_empty());
        assert!(!sessions.rest(key));
        sessions.active(key).await;
        // A proof of an epoch that is over does not add a node to the next one.
        sessions.begin(SessionId::new(8), after(10), |_| ());
        assert!(sessions.insert_own(key, &node_id(), after(60)).is_err());
        assert!(sessions.own().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_at_rest_ends_when_it_is_given_up() {
        for (refused, state) in
            [(false, SessionState::Lost), (true, SessionState::Closed(CloseReason::AuthFailed))]
        {
            let (sessions, key) = begun();
            sessions.publisher().give_up(key.epoch);
            assert!(sessions.is_live(key) && sessions.rest(key), "it has a deadline to end by");
            sessions.publisher().set_refused(key.epoch, refused);
            sessions.publisher().give_up(key.epoch);
            assert_eq!(sessions.publisher().current().state, state);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_failed_attempt_is_seen_by_who_waits() {
        let sessions = Sessions::<()>::new("refused");
        let seen = Mutex::new(Vec::new());
        let waiting = || seen.lock().unwrap().push(sessions.last_attempt().map(|e| e.to_string()));
        let attempts = async {
            for _ in 0..2 {
                tokio::task::yield_now().await;
                sessions.attempt_failed(Error::new(ErrorKind::Unavailable, "connect"));
            }
        };
        let (waited, ()) = tokio::join!(sessions.wait(after(1), waiting), attempts);
        assert_eq!(waited, Err(Interrupted::TimedOut));
        let failed = Some("connect: no server available".to_owned());
        assert_eq!(*seen.lock().unwrap(), [None, failed.clone(), failed]);
        sessions.begin(ID, after(10), |_| ());
        assert!(sessions.last_attempt().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_session_stops_what_runs_in_it() {
        let (sessions, key) = begun();
        let ended = sessions.ended(key);
        let end = async {
            tokio::task::yield_now().await;
            assert!(sessions.end(key).is_some());
        };
        let (run, ()) = tokio::join!(sessions.run_until_ended(key, after(60), pending::<()>()), end);
        assert_eq!(run, Err(Interrupted::SessionLost));
        ended.await;
        sessions.ended(key).await;
        assert!(sessions.get(key).is_none() && sessions.is_past(ID) && !sessions.is_live(key));
        let run = sessions.run_until_ended(key, after(60), async { unreachable!() });
        assert_eq!(run.await, Err::<(), _>(Interrupted::SessionLost));
        // Late news of an old session does not affect the next one.
        let (next, _) = sessions.begin(SessionId::new(8), after(10), |_| ()).unwrap();
        assert!(sessions.end(key).is_none() && sessions.is_live(next) && sessions.get(next).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_that_completes_counts_also_at_the_deadline() {
        let (sessions, key) = begun();
        assert_eq!(sessions.run_until_ended(key, Instant::now(), ready(1)).await, Ok(1));
        let run = sessions.run_until_ended(key, after(1), pending::<()>());
        assert_eq!(run.await, Err(Interrupted::TimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_begins_after_the_close() {
        let (sessions, key) = begun();
        let (slept, closed) = tokio::join!(sessions.sleep_until(after(60)), async {
            tokio::task::yield_now().await;
            sessions.close(CloseReason::AuthFailed)
        });
        assert_eq!(slept, Err(Interrupted::AuthFailed("refused")));
        assert!(closed.is_some() && sessions.close(CloseReason::Requested).is_none());
        assert!(sessions.begin(ID, after(10), |_| ()).is_none() && sessions.end(key).is_none());
        assert_eq!(sessions.wait(after(1), || ()).await, Err(Interrupted::AuthFailed("refused")));
        assert_eq!(sessions.interrupted(), Interrupted::AuthFailed("refused"));
    }

    #[test]
    fn past_sessions_are_forgotten_after_a_thousand() {
        let sessions = Sessions::<()>::new("refused");
        for number in 1..=1001 {
            sessions.end(SessionKey { epoch: number, id: SessionId::new(number) });
        }
        assert!(!sessions.is_past(SessionId::new(1)) && sessions.is_past(SessionId::new(2)));
    }
}
