//! The meaning of the client library's errors.

use std::error::Error as _;
use std::fmt::{self, Display, Formatter};
use std::iter::successors;

use etcd_client as etcd;
use zlock_core::kit::{self, Failure as _, FailureClass, Interrupted};
use zlock_core::{Error, ErrorKind};

/// gRPC's codes as numbers, because the library does not export their names.
mod code {
    pub(super) const CANCELLED: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const DEADLINE_EXCEEDED: i32 = 4;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const ABORTED: i32 = 10;
    pub(super) const INTERNAL: i32 = 13;
    pub(super) const UNAVAILABLE: i32 = 14;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

/// Why a watch is refused that the server gave another number.
pub(crate) const OTHER_NUMBERS: &str =
    "the server numbers watches by itself, as etcd grpc-proxy does: connect to the members of the cluster";

/// The message of a server with authentication for a request without a user.
const NO_USER: &str = "user name is empty";

/// The message of a server for a user that does not exist, or a wrong password.
const REFUSED: &str = "authentication failed";

/// The message of a server for a token that was issued before users or roles were changed. Such a token of type JWT never becomes
/// valid again.
const OLD_TOKEN: &str = "revision of auth store is old";

/// The message of a server whose space quota is used up.
const FULL: &str = "database space exceeded";

/// The reason why a request has no usable answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of a server or the client library.
    Etcd(etcd::Error),
    /// The server did not answer in time; the next one may.
    Silent,
    /// The connection's authentication is no longer valid: authentication was enabled after the connection was made, or the
    /// user's password was changed. The next connection authenticates with the current password.
    Unauthenticated,
    /// The server refuses the credentials of a new connection.
    WrongCredentials(etcd::Error),
    /// The server does not serve the watch.
    Unwatched(String),
    /// The answer shows that the cluster was restored to an older state. The request was executed in that state.
    Restored,
    /// No connection was attempted: the servers are not found in DNS, or a file cannot be read.
    NoWay(String),
    /// The session already has a node with this ID.
    NodeIdInUse,
    /// The key belongs to a session, so it is no value.
    NotAValue,
    /// A member of this session with this ID would be a place in a queue.
    NamedAsAPlace,
    /// The operation's node no longer exists.
    NodeDeleted,
    /// The operation's node belongs to another session.
    OtherSession,
    /// Another program deleted the receipt of a write of unknown outcome.
    NoReceipt,
    /// The session ended or the operation's time was used up before the answer came, or the backend was closed.
    Interrupted(Interrupted),
}

impl kit::Failure for Failure {
    fn classify(&self) -> FailureClass {
        let (kind, ambiguous, retryable) = match self {
            Failure::Etcd(error) | Failure::WrongCredentials(error) => return classify(error),
            Failure::Interrupted(interrupted) => return interrupted.classify(),
            Failure::Silent => (ErrorKind::Unavailable, true, true),
            Failure::Unwatched(why)
                if ["permission denied", NO_USER].iter().any(|text| why.contains(text)) =>
            {
                (ErrorKind::NotAuthorized, false, false)
            }
            Failure::Unwatched(why) if why == OTHER_NUMBERS => (ErrorKind::Unexpected, false, false),
            Failure::Unwatched(_) | Failure::Unauthenticated | Failure::NoWay(_) => {
                (ErrorKind::Unavailable, false, true)
            }
            Failure::Restored => (ErrorKind::SessionLost, true, true),
            Failure::NodeIdInUse => (ErrorKind::Unexpected, false, false),
            Failure::NotAValue | Failure::NamedAsAPlace => (ErrorKind::InvalidArgument, false, false),
            Failure::NodeDeleted => (ErrorKind::NodeDeleted, false, false),
            Failure::OtherSession => (ErrorKind::SessionLost, false, false),
            Failure::NoReceipt => (ErrorKind::Unexpected, true, false),
        };
        FailureClass { kind, ambiguous, retryable }
    }

    fn explain(self, error: Error) -> Error {
        match self {
            Failure::Etcd(cause) | Failure::WrongCredentials(cause) => error.with_cause(Cause(cause)),
            Failure::Silent => error.with_message("no response"),
            Failure::Unauthenticated => {
                error.with_message("the connection's authentication is no longer valid")
            }
            Failure::Unwatched(why) => error.with_message(format!("the watch was refused: {why}")),
            Failure::Restored => error.with_message("the cluster was restored to an older state"),
            Failure::NoWay(why) => error.with_message(why),
            Failure::NodeIdInUse => error.with_message("a node with this ID exists already"),
            Failure::NotAValue => error.with_message("the key is a member's or a lock's, and no value"),
            Failure::NamedAsAPlace => {
                error.with_message("the ID is that of the session, after which locks are named")
            }
            Failure::Interrupted(interrupted) => interrupted.explain(error),
            Failure::NoReceipt => error.with_message("the receipt of the write was deleted"),
            Failure::NodeDeleted | Failure::OtherSession => error,
        }
    }

    fn is_local(&self) -> bool {
        matches!(self, Failure::NoWay(_))
    }
}

