//! The user's side of a session's state.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::futures::Notified;
use tokio::time::sleep_until;

use crate::observer::Slot;
use crate::session::shared::Shared;
use crate::session::{Session, SessionState};

/// A level-triggered view of a backend's session: it returns the current state and waits for changes. States between
/// two calls may be skipped. A newer epoch means that the older one is lost.
#[derive(Clone, Debug)]
pub struct SessionEvents {
    pub(crate) shared: Arc<Shared>,
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

    /// Returns the longest time to the deadline that the current session has had according to the responses so far. `None`
    /// before the first session. A healthy session stays well above half of it. Needs no clock.
    #[must_use]
    pub fn longest_slack(&self) -> Option<Duration> {
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

    pub(crate) fn observer(&self) -> &Slot {
        &self.shared.observer
    }

    /// Returns the session as last seen. Reads no clock.
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

/// Waits for the deadline, or forever if there is none.
async fn deadline(session: Session) {
    match session.deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}
