//! Views of a session's state, as its backend has published it.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::mutex::Mutex;
use crate::observer::Slot;
use crate::session::{CloseReason, Session, SessionId, SessionState};
use crate::signal::{Signal, sleep_until};

/// The state of a backend's session, which [`Sessions`](crate::kit::Sessions) sets and [`SessionEvents`] shows.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) now: Mutex<Now>,
    /// Notified at each change of epoch or state, and when a session at rest gets a deadline, but not when the deadline
    /// moves.
    pub(crate) changed: Signal,
    pub(crate) observer: Slot,
}

#[derive(Debug)]
pub(crate) struct Now {
    pub(crate) session: Session,
    /// `true` if the store refused its last request to keep this session alive.
    pub(crate) refused: bool,
    /// The number of responses that have shown that the store answers.
    pub(crate) responses: u64,
    /// The longest time to the deadline so far. `None` before the first session.
    pub(crate) life: Option<Duration>,
}

impl Now {
    /// Returns the state of a session that was just made, or that has not begun.
    pub(crate) fn new(session: Session) -> Self {
        let mut now = Now { session, refused: false, responses: 0, life: None };
        now.note_life();
        now
    }

    pub(crate) fn note_life(&mut self) {
        let left = self.session.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.life = self.life.max(left);
    }
}

impl Published {
    /// Creates the state of a backend without a session: epoch 0, lost.
    pub(crate) fn new() -> Self {
        let session = Session { id: SessionId::new(0), epoch: 0, state: SessionState::Lost, deadline: None };
        Published {
            now: Mutex::new(Now::new(session)),
            changed: Signal::default(),
            observer: Slot::default(),
        }
    }

    /// Returns the session, which is over if its deadline has passed. The clock is read under the mutex, so that two calls in
    /// a row never go from lost to live.
    pub(crate) fn now(&self) -> MutexGuard<'_, Now> {
        let mut now = self.now.lock();
        self.expire_if_overdue(&mut now);
        now
    }

    pub(crate) fn expire_if_overdue(&self, now: &mut Now) {
        if now.session.is_live() && now.session.is_overdue() {
            self.expire(now);
        }
    }

    /// Ends a session as if its deadline had passed. If the store refuses it, there will be no next one.
    pub(crate) fn expire(&self, now: &mut Now) {
        let closed = SessionState::Closed(CloseReason::AuthFailed);
        self.set(now, if now.refused { closed } else { SessionState::Lost });
    }

    pub(crate) fn set(&self, now: &mut Now, state: SessionState) {
        if now.session.state != state {
            now.session.state = state;
            self.changed.notify();
        }
    }
}

/// A level-triggered view of a backend's session: it returns the current state and waits for changes. States between
/// two calls may be skipped. A newer epoch means that the older one is lost.
#[derive(Clone, Debug)]
pub struct SessionEvents {
    pub(crate) published: Arc<Published>,
    pub(crate) seen: (u64, SessionState),
}

impl SessionEvents {
    pub(crate) fn new(published: &Arc<Published>) -> Self {
        let Session { epoch, state, .. } = published.now.lock().session;
        SessionEvents { published: published.clone(), seen: (epoch, state) }
    }

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
        self.published.now().session
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
        self.last_seen().epoch
    }

    /// Returns the longest time to the deadline that the current session has had according to the responses so far. `None`
    /// before the first session. A healthy session stays well above half of it. Needs no clock.
    #[must_use]
    pub fn longest_slack(&self) -> Option<Duration> {
        self.published.now.lock().life
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

    pub(crate) fn observer(&self) -> &Slot {
        &self.published.observer
    }

    /// Returns the session as last seen. Reads no clock.
    pub(crate) fn last_seen(&self) -> Session {
        self.published.now.lock().session
    }

    /// Returns `true` if both are views of the same backend's session.
    #[must_use]
    pub fn is_same(&self, other: &SessionEvents) -> bool {
        Arc::ptr_eq(&self.published, &other.published)
    }

    /// Waits until the epoch or the state differs from the last one seen here, and returns the session.
    /// [`Closed`](SessionState::Closed) is the last change; after it this never completes.
    ///
    /// # Cancel safety
    /// Safe: a change that was not returned is returned by the next call.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
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
        let published = self.published.clone();
        loop {
            let changed = published.changed.notified();
            let session = self.current();
            if (session.epoch, session.state) != self.seen {
                self.seen = (session.epoch, session.state);
                return session;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(session.deadline), if session.is_live() => {}
            }
        }
    }

    /// Waits until the session of `epoch` is over, and returns the session at that moment.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
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
    /// let session = events.ended(epoch).await;
    /// assert!(!session.is_live() || session.epoch > epoch);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ended(&mut self, epoch: u64) -> Session {
        self.until(|session| session.epoch != epoch || !session.is_live()).await
    }

    /// Waits until `is` returns `true` of the session, and returns the session at that moment.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled, unless `is` returns `true` at once.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use zlock::SessionState;
    ///
    /// let session = client.session_events().until(|session| session.state == SessionState::Connected).await;
    /// assert!(session.is_live());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn until(&mut self, is: impl Fn(Session) -> bool) -> Session {
        loop {
            let session = self.current();
            if is(session) {
                return session;
            }
            self.changed().await;
        }
    }

    /// Completes when the view is closed: there will be no further session. Needs neither a timer nor a clock.
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
        let is_closed = || matches!(self.last_seen().state, SessionState::Closed(_));
        self.published.changed.until(|| is_closed().then_some(())).await;
    }
}