/// An error of the client library, in fewer words: a status with the innermost reason, and not with all layers in between.
#[derive(Debug)]
struct Cause(etcd::Error);

impl Display for Cause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let etcd::Error::GRpcStatus(status) = &self.0 else { return self.0.fmt(f) };
        write!(f, "{:?}: {}", status.code(), status.message())?;
        let reason = successors(status.source(), |&error| error.source()).last().map(ToString::to_string);
        match reason.filter(|reason| !status.message().contains(reason)) {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Cause {}

impl Failure {
    /// Returns `true` if the server has failed and not the request, so that another server may succeed.
    pub(crate) fn is_the_servers(&self) -> bool {
        let FailureClass { kind, ambiguous, retryable } = self.classify();
        // All servers have the same quota, and about as much in their databases.
        kind == ErrorKind::Unavailable && ambiguous && retryable && !self.says(FULL)
    }

    /// Returns `true` if a transaction has more operations than the server accepts.
    pub(crate) fn is_of_too_many_operations(&self) -> bool {
        self.says("too many operations")
    }

    /// Returns `true` if the database has its maximum size. Before 3.4.20 and 3.5.7, a server then refuses transactions that only
    /// read, too.
    pub(crate) fn is_of_a_full_database(&self) -> bool {
        self.says(FULL)
    }

    /// Returns `true` if the server no longer has the revision that was asked for.
    pub(crate) fn is_of_a_compacted_revision(&self) -> bool {
        self.says("revision has been compacted")
    }

    /// Returns `true` if a request has more bytes than the server accepts.
    pub(crate) fn is_of_too_large_a_request(&self) -> bool {
        self.says("request is too large") || self.says("message larger than max")
    }

    fn says(&self, text: &str) -> bool {
        matches!(self, Failure::Etcd(etcd::Error::GRpcStatus(status)) if status.message().contains(text))
    }

    /// Returns the failure of one write in a batch that has failed with an unknown outcome.
    pub(crate) fn of_each(&self) -> Self {
        match self {
            Failure::Etcd(etcd::Error::GRpcStatus(status)) => {
                Failure::Etcd(etcd::Error::GRpcStatus(status.clone()))
            }
            _ => Failure::Silent,
        }
    }

    /// Returns `true` if the server requires a user and the request had none, if its token is too old, or if the library's
    /// request for a new token was refused, which has the password from when the connection was made.
    pub(crate) fn asks_for_a_user(&self) -> bool {
        match self {
            Failure::Etcd(etcd::Error::GRpcStatus(status)) => {
                [NO_USER, OLD_TOKEN, REFUSED].iter().any(|text| status.message().contains(text))
            }
            Failure::Unwatched(why) => why.contains(NO_USER),
            _ => false,
        }
    }
}

impl From<etcd::Error> for Failure {
    fn from(error: etcd::Error) -> Self {
        Failure::Etcd(error)
    }
}

impl From<Interrupted> for Failure {
    fn from(interrupted: Interrupted) -> Self {
        Failure::Interrupted(interrupted)
    }
}

/// Returns what an error of the client library means for a request that was sent.
pub(crate) fn classify(error: &etcd::Error) -> FailureClass {
    use etcd::Error as E;
    let (kind, ambiguous, retryable) = match error {
        E::GRpcStatus(status) => return classify_status(status.code() as i32, status.message()),
        E::LeaseKeepAliveError(text) if text == "lease not found" => (ErrorKind::SessionLost, false, true),
        // A broken connection or stream.
        E::TransportError(_) | E::IoError(_) | E::WatchError(_) | E::LeaseKeepAliveError(_) => {
            (ErrorKind::Unavailable, true, true)
        }
        // Refused by the library before anything is sent.
        E::InvalidArgs(_) | E::InvalidUri(_) | E::InvalidMetadataValue(_) => {
            (ErrorKind::InvalidArgument, false, false)
        }
        E::EndpointError(_) | E::EndpointsNotManaged => (ErrorKind::Unexpected, false, false),
        // The outcome is unknown.
        E::Utf8Error(_) | E::ElectError(_) | E::Internal(_) => (ErrorKind::Unexpected, true, false),
        #[allow(unreachable_patterns, reason = "one more with a feature that others may switch on")]
        _ => (ErrorKind::Unexpected, true, false),
    };
    FailureClass { kind, ambiguous, retryable }
}

/// Returns what a gRPC status of etcd's servers means. Mostly decided by its code, and where a code has several meanings, by
/// the servers' fixed texts.
fn classify_status(code: i32, message: &str) -> FailureClass {
    let says = |text: &str| message.contains(text);
    let (kind, ambiguous, retryable) = match code {
        code::CANCELLED
        | code::UNKNOWN
        | code::DEADLINE_EXCEEDED
        | code::ABORTED
        | code::INTERNAL
        | code::UNAVAILABLE => (ErrorKind::Unavailable, true, true),
        code::NOT_FOUND if says("lease not found") => (ErrorKind::SessionLost, false, true),
        code::PERMISSION_DENIED => (ErrorKind::NotAuthorized, false, false),
        // The library has already requested a new token.
        code::UNAUTHENTICATED => (ErrorKind::NotAuthorized, false, false),
        // The next connection requests one.
        code::INVALID_ARGUMENT if says(OLD_TOKEN) => (ErrorKind::Unavailable, false, true),
        code::INVALID_ARGUMENT if says(REFUSED) || says(NO_USER) => (ErrorKind::NotAuthorized, false, false),
        code::INVALID_ARGUMENT if says("request is too large") => (ErrorKind::InvalidArgument, false, false),
        // The requests that use up the quota are executed, and get the same answer as those that are refused after them.
        code::RESOURCE_EXHAUSTED if says(FULL) => (ErrorKind::Unavailable, true, true),
        // Load: definite, but temporary.
        code::RESOURCE_EXHAUSTED => (ErrorKind::Unavailable, false, true),
        // Another server may execute it. Before 3.6, a learner's code was UNAVAILABLE.
        code::FAILED_PRECONDITION if says("not supported for learner") => {
            (ErrorKind::Unavailable, true, true)
        }
        code::FAILED_PRECONDITION | code::INVALID_ARGUMENT | code::NOT_FOUND => {
            (ErrorKind::Unexpected, false, false)
        }
        _ => (ErrorKind::Unexpected, true, false),
    };
    FailureClass { kind, ambiguous, retryable }
}

/// Returns `true` if the server does not accept a user and a password.
pub(crate) fn is_refused(error: &etcd::Error) -> bool {
    matches!(error, etcd::Error::GRpcStatus(status) if status.message().contains(REFUSED))
}

/// Returns `true` if authentication is not enabled on the server.
pub(crate) fn is_without_auth(error: &etcd::Error) -> bool {
    matches!(error, etcd::Error::GRpcStatus(status) if status.message().contains("authentication is not enabled"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_class() {
        use ErrorKind::*;
        use etcd::Error as E;
        for (error, kind, ambiguous, retryable) in [
            (E::InvalidArgs("x".into()), InvalidArgument, false, false),
            (E::IoError(std::io::ErrorKind::BrokenPipe.into()), Unavailable, true, true),
            (E::WatchError("x".into()), Unavailable, true, true),
            (E::LeaseKeepAliveError("x".into()), Unavailable, true, true),
            (E::LeaseKeepAliveError("lease not found".into()), SessionLost, false, true),
            (E::EndpointError("x".into()), Unexpected, false, false),
            (E::EndpointsNotManaged, Unexpected, false, false),
            (E::ElectError("x".into()), Unexpected, true, false),
            (E::Internal("x".into()), Unexpected, true, false),
        ] {
            assert_eq!(classify(&error), FailureClass { kind, ambiguous, retryable }, "{error:?}");
        }
    }

    #[test]
    fn every_status_has_a_class() {
        use ErrorKind::*;
        for (code, message, kind, ambiguous, retryable) in [
            (code::CANCELLED, "etcdserver: watch canceled", Unavailable, true, true),
            (code::UNKNOWN, "context deadline exceeded", Unavailable, true, true),
            (code::DEADLINE_EXCEEDED, "", Unavailable, true, true),
            (code::ABORTED, "", Unavailable, true, true),
            (code::INTERNAL, "h2 protocol error", Unavailable, true, true),
            (code::UNAVAILABLE, "etcdserver: no leader", Unavailable, true, true),
            (code::UNAVAILABLE, "etcdserver: leader changed", Unavailable, true, true),
            (code::UNAVAILABLE, "tcp connect error", Unavailable, true, true),
            (code::NOT_FOUND, "etcdserver: requested lease not found", SessionLost, false, true),
            (code::NOT_FOUND, "etcdserver: member not found", Unexpected, false, false),
            (code::PERMISSION_DENIED, "etcdserver: permission denied", NotAuthorized, false, false),
            (code::UNAUTHENTICATED, "etcdserver: invalid auth token", NotAuthorized, false, false),
            (
                code::INVALID_ARGUMENT,
                "etcdserver: authentication failed, invalid user ID or password",
                NotAuthorized,
                false,
                false,
            ),
            (code::INVALID_ARGUMENT, "etcdserver: user name is empty", NotAuthorized, false, false),
            (code::INVALID_ARGUMENT, "etcdserver: revision of auth store is old", Unavailable, false, true),
            (code::INVALID_ARGUMENT, "etcdserver: request is too large", InvalidArgument, false, false),
            (code::INVALID_ARGUMENT, "etcdserver: key is not provided", Unexpected, false, false),
            (code::RESOURCE_EXHAUSTED, "etcdserver: too many requests", Unavailable, false, true),
            (code::RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", Unavailable, true, true),
            (code::FAILED_PRECONDITION, "etcdserver: lease already exists", Unexpected, false, false),
            (code::FAILED_PRECONDITION, "etcdserver: rpc not supported for learner", Unavailable, true, true),
            (12, "unimplemented", Unexpected, true, false),
            (15, "etcdserver: corrupt cluster", Unexpected, true, false),
        ] {
            let class = classify_status(code, message);
            assert_eq!(class, FailureClass { kind, ambiguous, retryable }, "{code} {message}");
        }
    }
}
