//! Exit codes, and errors that are reported on one line.

use std::fmt;
use std::process::ExitCode;

use crate::output::clean;

/// Nothing failed.
pub(crate) const SUCCESS: u8 = 0;
/// The tick or the key of a job has run already.
pub(crate) const DONE: u8 = 122;
/// The lock was lost, and the command was stopped.
pub(crate) const LOST: u8 = 123;
/// Another client held the lock until the time limit.
pub(crate) const BUSY: u8 = 124;
/// zlock itself failed, for example because of bad input or an unreachable store.
pub(crate) const FAILED: u8 = 125;
/// The command cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// Returns the exit code for a process that was terminated by a signal.
pub(crate) fn by_signal(signal: i32) -> u8 {
    u8::try_from(signal).map_or(FAILED, |signal| 128u8.saturating_add(signal))
}

/// An error: a one-line message and an exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// Empty if nothing is printed.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Failure { code, message: message.into() }
    }

    /// Creates a failure of zlock itself, with exit code 125.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Failure::new(FAILED, message)
    }

    /// Writes the message to standard error and returns the code.
    pub(crate) fn report(&self) -> ExitCode {
        say(&self.message);
        ExitCode::from(self.code)
    }
}

/// Returns the exit code of a subcommand that checks something: 1 if the result is bad, even if it could not be printed.
pub(crate) fn checked(is_good: bool, printed: Result<(), Failure>) -> Result<ExitCode, Failure> {
    if is_good {
        return printed.map(|()| ExitCode::SUCCESS);
    }
    if let Err(failure) = printed {
        failure.report();
    }
    Ok(ExitCode::FAILURE)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<zlock::Error> for Failure {
    fn from(error: zlock::Error) -> Self {
        Failure::failed(error.to_string())
    }
}

/// Writes a line to standard error unless the message is empty. Ignores a closed standard error.
pub(crate) fn say(message: &str) {
    use std::io::Write as _;

    if !message.is_empty() {
        let _ = std::io::stderr().write_all(format!("zlock: {}\n", one_line(message)).as_bytes());
    }
}

fn one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    clean(&lines.collect::<Vec<_>>().join(" "))
}
