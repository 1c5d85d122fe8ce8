//! The meaning of the server's and the client library's errors.

use tokio_postgres as postgres;
use zlock_core::kit::{self, FailureClass};
use zlock_core::{Error, ErrorKind};

/// The reason why a request has no usable answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the server or the client library.
    Postgres(postgres::Error),
    /// No connection could be made.
    Connect(postgres::Error),
    /// The server did not answer in time.
    Silent,
    /// The server has committed it, and has given up waiting for a replica.
    Unreplicated,
    /// No connection was attempted: a file cannot be read.
    NoWay(String),
    /// The answer is not what the function returns.
    Malformed,
    /// No server took the connection: what follows, and each with its reason.
    Each(FailureClass, String),
}

impl kit::Failure for Failure {
    fn classify(&self) -> FailureClass {
        let (kind, ambiguous, retryable) = match self {
            Failure::Postgres(error) => return classify(error),
            Failure::Connect(error) => return FailureClass { ambiguous: false, ..classify(error) },
            Failure::Silent | Failure::Unreplicated => (ErrorKind::Unavailable, true, true),
            Failure::NoWay(_) => (ErrorKind::Unavailable, false, true),
            Failure::Malformed => (ErrorKind::Unexpected, true, false),
            Failure::Each(class, _) => return *class,
        };
        FailureClass { kind, ambiguous, retryable }
    }

    fn explain(self, error: Error) -> Error {
        match self {
            Failure::Postgres(source) | Failure::Connect(source) => error.with_cause(message(&source)),
            other => error.with_message(other.text()),
        }
    }
}

impl Failure {
    /// Returns the failure of attempts at several servers. What one refuses for good counts for all.
    pub(crate) fn of_each(mut failures: Vec<(String, Failure)>) -> Self {
        let Some((_, last)) = failures.last() else { return Failure::Silent };
        let classes = failures.iter().map(|(_, failure)| kit::Failure::classify(failure));
        let class = classes.clone().find(|class| !class.retryable).unwrap_or(kit::Failure::classify(last));
        if failures.len() == 1 {
            return failures.remove(0).1;
        }
        let texts = failures.iter().map(|(server, failure)| format!("{server}: {}", failure.text()));
        Failure::Each(class, texts.collect::<Vec<_>>().join("; "))
    }

    /// Returns what has happened.
    pub(crate) fn text(&self) -> String {
        match self {
            Failure::Postgres(source) | Failure::Connect(source) => return message(source),
            Failure::NoWay(why) | Failure::Each(_, why) => return why.clone(),
            Failure::Silent => "no response",
            Failure::Unreplicated => {
                "the server has given up waiting for a replica, which may lack the commit"
            }
            Failure::Malformed => "the answer has not the form that was expected",
        }
        .to_owned()
    }

    /// Returns the server's code of an error.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Failure::Postgres(error) | Failure::Connect(error) => {
                error.code().map(postgres::error::SqlState::code)
            }
            _ => None,
        }
    }

    /// Returns `true` if the connection is of no use any more.
    pub(crate) fn is_the_connections(&self) -> bool {
        match self {
            Failure::Silent | Failure::Unreplicated => true,
            Failure::Postgres(error) => match error.code() {
                // A server that is a replica by now answers reads for as long as the connection exists.
                Some(code) => is_of(code.code(), &["25006", "57P01", "57P02", "57P03", "57P05", "08"]),
                None => true,
            },
            _ => false,
        }
    }

    /// Returns `true` if the database does not have the schema.
    pub(crate) fn is_of_a_missing_schema(&self) -> bool {
        let code = |error: &postgres::Error| error.code().is_some_and(|code| is_missing(code.code()));
        matches!(self, Failure::Postgres(error) if code(error))
    }
}

fn is_of(code: &str, codes: &[&str]) -> bool {
    codes.iter().any(|prefix| code.starts_with(prefix))
}

fn is_missing(code: &str) -> bool {
    is_of(code, &["3F000", "42883", "42P01"])
}

/// What a pooler causes that gives each transaction another connection: a prepared statement is missing, or there already.
fn is_of_a_pooler(code: &str) -> bool {
    is_of(code, &["26000", "42P05"])
}

