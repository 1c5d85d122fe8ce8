//! The meaning of the server's and the client library's errors.

use mysql_async as mysql;
use zlock_core::kit::{self, FailureClass};
use zlock_core::{Error, ErrorKind};
use zlock_ledger::Fault;

/// The reason why a request has no usable answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the server or the client library.
    Mysql(mysql::Error),
    /// No connection could be made.
    Connect(mysql::Error),
    /// The server did not answer in time, or the connection was closed.
    Silent,
    /// Nothing was sent over the connection, since it is closed.
    Closed,
    /// No connection was attempted.
    NoWay(String),
    /// The server cannot be used as it is set up.
    Unsuitable(String),
    /// The answer is not what the procedure returns.
    Malformed,
    /// No server took the connection: what follows, and each with its reason.
    Each(FailureClass, String),
}

impl kit::Failure for Failure {
    fn classify(&self) -> FailureClass {
        let (kind, ambiguous, retryable) = match self {
            Failure::Mysql(error) => return classify(error),
            Failure::Connect(error) => return FailureClass { ambiguous: false, ..classify(error) },
            Failure::Silent => (ErrorKind::Unavailable, true, true),
            Failure::Closed | Failure::NoWay(_) => (ErrorKind::Unavailable, false, true),
            Failure::Unsuitable(_) => (ErrorKind::InvalidArgument, false, false),
            Failure::Malformed => (ErrorKind::Unexpected, true, false),
            Failure::Each(class, _) => return *class,
        };
        FailureClass { kind, ambiguous, retryable }
    }

    fn explain(self, error: Error) -> Error {
        error.with_message(self.text())
    }
}

impl Failure {
    /// Returns the failure of attempts at several servers. What one refuses for good counts for all.
    pub(crate) fn of_each(mut failures: Vec<(String, Failure)>) -> Self {
        let Some((_, last)) = failures.last() else { return Failure::Silent };
        let mut classes = failures.iter().map(|(_, failure)| kit::Failure::classify(failure));
        let class = classes.find(|class| !class.retryable).unwrap_or(kit::Failure::classify(last));
        if failures.len() == 1 {
            return failures.remove(0).1;
        }
        let texts = failures.iter().map(|(server, failure)| format!("{server}: {}", failure.text()));
        Failure::Each(class, texts.collect::<Vec<_>>().join("; "))
    }

    /// Returns what has happened.
    pub(crate) fn text(&self) -> String {
        match self {
            Failure::Mysql(error) | Failure::Connect(error) => return message(error),
            Failure::NoWay(why) | Failure::Unsuitable(why) | Failure::Each(_, why) => return why.clone(),
            Failure::Silent => "no response",
            Failure::Closed => "the connection is closed",
            Failure::Malformed => "the answer has not the form that was expected",
        }
        .to_owned()
    }

    fn server(&self) -> Option<&mysql::ServerError> {
        match self {
            Failure::Mysql(mysql::Error::Server(error)) | Failure::Connect(mysql::Error::Server(error)) => {
                Some(error)
            }
            _ => None,
        }
    }

    /// Returns `true` if the connection is of no use any more.
    pub(crate) fn is_the_connections(&self) -> bool {
        match self {
            Failure::Silent | Failure::Closed => true,
            Failure::Mysql(mysql::Error::Server(error)) => {
                // A server that has become a replica, one that shuts down, or one whose tables were replaced.
                matches!(error.state.as_str(), "ZL012" | "ZL015")
                    || matches!(error.code, 1290 | 1836 | 1792 | 1053 | 1077 | 1079 | 3169 | 1927)
            }
            Failure::Mysql(_) => true,
            _ => false,
        }
    }

    /// Returns `true` if it is the server's answer to a request.
    pub(crate) fn is_the_servers(&self) -> bool {
        matches!(self, Failure::Mysql(mysql::Error::Server(_)))
    }

    /// Returns `true` if the database does not have the schema.
    pub(crate) fn is_of_a_missing_schema(&self) -> bool {
        // A table or a procedure does not exist.
        self.server().is_some_and(|error| matches!(error.code, 1146 | 1305))
    }
}

/// Returns what an error says, and what helps.
fn message(error: &mysql::Error) -> String {
    let mysql::Error::Server(found) = error else { return error.to_string() };
    let mut text = found.message.clone();
    match found.code {
        1146 | 1305 => {
            text.push_str(
                ": run the SQL of `zlock mysql schema` in this database, or connect with create_schema=true",
            );
        }
        1370 => text.push_str(": GRANT EXECUTE ON each PROCEDURE of zlock to this user"),
        1153 => text.push_str(" (of the server, which limits what a node, a member or a value may contain)"),
        _ => {}
    }
    text
}

fn classify(error: &mysql::Error) -> FailureClass {
    let (kind, ambiguous, retryable) = match error {
        mysql::Error::Server(error) => match (error.state.as_str(), error.code) {
            ("ZL001", _) => (ErrorKind::SessionLost, false, true),
            ("ZL008" | "ZL013" | "ZL016", _) => (ErrorKind::InvalidArgument, false, false),
            ("ZL011" | "ZL012" | "ZL014" | "ZL015", _) => (ErrorKind::Unavailable, false, true),
            // No such database, no schema, or a packet that is too large.
            (_, 1049 | 1146 | 1305 | 1153) => (ErrorKind::InvalidArgument, false, false),
            // The user, the password, or a right.
            (_, 1044 | 1045 | 1142 | 1143 | 1227 | 1370 | 1698 | 1820 | 1862 | 3118) => {
                (ErrorKind::NotAuthorized, false, false)
            }
            // Lock waits, deadlocks, changed rows, a replica, too many connections, a full disk.
            (
                _,
                1205 | 1213 | 1020 | 1290 | 1836 | 1792 | 1040 | 1203 | 1226 | 1129 | 1021 | 1114 | 3024
                | 1969 | 1637,
            ) => (ErrorKind::Unavailable, false, true),
            // The server, or the connection, is going away.
            (_, 1053 | 1077 | 1079 | 1317 | 3169 | 1927 | 1180) => (ErrorKind::Unavailable, true, true),
            _ => (ErrorKind::Unexpected, false, false),
        },
        _ => (ErrorKind::Unavailable, true, true),
    };
    FailureClass { kind, ambiguous, retryable }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        let (class, text) = (kit::Failure::classify(&failure), failure.text());
        if let Some(error) = failure.server() {
            match (error.state.as_str(), error.code) {
                ("ZL001", _) => return Fault::SessionOver,
                ("ZL011", _) => return Fault::StaleLane,
                ("ZL014", _) | (_, 1062 | 1205 | 1213) => return Fault::Busy,
                _ => {}
            }
        }
        match class.kind {
            _ if class.retryable && class.ambiguous => Fault::Unknown(text),
            _ if class.retryable => Fault::NotSent(text),
            ErrorKind::NotAuthorized => Fault::Refused(text),
            ErrorKind::InvalidArgument => Fault::Invalid(text),
            _ => Fault::Unexpected(text),
        }
    }
}
