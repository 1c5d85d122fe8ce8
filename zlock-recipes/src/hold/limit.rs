//! The longest hold of a lock.

use std::time::Duration;

use tokio::time::Instant;
use zlock_core::{Error, ErrorKind, LockPath, Result};

/// How long a lock may be held, and when that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    longest: Duration,
    /// `None` if the clock cannot represent it.
    end: Option<Instant>,
}

impl Limit {
    /// Begins to count.
    pub(crate) fn begin(longest: Duration) -> Self {
        Limit { longest, end: Instant::now().checked_add(longest) }
    }

    pub(crate) fn end(&self) -> Option<Instant> {
        self.end
    }

    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    pub(crate) fn error(&self, operation: &'static str, path: &LockPath) -> Error {
        let message = format!("for longer than {:?}", self.longest);
        Error::new(ErrorKind::HeldTooLong, operation).with_path(path).with_message(message)
    }
}

/// Refuses a limit of zero.
pub(crate) fn check(longest: Duration, path: &str) -> Result<Duration> {
    if longest.is_zero() {
        let message = "the longest hold is zero; leave it out for no limit";
        return Err(Error::new(ErrorKind::InvalidArgument, "max_hold").with_path(path).with_message(message));
    }
    Ok(longest)
}