/// Returns what an error says, and what helps.
fn message(source: &postgres::Error) -> String {
    let Some(found) = source.as_db_error() else {
        // The library's text is only about the attempt: "error connecting to server".
        let cause = std::error::Error::source(source).map(|cause| format!(": {cause}"));
        return format!("{source}{}", cause.unwrap_or_default());
    };
    let mut message = found.message().to_owned();
    if is_missing(found.code().code()) {
        message.push_str(
            ": run the SQL of the schema zlock in this database, or connect with create_schema=true",
        );
    } else if found.code().code() == "42501" && message.contains("zlock") {
        message.push_str(": GRANT zlock_user TO it; a schema that create_schema=true has made is for the user that made it");
    } else if is_of_a_pooler(found.code().code()) {
        message.push_str(
            ": a pooler in transaction mode seems to be in between: add pooler=true to the URL, or call with_pooler(true)",
        );
    } else if let Some(hint) = found.hint() {
        message = format!("{message}: {hint}");
    }
    message
}

/// Returns what an error means for a request that was sent.
fn classify(error: &postgres::Error) -> FailureClass {
    match error.code() {
        Some(code) => classify_code(code.code()),
        // The connection broke, or never was: also if the library refuses to send anything over it.
        None => FailureClass { kind: ErrorKind::Unavailable, ambiguous: true, retryable: true },
    }
}

/// Returns what one of PostgreSQL's codes means. A statement that the server refuses has no effect.
fn classify_code(code: &str) -> FailureClass {
    let (kind, ambiguous, retryable) = match code {
        "ZL001" => (ErrorKind::SessionLost, false, true),
        // The isolation level, the longest timeout, the class or the version of the store.
        "ZL005" | "ZL008" | "ZL013" => (ErrorKind::InvalidArgument, false, false),
        // The database, or the schema in it, does not exist.
        "3D000" => (ErrorKind::InvalidArgument, false, false),
        _ if is_missing(code) || is_of_a_pooler(code) => (ErrorKind::InvalidArgument, false, false),
        _ if is_of(code, &["28", "42501"]) => (ErrorKind::NotAuthorized, false, false),
        // The connection, or the server, is going away: its last commit may have happened.
        _ if is_of(code, &["08", "57P01", "57P02", "57P05", "58"]) => (ErrorKind::Unavailable, true, true),
        // A replica, a server that starts, conflicts of locks, a lack of resources.
        _ if is_of(code, &["25006", "57", "40", "53", "55"]) => (ErrorKind::Unavailable, false, true),
        _ if is_of(code, &["54"]) => (ErrorKind::InvalidArgument, false, false),
        _ if is_of(code, &["XX"]) => (ErrorKind::Unexpected, true, false),
        _ => (ErrorKind::Unexpected, false, false),
    };
    FailureClass { kind, ambiguous, retryable }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_class() {
        use ErrorKind::*;
        for (code, kind, ambiguous, retryable) in [
            ("ZL001", SessionLost, false, true),
            ("ZL005", InvalidArgument, false, false),
            ("ZL008", InvalidArgument, false, false),
            ("ZL013", InvalidArgument, false, false),
            ("08006", Unavailable, true, true),
            ("22021", Unexpected, false, false),
            ("25006", Unavailable, false, true),
            ("26000", InvalidArgument, false, false),
            ("28000", NotAuthorized, false, false),
            ("28P01", NotAuthorized, false, false),
            ("3D000", InvalidArgument, false, false),
            ("3F000", InvalidArgument, false, false),
            ("40001", Unavailable, false, true),
            ("40P01", Unavailable, false, true),
            ("42501", NotAuthorized, false, false),
            ("42601", Unexpected, false, false),
            ("42883", InvalidArgument, false, false),
            ("53300", Unavailable, false, true),
            ("54000", InvalidArgument, false, false),
            ("55P03", Unavailable, false, true),
            ("57014", Unavailable, false, true),
            ("57P01", Unavailable, true, true),
            ("57P02", Unavailable, true, true),
            ("57P03", Unavailable, false, true),
            ("57P05", Unavailable, true, true),
            ("58030", Unavailable, true, true),
            ("XX000", Unexpected, true, false),
        ] {
            assert_eq!(classify_code(code), FailureClass { kind, ambiguous, retryable }, "{code}");
        }
    }
}
