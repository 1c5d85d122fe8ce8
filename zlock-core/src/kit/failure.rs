//! The reasons why a request got no usable response.

use std::fmt::Debug;

use crate::error::{Error, ErrorKind};

/// The reason why a request got no usable response.
///
/// A backend implements it for a type with a variant for the errors of its client library and one for [`Interrupted`],
/// or uses `Interrupted` itself.
pub trait Failure: Debug {
    /// Returns what follows from the failure.
    fn classify(&self) -> FailureClass;

    /// Adds a message or a cause to `error`, whose kind is that of [`classify`](Self::classify).
    fn explain(self, error: Error) -> Error;

    /// Returns `true` if nothing was sent, so that the answers of servers are not the reason. Defaults to `false`.
    fn is_local(&self) -> bool {
        false
    }
}

/// What follows from a [`Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureClass {
    /// The kind of error to report if the operation ends with this failure.
    pub kind: ErrorKind,
    /// Whether a write may still have taken effect.
    pub ambiguous: bool,
    /// Whether another attempt may succeed.
    pub retryable: bool,
}

/// The reason why a backend stopped waiting for the store's response.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// The session ended. The next one may serve the request.
    SessionLost,
    /// The connection broke before the response arrived, and the store gives no further details.
    Disconnected,
    /// The backend was closed.
    Closed,
    /// The backend was closed because the store refused it. The message is that passed to [`Sessions::new`].
    ///
    /// [`Sessions::new`]: crate::kit::Sessions::new
    AuthFailed(&'static str),
    /// The operation's time is used up.
    TimedOut,
    /// The operation's time is used up, and the request was not sent because there was no connection.
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
            Interrupted::NotConnected => error.with_message("no connection"),
            Interrupted::SessionLost | Interrupted::Closed => error,
        }
    }
}
