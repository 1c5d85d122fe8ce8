//! The sessions of a backend, one after another: which one is current, and what waits for it or runs in it.

mod state;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::failure::{Failure as _, Interrupted};
use super::failure_log::FailureLog;
use crate::contract::background::Background;
use crate::contract::watch::{Watch, WatchEvent};
use crate::error::failure::LastFailure;
use crate::error::{Error, ErrorKind};
use crate::mutex::Mutex;
use crate::nodes::own_nodes::OwnNodes;
use crate::observer::Observer;
use crate::session::events::{Now, Published};
use crate::session::{CloseReason, Session, SessionId, SessionState};
use crate::signal::{Flag, Signal};

/// The identity of a session that a backend has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
/// A session whose deadline has passed is not live, but stays current until `end` is called. Dropping this closes the
/// [views](Self::events).
pub struct Sessions<T> {
    published: Arc<Published>,
    auth_failed: &'static str,
    own: OwnNodes,
    background: Background,
    state: Mutex<State<T>>,
    /// Notified at each change of `state`.
    changed: Signal,
}

struct State<T> {
    current: Option<Current<T>>,
    /// The error of the last attempt at a new session, while there is none.
    last_attempt: Option<Error>,
    attempts_log: FailureLog,
    /// The last sessions that ended.
    past: VecDeque<SessionId>,
}

struct Current<T> {
    key: SessionKey,
    connection: Arc<T>,
    end: Arc<Flag>,
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
        let state = State {
            current: None,
            last_attempt: None,
            attempts_log: FailureLog::default(),
            past: VecDeque::new(),
        };
        Sessions {
            published: Arc::new(Published::new()),
            auth_failed,
            own: OwnNodes::default(),
            background: Background::new(),
            state: Mutex::new(state),
            changed: Signal::default(),
        }
    }

    /// Returns the observer that the operations report to, if one is set.
    pub(crate) fn observer(&self) -> Option<&Arc<dyn Observer>> {
        self.published.observer.get()
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

    /// Begins a session and makes it the current one. Returns `None` if the backend is closed.
    ///
    /// `connect` returns what the backend keeps for the session.
    pub fn begin(
        &self,
        id: SessionId,
        deadline: Instant,
        connect: impl FnOnce(SessionKey) -> T,
    ) -> Option<(SessionKey, Arc<T>)> {
        let key = self.establish(id, deadline)?;
        let connection = Arc::new(connect(key));
        let current = Current { key, connection: connection.clone(), end: Arc::default() };
        {
            let mut state = self.state.lock();
            (state.last_attempt, state.attempts_log) = (None, FailureLog::default());
            state.current = Some(current);
        }
        self.changed.notify();
        Some((key, connection))
    }

    /// Publishes the next session. Returns `None` if the backend is closed.
    fn establish(&self, id: SessionId, deadline: Instant) -> Option<SessionKey> {
        let mut now = self.published.now.lock();
        if matches!(now.session.state, SessionState::Closed(_)) {
            return None;
        }
        let epoch = now.session.epoch + 1;
        *now = Now::new(Session { id, epoch, state: SessionState::Connected, deadline: Some(deadline) });
        self.published.changed.notify();
        Some(SessionKey { epoch, id })
    }

    /// Ends a session: publishes the loss, wakes all operations that run in it, and remembers its ID for
    /// [`is_past`](Self::is_past).
    ///
    /// Returns what was kept for the session, for the caller to clean up; `None` if the backend was closed before.
    pub fn end(&self, key: SessionKey) -> Option<Arc<T>> {
        self.lose(key);
        let ended = {
            let mut state = self.state.lock();
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
        self.publish_close(reason);
        self.background.close();
        let ended = self.state.lock().current.take();
        self.own.clear();
        self.wake(ended)
    }

    fn publish_close(&self, reason: CloseReason) {
        let mut now = self.published.now.lock();
        if !matches!(now.session.state, SessionState::Closed(_)) {
            self.published.set(&mut now, SessionState::Closed(reason));
        }
    }

    fn wake(&self, ended: Option<Current<T>>) -> Option<Arc<T>> {
        if let Some(current) = &ended {
            current.end.raise();
        }
        self.changed.notify();
        ended.map(|current| current.connection)
    }

    /// Records the failure of an attempt at a new session, and logs it if its [`FailureLog`] says so. Operations that time out
    /// while there is no session report the last such error as the cause.
    pub fn attempt_failed(&self, error: Error) {
        let is_due = {
            let mut state = self.state.lock();
            state.last_attempt = Some(error.clone());
            state.attempts_log.record(&error)
        };
        if is_due {
            tracing::warn!(%error, "no session yet");
        }
        self.changed.notify();
    }

    /// Returns the error of the last attempt at a new session, while there is none.
    pub(super) fn last_attempt(&self) -> Option<Error> {
        self.state.lock().last_attempt.clone()
    }

    /// Returns why there will be no further session, or `None` if there may be one.
    #[must_use]
    pub fn closed(&self) -> Option<Interrupted> {
        self.closed_in(self.session().state)
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

    /// Returns `true` if this was one of the backend's last 1,000 sessions and is over, and its nodes with it.
    #[must_use]
    pub fn is_past(&self, id: SessionId) -> bool {
        let current = self.session();
        current.id == id && current.state == SessionState::Lost || self.state.lock().past.contains(&id)
    }

    /// Returns the key of the current session, or `None` if there is none.
    #[must_use]
    pub fn current_key(&self) -> Option<SessionKey> {
        self.state.lock().current.as_ref().map(|current| current.key)
    }

    /// Returns what the backend keeps for a session, or `None` if that is not the current session.
    #[must_use]
    pub fn get(&self, key: SessionKey) -> Option<Arc<T>> {
        self.current(key, |current| current.connection.clone())
    }

    fn current<R>(&self, key: SessionKey, read: impl FnOnce(&Current<T>) -> R) -> Option<R> {
        self.state.lock().current.as_ref().filter(|current| current.key == key).map(read)
    }

    /// Returns the current session if it is connected.
    fn connected_now(&self) -> Result<Option<SessionKey>, Interrupted> {
        let session = self.session();
        if let Some(closed) = self.closed_in(session.state) {
            return Err(closed);
        }
        if session.state != SessionState::Connected {
            return Ok(None);
        }
        let current = self.state.lock().current.as_ref().map(|current| current.key);
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
        let mut events = self.events();
        loop {
            let changed = self.changed.notified();
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
        let mut events = self.events();
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
                end.raised().await;
            }
        }
    }

    /// Returns a watch that fires with this event, or with [`WatchEvent::Changed`] if the session ends before. An event at the same
    /// moment as the end counts.
    pub fn watch(&self, key: SessionKey, event: impl Future<Output = WatchEvent> + Send + 'static) -> Watch {
        let mut events = self.events();
        Watch::new(async move {
            tokio::select! {
                biased;
                event = event => event,
                _ = events.ended(key.epoch) => WatchEvent::Changed,
            }
        })
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
            () = end.raised() => Err(self.interrupted()),
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
        let mut events = self.events();
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

impl<T> Drop for Sessions<T> {
    fn drop(&mut self) {
        self.publish_close(CloseReason::Requested);
    }
}

/// Shows the current session.
impl<T> fmt::Debug for Sessions<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sessions").field(&self.session()).finish()
    }
}
