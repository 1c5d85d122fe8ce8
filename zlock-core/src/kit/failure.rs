//! Why a request brought no usable answer.

use std::fmt::Debug;

use crate::error::{Error, ErrorKind};

/// The reason why a request brought no answer that its caller can use.
///
/// A backend implements it for one type, with a variant for the errors of its client library and one for
/// [`Interrupted`]; or uses `Interrupted` alone.
pub trait Failure: Debug {
    /// Returns what follows from the failure.
    fn classify(&self) -> FailureClass;

    /// Adds a message or a source to `error`, whose kind is that of [`classify`](Self::classify).
    fn explain(self, error: Error) -> Error;
}

/// What follows from a [`Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureClass {
    /// The kind of error to report if the operation ends with this failure.
    pub kind: ErrorKind,
    /// Whether a write may have taken effect all the same.
    pub ambiguous: bool,
    /// Whether another attempt may succeed.
    pub retryable: bool,
}

/// The reason why a backend stopped waiting before the store answered.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// The session ended. The next one may serve the request.
    SessionLost,
    /// The connection broke before the answer came. For backends whose store says no more than that.
    Disconnected,
    /// The backend was closed.
    Closed,
    /// The backend was closed because the store refused it, with the message that was given to [`Sessions::new`].
    ///
    /// [`Sessions::new`]: crate::kit::Sessions::new
    AuthFailed(&'static str),
    /// The operation's time is used up.
    TimedOut,
    /// The operation's time is used up, and the request was not sent, since there was no connection.
    NotConnected,
}

impl Failure for Interrupted {
    fn classify(&self) -> FailureClass {
        let (kind, retryable) = match self {
            Interrupted::SessionLost => (ErrorKind::SessionLost, true),
            Interrupted::Disconnected => (ErrorKind::Unavailable, true),
            Interrupted::Closed => (ErrorKind::Closed, false),
            Interrupted::AuthFailed(_) => (ErrorKind::NotAuthorized, false),
            Interrupted::TimedOut | Interrupted::NotConnected => (ErrorKind::Unavailable, false),
        };
        FailureClass { kind, ambiguous: self != &Interrupted::NotConnected, retryable }
    }

    fn explain(self, error: Error) -> Error {
        match self {
            Interrupted::AuthFailed(message) => error.with_message(message),
            Interrupted::Disconnected => error.with_message("the connection broke"),
            Interrupted::TimedOut => error.with_message("no response within the operation timeout"),
            Interrupted::NotConnected => error.with_message("not connected"),
            Interrupted::SessionLost | Interrupted::Closed => error,
        }
    }
}
