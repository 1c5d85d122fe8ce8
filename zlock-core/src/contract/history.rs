//! What a store without sessions can say of its own past, which restarts and failovers may have changed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::{Error, ErrorKind, Result};

/// What a restart or a failover of a store may lose. It is a setting of the store, the same for all clients.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// One server, until there is a sign of another one: then lossy for good. The default.
    Auto,
    /// A restart or a failover may lose commits that were waited for. Each ends all sessions, and begins quiet time.
    Lossy,
    /// The server flushes and is never replaced by a copy. A restart loses nothing that was waited for, and the sessions go on. A
    /// failover may, and ends all sessions.
    OneServer,
    /// Neither a restart nor a failover loses anything that was waited for, and the sessions go on.
    Sync,
    /// All clients and the store are on one machine. A restart of that ends all sessions.
    OneMachine,
}

impl Class {
    const TEXTS: [(Class, &str); 5] = [
        (Class::Auto, "auto"),
        (Class::Lossy, "lossy"),
        (Class::OneServer, "one-server"),
        (Class::Sync, "sync"),
        (Class::OneMachine, "one-machine"),
    ];
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Class::TEXTS.iter().find(|(class, _)| class == self).map_or("", |(_, text)| text);
        f.write_str(text)
    }
}

/// Parses `auto`, `lossy`, `one-server`, `sync` or `one-machine`.
impl FromStr for Class {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let class = Class::TEXTS.iter().find(|(_, known)| *known == text).map(|(class, _)| *class);
        class.ok_or_else(|| {
            let known = Class::TEXTS.map(|(_, text)| text).join(", ");
            Error::new(ErrorKind::InvalidArgument, "class")
                .with_message(format!("{text:?} is none of {known}"))
        })
    }
}

/// The settings of a store that has no sessions of its own.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// The class as it was set.
    pub class: Class,
    /// Whether a restart ends all sessions: because of the class, or found out by [`Class::Auto`].
    pub is_lossy: bool,
    /// Why, if that was found out.
    pub reason: Option<String>,
    /// The longest timeout of a session that owns something.
    pub longest: Duration,
    /// For how long a server that was replaced may go on.
    pub overlap: Duration,
    /// How much longer clients have to watch the store before it grants anything. `None` outside quiet time.
    pub settles_in: Option<Duration>,
}

impl StoreSettings {
    /// Creates the settings of a store outside quiet time.
    #[must_use]
    pub fn new(class: Class, is_lossy: bool, longest: Duration, overlap: Duration) -> Self {
        StoreSettings { class, is_lossy, reason: None, longest, overlap, settles_in: None }
    }
}

/// A store that grants nothing for a while after it may have lost commits: *quiet time*. It lasts until all sessions that may have been lost
/// are certainly over.
#[async_trait]
pub trait StoreHistory: Send + Sync {
    /// Returns the settings of the store.
    ///
    /// # Errors
    /// `Unavailable` if the store does not respond; `NotAuthorized` if it refuses access.
    async fn settings(&self) -> Result<StoreSettings>;

    /// Sets the class of the store, for all clients.
    ///
    /// # Errors
    /// `InvalidArgument` if the server does not allow that class; those of [`settings`](Self::settings).
    async fn set_class(&self, class: Class) -> Result<()>;

    /// Waits until the store grants locks: helps to end quiet time, which only passes while clients watch the store.
    ///
    /// # Errors
    /// `Closed` if the backend is closed.
    ///
    /// # Cancel safety
    /// Safe: what was watched counts.
    async fn settle(&self) -> Result<()>;

    /// Declares that a backup was put back, or that the store lost commits in another way without a restart. That ends all sessions, and
    /// begins quiet time.
    ///
    /// # Errors
    /// Those of [`settings`](Self::settings).
    async fn restored(&self) -> Result<()>;
}
