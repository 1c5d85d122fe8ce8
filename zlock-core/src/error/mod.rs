//! One error type for every backend and recipe.

pub(crate) mod excerpt;
pub(crate) mod failure;

use std::fmt;
use std::sync::Arc;

/// A [`Result`](std::result::Result) whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of every operation, with its kind, the operation and the path.
///
/// Three questions have separate answers. [`kind`](Error::kind) says what happened,
/// [`is_retryable`](Error::is_retryable) whether to try again, and [`is_ambiguous`](Error::is_ambiguous) whether the server
/// may have executed the request all the same.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    operation: &'static str,
    path: Option<String>,
    message: Option<String>,
    ambiguous: bool,
    lock_lost: bool,
    cause: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// The kind of an [`Error`]. The documentation of each kind says what to do about it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A path or a name is invalid on every store. Nothing was sent. Correct the path.
    InvalidPath,
    /// A connection URL cannot be parsed. Nothing was sent. Correct the URL.
    InvalidUrl,
    /// An option, a duration or a number of permits is out of range, and nothing was sent; or the path is of another use in the
    /// store. The message says which. Correct the value or the path.
    InvalidArgument,
    /// The URL names a backend whose cargo feature is off. Enable the feature.
    FeatureDisabled,
    /// A call of the blocking API in a place where it must not block or cannot work: inside an async runtime, or in the destructor
    /// of a thread-local. The message says which. Nothing was sent. Use the async API, or call it earlier.
    BlockingRefused,
    /// The time given for an acquisition ended before it had its place in the queue. Nothing is held and nothing is
    /// left behind. The phase says what the time was spent on. The cause is the store's last failure, if it was still
    /// failing.
    Timeout(Phase),
    /// The time given for an acquisition ended while it waited for its turn in the queue. Nothing is held and nothing
    /// is left behind. Try again later.
    Busy,
    /// Another client is a member of the group with this ID, or a value or the parent of a lock has the name. Choose another ID, or
    /// take that of a member over if its owner is known to be gone.
    Taken,
    /// A write lock was requested in the scope of a read lock of the same path, where it would deadlock. Nothing was
    /// sent. Release the read lock first, or acquire the write lock instead.
    UpgradeRefused,
    /// Guards exist that have to be dropped first; nothing was sent. A downgrade was requested while the write lock has other
    /// guards. Or a thread acquires a lock of which it still has a guard, but that lock is lost.
    StillEntered,
    /// The lock was held for longer than its `max_hold`. It is not lost: no other client holds it before the guard is dropped.
    HeldTooLong,
    /// Another client uses the semaphore with a different maximum. The message names both. Nothing is held, and
    /// nothing is left behind. Use the same maximum everywhere.
    PermitLimitMismatch,
    /// The session of the lock, or of the place in the queue, is over: it expired at the server, or its local deadline
    /// has passed. The lock is no longer held. Acquire it again; the client is already connecting with a new session.
    SessionLost,
    /// Another client deleted the node of this lock, or of this place in the queue. The lock is no longer held. Acquire
    /// it again.
    NodeDeleted,
    /// The lock was released by its holder. Only a [`LockContext`] that outlives its guard reports this.
    ///
    /// [`LockContext`]: https://docs.rs/zlock/latest/zlock/struct.LockContext.html
    Released,
    /// The client was closed, or the runtime that its backend lives on has ended. This is final for the client.
    Closed,
    /// [`Client::shutdown`] was called: the client acquires no more locks. Nothing is held by this call, and nothing is left
    /// behind. This is final for the client.
    ///
    /// [`Client::shutdown`]: https://docs.rs/zlock/latest/zlock/struct.Client.html#method.shutdown
    ShuttingDown,
    /// The store refuses the credentials, or access to this path. Trying again does not help until either is corrected.
    NotAuthorized,
    /// No server answered within the operation's budget of time and retries. An acquisition that has its place in the queue
    /// does not fail with this kind: it asks again. On ZooKeeper, also returned when the client already watches as much as
    /// it can. Try again later.
    Unavailable,
    /// The store was restarted or replaced and may have lost commits, so it grants nothing until all that was granted before is certainly
    /// over: about as long as its longest session timeout. Try again later. Only stores without sessions, such as PostgreSQL, have it.
    Settling,
    /// The store returned an unexpected response; the cause has the details. Report it as a bug.
    Unexpected,
}

/// The phase of an acquisition in which its time ended.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Waiting for a session with the store. No server was reached.
    Connecting,
    /// Creating the node. It may exist, in which case the client removes it.
    Queueing,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Connecting => "connecting",
            Phase::Queueing => "queueing",
        })
    }
}

