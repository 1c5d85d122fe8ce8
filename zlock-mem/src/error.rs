//! The reasons why a request has no usable answer.

use zlock_core::kit::{self, FailureClass, Interrupted};
use zlock_core::{Error, ErrorKind};

use crate::request::Answer;

#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no connection: nothing was sent.
    NotSent,
    /// The request was sent, but no answer will arrive.
    Lost,
    /// The path is below a node that cannot have children.
    NoChildren,
    /// The node belongs to a session, or is the parent of others.
    NotAValue,
    /// The answer is not understood.
    Unexpected(String),
    /// The session ended or the operation's time was used up before the answer came, or the backend was closed.
    Interrupted(Interrupted),
}

impl Failure {
    /// Returns the failure for an answer that does not belong to the request.
    pub(crate) fn unexpected(answer: &Answer) -> Self {
        match answer {
            Answer::NoChildren => Failure::NoChildren,
            Answer::NoValue => Failure::NotAValue,
            answer => Failure::Unexpected(format!("{answer:?}")),
        }
    }
}

impl kit::Failure for Failure {
    fn classify(&self) -> FailureClass {
        let (kind, ambiguous, retryable) = match self {
            Failure::NotSent => (ErrorKind::Unavailable, false, true),
            Failure::Lost => (ErrorKind::Unavailable, true, true),
            Failure::NoChildren | Failure::NotAValue => (ErrorKind::InvalidArgument, false, false),
            Failure::Unexpected(_) => (ErrorKind::Unexpected, false, false),
            Failure::Interrupted(interrupted) => return interrupted.classify(),
        };
        FailureClass { kind, ambiguous, retryable }
    }

    fn explain(self, error: Error) -> Error {
        match self {
            Failure::NotSent => error.with_message("not connected to the server"),
            Failure::Lost => error.with_message("no response"),
            Failure::NoChildren => {
                let message =
                    "the path is below the node of a member or of a lock, which cannot have children";
                error.with_message(message)
            }
            Failure::NotAValue => {
                let message =
                    "the node is not a value, because it is a member's, a lock's or the parent of one";
                error.with_message(message)
            }
            Failure::Unexpected(what) => error.with_message(what),
            Failure::Interrupted(interrupted) => interrupted.explain(error),
        }
    }
}

impl From<Interrupted> for Failure {
    fn from(interrupted: Interrupted) -> Self {
        Failure::Interrupted(interrupted)
    }
}
