//! Sessions, which own the nodes, and their deadlines.
//!
//! This file has what users see of a session at one moment. `kit/sessions` sets the state of a backend's session, with all its
//! rules; `events.rs` shows it.

pub(crate) mod events;
pub(crate) mod listener;
pub(crate) mod reporter;

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// The number of a session in its store: ZooKeeper's session ID, etcd's lease ID, the key of PostgreSQL's row.
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
    /// The store responds.
    Connected,
    /// No server is known to respond: the connection is broken, or no server has answered the last heartbeat. The store keeps the
    /// session and its nodes until the deadline.
    Suspended,
    /// The session is over: the store has ended it, or the deadline has passed. The backend is connecting with a new
    /// session. Epoch 0, before the first session, is also in this state.
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
    /// The position of the session among those of its backend, from 1. A newer epoch means that all older ones are lost.
    /// Before the first session begins, the epoch is 0, and so is the ID.
    pub epoch: u64,
    /// The state of the session.
    pub state: SessionState,
    /// The instant until which the session's nodes are guaranteed to exist. It is counted from the sending of the last
    /// request whose response proves that the store keeps the session: that instant, plus the session's timeout, less a
    /// margin. It is extended while the store responds. `None` while the session is at rest: it owns no node, so
    /// nothing depends on a deadline.
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

    /// Returns the time left until the deadline, and zero if the session is over. `None` while it is at rest, because nothing
    /// depends on a deadline then. Reads the clock, and performs no I/O.
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

    pub(crate) fn is_overdue(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}
