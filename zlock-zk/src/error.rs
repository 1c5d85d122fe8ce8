//! The meaning of the client library's errors.

use zlock_core::kit::{self, FailureClass, Interrupted};
use zlock_core::{Error, ErrorKind};
use zookeeper_client as zk;

/// The reason why a request has no usable answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the server or the client library.
    Zk(zk::Error),
    /// The session ended or the operation's time was used up before the answer came, or the backend was closed.
    Interrupted(Interrupted),
    /// The connected server keeps listing a node that the leader, or the server of a watch connection, does not have.
    ServersDisagree,
    /// No connection was attempted: the servers are not found in DNS, or a file cannot be read.
    NoWay(String),
    /// The operation's node no longer exists.
    NodeDeleted,
    /// The operation's node belongs to another session.
    OtherSession,
    /// Another program deleted the receipt of a write of unknown outcome.
    NoReceipt,
    /// The server removes the node by itself.
    NotAValue,
    /// The session of a watch connection is over, or could not be opened, for this reason if known.
    NotWatching(Option<Error>),
    /// There is no room for another watch, on a path of this many bytes.
    TooManyWatches { more: usize, watched: usize, limit: usize },
}

impl Failure {
    /// Returns `true` if no connection has room for a watch.
    pub(crate) fn is_without_a_watch(&self) -> bool {
        matches!(self, Failure::NotWatching(_) | Failure::TooManyWatches { .. })
    }
}

/// Returns `None` if the answer is that there is no node with this path.
pub(crate) fn if_exists<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Failure::Zk(zk::Error::NoNode)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

impl kit::Failure for Failure {
    fn classify(&self) -> FailureClass {
        let (kind, ambiguous, retryable) = match self {
            Failure::Zk(error) => return classify(error),
            Failure::Interrupted(interrupted) => return interrupted.classify(),
            Failure::NodeDeleted => (ErrorKind::NodeDeleted, false, false),
            Failure::OtherSession => (ErrorKind::SessionLost, false, false),
            Failure::NoReceipt => (ErrorKind::Unexpected, true, false),
            Failure::NotAValue => (ErrorKind::InvalidArgument, false, false),
            Failure::NotWatching(None) | Failure::ServersDisagree | Failure::NoWay(_) => {
                (ErrorKind::Unavailable, false, true)
            }
            Failure::NotWatching(Some(error)) => {
                (error.kind(), false, error.kind() == ErrorKind::Unavailable)
            }
            Failure::TooManyWatches { .. } => (ErrorKind::Unavailable, false, false),
        };
        FailureClass { kind, ambiguous, retryable }
    }

    fn explain(self, error: Error) -> Error {
        match self {
            // An older server cannot parse a transaction with requests that it does not know.
            Failure::Zk(source @ (zk::Error::Unimplemented | zk::Error::MarshallingError)) => {
                error.with_message("ZooKeeper 3.5.3 or later is needed").with_cause(source)
            }
            Failure::Zk(source @ zk::Error::NoChildrenForEphemerals) => {
                let message = "the path is below the node of a member or of a lock, which cannot have children";
                error.with_message(message).with_cause(source)
            }
            Failure::Zk(source @ zk::Error::QuotaExceeded) => {
                error.with_message("the quota of this path or of one above it is used up").with_cause(source)
            }
            Failure::Zk(source) => error.with_cause(source),
            Failure::ServersDisagree => {
                error.with_message("the connected server lists a node that its leader does not have")
            }
            Failure::NotWatching(why) => {
                let error = error.with_message("no connection for watches");
                if let Some(why) = why { error.with_cause(why) } else { error }
            }
            Failure::TooManyWatches { more, watched, limit } => error.with_message(format!(
                "this client watches {watched} of at most {limit} bytes of paths and has no connection with room \
                 for {more} more"
            )),
            Failure::Interrupted(interrupted) => interrupted.explain(error),
            Failure::NotAValue => {
                error.with_message("the node is not a value, because it is a member's or a lock's")
            }
            Failure::NoReceipt => error.with_message("the receipt of the write was deleted"),
            Failure::NoWay(why) => error.with_message(why),
            Failure::NodeDeleted | Failure::OtherSession => error,
        }
    }

    fn is_local(&self) -> bool {
        matches!(self, Failure::NoWay(_))
    }
}

impl From<zk::Error> for Failure {
    fn from(error: zk::Error) -> Self {
        Failure::Zk(error)
    }
}

impl From<Interrupted> for Failure {
    fn from(interrupted: Interrupted) -> Self {
        Failure::Interrupted(interrupted)
    }
}