impl ErrorKind {
    /// Returns a stable name in lower case, such as `session_lost`, for the label of a metric or a field of a log.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(zlock::ErrorKind::SessionLost.as_str(), "session_lost");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.texts().0
    }

    /// Returns the stable name, and the text for people.
    fn texts(self) -> (&'static str, &'static str) {
        match self {
            ErrorKind::InvalidPath => ("invalid_path", "invalid path"),
            ErrorKind::InvalidUrl => ("invalid_url", "invalid url"),
            ErrorKind::InvalidArgument => ("invalid_argument", "invalid argument"),
            ErrorKind::FeatureDisabled => ("feature_disabled", "feature disabled"),
            ErrorKind::BlockingRefused => ("blocking_refused", "a blocking call is not possible here"),
            ErrorKind::Timeout(_) => ("timeout", "timed out"),
            ErrorKind::Busy => ("busy", "others hold it or are ahead in the queue"),
            ErrorKind::Taken => ("taken", "the ID is taken"),
            ErrorKind::UpgradeRefused => ("upgrade_refused", "a read lock cannot become a write lock"),
            ErrorKind::StillEntered => ("still_entered", "other guards of the lock are alive"),
            ErrorKind::HeldTooLong => ("held_too_long", "held too long"),
            ErrorKind::PermitLimitMismatch => ("permit_limit_mismatch", "the semaphore has another maximum"),
            ErrorKind::SessionLost => ("session_lost", "session lost"),
            ErrorKind::NodeDeleted => ("node_deleted", "own node deleted"),
            ErrorKind::Released => ("released", "released"),
            ErrorKind::Closed => ("closed", "closed"),
            ErrorKind::ShuttingDown => ("shutting_down", "the client is shutting down"),
            ErrorKind::NotAuthorized => ("not_authorized", "not authorized"),
            ErrorKind::Unavailable => ("unavailable", "no server available"),
            ErrorKind::Settling => ("settling", "nothing is granted yet after a failover or a restart"),
            ErrorKind::Unexpected => ("unexpected", "unexpected answer"),
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts().1)?;
        if let ErrorKind::Timeout(phase) = self { write!(f, " while {phase}") } else { Ok(()) }
    }
}

impl Error {
    /// Creates an error of this kind in the named operation (`"create"`, `"acquire"`, ...).
    #[must_use]
    pub fn new(kind: ErrorKind, operation: &'static str) -> Self {
        Error(Box::new(Inner {
            kind,
            operation,
            path: None,
            message: None,
            ambiguous: false,
            lock_lost: false,
            cause: None,
        }))
    }

    /// Sets the path, lock or URL that the operation was about.
    #[must_use]
    pub fn with_path(mut self, path: impl fmt::Display) -> Self {
        self.0.path = Some(path.to_string());
        self
    }

    /// Sets the message, which says what is wrong and where.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.0.message = Some(message.into());
        self
    }

    /// Sets the error that caused this one, which becomes a part of its text.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.cause = Some(cause.into().into());
        self
    }

    /// Marks the request as one that may have taken effect at the server.
    #[must_use]
    pub fn ambiguous(mut self) -> Self {
        self.0.ambiguous = true;
        self
    }

    /// Marks the error as the loss of a held lock, or of a place in the queue, whatever its kind.
    #[must_use]
    pub fn lock_lost(mut self) -> Self {
        self.0.lock_lost = true;
        self
    }

    /// Returns the kind of the error.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// use zlock::ErrorKind;
    ///
    /// let error = zlock::LockPath::new("orders").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidPath);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the operation that failed.
    ///
    /// # Examples
    /// ```
    /// let error = zlock::LockPath::new("orders").unwrap_err();
    /// assert_eq!((error.operation(), error.path()), ("path", Some("\"orders\"")));
    /// ```
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// Returns the path, lock or URL that the operation was about, if there is one.
    ///
    /// # Examples
    /// ```
    /// # use zlock::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Busy, "acquire").with_path("/app/orders/42");
    /// assert_eq!(error.path(), Some("/app/orders/42"));
    /// ```
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.0.path.as_deref()
    }

    /// Returns the error that caused this one, if there is one: for example, the last failure of the store, or the error of its
    /// client library.
    ///
    /// Its text is the end of this error's own text. [`source`](std::error::Error::source), as usual for such an error, therefore
    /// begins below it: what prints an error with all its sources prints each text once.
    ///
    /// # Examples
    /// ```
    /// # use zlock::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Unavailable, "acquire").with_cause("connection refused");
    /// assert_eq!(error.to_string(), "acquire: no server available: connection refused");
    /// assert_eq!(error.cause().unwrap().to_string(), "connection refused");
    /// ```
    #[must_use]
    pub fn cause(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.0.cause.as_deref()
    }

    /// Returns `true` if the same call may succeed later without manual intervention.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// use zlock::{Error, ErrorKind};
    ///
    /// assert!(Error::new(ErrorKind::Busy, "acquire").is_retryable());
    /// assert!(!Error::new(ErrorKind::NotAuthorized, "acquire").is_retryable());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::Timeout(_)
                | ErrorKind::Busy
                | ErrorKind::Taken
                | ErrorKind::SessionLost
                | ErrorKind::NodeDeleted
                | ErrorKind::Unavailable
                | ErrorKind::Settling
        )
    }

    /// Returns `true` if the request may have taken effect at the server although the call failed.
    ///
    /// # Examples
    /// ```
    /// # use zlock::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Unavailable, "release").ambiguous();
    /// assert!(error.is_ambiguous()); // the lock may be free
    /// ```
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.0.ambiguous
    }

    /// Returns `true` if the acquisition ran out of the time it was given: [`ErrorKind::Timeout`] or
    /// [`ErrorKind::Busy`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use std::time::Duration;
    ///
    /// let mutex = client.mutex("/app/orders/42")?;
    /// let guard = mutex.acquire().await?;
    /// let error = mutex.acquire_timeout(Duration::from_millis(1)).await.unwrap_err();
    /// assert!(error.is_timeout());
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Timeout(_) | ErrorKind::Busy)
    }

    /// Returns `true` if a held lock, or a place in the queue, was lost: another client may hold the lock by now.
    ///
    /// The kind is [`ErrorKind::SessionLost`], [`ErrorKind::NodeDeleted`] or [`ErrorKind::Closed`]. It is
    /// [`ErrorKind::NotAuthorized`] if the store ended the session by refusing its credentials, and [`ErrorKind::StillEntered`] if a
    /// thread still has a guard of the lost lock. An operation that the store
    /// refuses while the session lives has that kind, too, but has lost nothing.
    ///
    /// # Examples
    /// ```
    /// # use zlock::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::SessionLost, "lock").with_path("/app/orders/42");
    /// assert!(error.is_lock_lost());
    /// assert!(!Error::new(ErrorKind::Busy, "acquire").is_lock_lost());
    /// ```
    #[must_use]
    pub fn is_lock_lost(&self) -> bool {
        self.0.lock_lost
            || matches!(self.0.kind, ErrorKind::SessionLost | ErrorKind::NodeDeleted | ErrorKind::Closed)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, operation, path, message, ambiguous, lock_lost: _, cause } = &*self.0;
        write!(f, "{operation}")?;
        if let Some(path) = path {
            write!(f, " {path}")?;
        }
        write!(f, ": {kind}")?;
        if let Some(message) = message {
            write!(f, ": {message}")?;
        }
        if *ambiguous {
            f.write_str(" (may have taken effect)")?;
        }
        if let Some(cause) = cause {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("operation", &self.0.operation)
            .field("path", &self.0.path)
            .field("message", &self.0.message)
            .field("ambiguous", &self.0.ambiguous)
            .field("lock_lost", &self.0.lock_lost)
            .field("cause", &self.0.cause)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause()?.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_where_and_why() {
        let e = Error::new(ErrorKind::Unavailable, "create")
            .with_path("/app")
            .with_message("3 attempts")
            .with_cause("connection reset")
            .ambiguous();
        assert_eq!(
            e.to_string(),
            "create /app: no server available: 3 attempts (may have taken effect): connection reset"
        );
        assert!(e.is_retryable() && e.is_ambiguous() && !e.is_timeout());
    }

    #[test]
    fn a_chain_has_each_text_once() {
        let inner = std::io::Error::other(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
        let last = Error::new(ErrorKind::Unavailable, "create").with_cause(inner);
        let error = Error::new(ErrorKind::Busy, "acquire").with_cause(last);
        assert_eq!(
            error.to_string(),
            "acquire: others hold it or are ahead in the queue: create: no server available: unexpected end of file"
        );
        assert!(std::error::Error::source(&error).is_none());
        assert!(error.cause().unwrap().is::<Error>());
    }

    #[test]
    fn a_timeout_names_its_phase() {
        let e = Error::new(ErrorKind::Timeout(Phase::Queueing), "acquire").with_path("/app");
        assert_eq!(e.to_string(), "acquire /app: timed out while queueing");
        assert!(e.is_timeout() && !e.is_lock_lost());
    }

    #[test]
    fn a_refusal_is_a_loss_only_if_it_is_marked_as_one() {
        let refused = Error::new(ErrorKind::NotAuthorized, "lock").with_path("/app");
        assert!(!refused.is_lock_lost());
        assert!(refused.lock_lost().is_lock_lost());
    }
}