/// Returns what an error of the client library means for a request that was sent.
pub(crate) fn classify(error: &zk::Error) -> FailureClass {
    use zk::Error as E;
    let (kind, ambiguous, retryable) = match error {
        // Definite answers, which most callers handle before they call this.
        E::NoNode | E::NodeExists | E::BadVersion | E::NotEmpty => (ErrorKind::Unexpected, false, false),
        // The path is below that of a member, or of a lock's node.
        E::NoChildrenForEphemerals => (ErrorKind::InvalidArgument, false, false),
        E::NoAuth | E::InvalidAcl => (ErrorKind::NotAuthorized, false, false),
        E::AuthFailed => (ErrorKind::NotAuthorized, true, false),
        // Refused by the library before anything is sent, or by the server.
        E::BadArguments(_) => (ErrorKind::InvalidArgument, false, false),
        // Load, a server without a quorum, or a quota that is used up until nodes are removed: definite, but temporary.
        E::Throttled | E::NotReadOnly | E::QuotaExceeded => (ErrorKind::Unavailable, false, true),
        // The ways in which a broken connection shows: closed, reset or silent.
        E::ConnectionLoss | E::Custom(_) => (ErrorKind::Unavailable, true, true),
        // No server was reached; only returned by a connect.
        E::NoHosts | E::Timeout => (ErrorKind::Unavailable, false, true),
        // The library gives up its session as a whole, but the next session may serve the request. The library returns
        // `ClientClosed` for internal reasons, because we never drop a client that is in use.
        E::SessionExpired | E::ClientClosed => (ErrorKind::SessionLost, true, true),
        E::SessionMoved => (ErrorKind::SessionLost, false, true),
        E::NoWatcher
        | E::MarshallingError
        | E::Unimplemented
        | E::ReconfigDisabled
        | E::RuntimeInconsistent => (ErrorKind::Unexpected, false, false),
        // For all others, now or later, the outcome is unknown.
        E::UnexpectedErrorCode(_) | E::UnexpectedError(_) | E::UnmarshalError { .. } | _ => {
            (ErrorKind::Unexpected, true, false)
        }
    };
    FailureClass { kind, ambiguous, retryable }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_told_from_others() {
        for source in [zk::Error::Unimplemented, zk::Error::MarshallingError] {
            let error = Error::new(ErrorKind::Unexpected, "create").with_path("/app");
            let expected =
                format!("create /app: unexpected answer: ZooKeeper 3.5.3 or later is needed: {source}");
            assert_eq!(kit::Failure::explain(Failure::Zk(source), error).to_string(), expected);
        }
    }

    #[test]
    fn every_error_has_a_class() {
        use ErrorKind::*;
        use zk::Error as E;
        for (error, kind, ambiguous, retryable) in [
            (E::NoNode, Unexpected, false, false),
            (E::NodeExists, Unexpected, false, false),
            (E::BadVersion, Unexpected, false, false),
            (E::NotEmpty, Unexpected, false, false),
            (E::NoChildrenForEphemerals, InvalidArgument, false, false),
            (E::NoAuth, NotAuthorized, false, false),
            (E::InvalidAcl, NotAuthorized, false, false),
            (E::AuthFailed, NotAuthorized, true, false),
            (E::BadArguments(&"x"), InvalidArgument, false, false),
            (E::Throttled, Unavailable, false, true),
            (E::NotReadOnly, Unavailable, false, true),
            (E::QuotaExceeded, Unavailable, false, true),
            (E::ConnectionLoss, Unavailable, true, true),
            (E::NoHosts, Unavailable, false, true),
            (E::Timeout, Unavailable, false, true),
            (E::SessionExpired, SessionLost, true, true),
            (E::ClientClosed, SessionLost, true, true),
            (E::SessionMoved, SessionLost, false, true),
            (E::NoWatcher, Unexpected, false, false),
            (E::MarshallingError, Unexpected, false, false),
            (E::Unimplemented, Unexpected, false, false),
            (E::ReconfigDisabled, Unexpected, false, false),
            (E::RuntimeInconsistent, Unexpected, false, false),
            (E::UnexpectedErrorCode(-7), Unexpected, true, false),
            (E::UnexpectedError("x".into()), Unexpected, true, false),
            (E::UnmarshalError { entity: "x", reason: &"y" }, Unexpected, true, false),
        ] {
            assert_eq!(classify(&error), FailureClass { kind, ambiguous, retryable }, "{error:?}");
        }
    }
}
