//! How the command ends: its exit codes, and errors of one line.

use std::fmt;
use std::process::ExitCode;

/// The lock was lost, and the command was stopped.
pub(crate) const LOST: u8 = 123;
/// Another client held the lock for all the time that there was.
pub(crate) const BUSY: u8 = 124;
/// zlock itself failed: bad input, or a store that cannot be used.
pub(crate) const FAILED: u8 = 125;
/// The command cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub(crate) const NOT_FOUND: u8 = 127;

/// Returns the exit code for a process that a signal ended.
pub(crate) fn by_signal(signal: i32) -> u8 {
    u8::try_from(signal).map_or(FAILED, |signal| 128u8.saturating_add(signal))
}

/// Why zlock ends without success: a message of one line, and an exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// Empty if there is nothing to say.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Failure { code, message: message.into() }
    }

    /// A failure of zlock itself.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Failure::new(FAILED, message)
    }

    /// Writes the message to standard error and returns the code.
    pub(crate) fn report(&self) -> ExitCode {
        say(&self.message);
        ExitCode::from(self.code)
    }
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

/// Writes a line to standard error, if there is something to say. One that is closed is no reason to fail.
pub(crate) fn say(message: &str) {
    use std::io::Write as _;

    if !message.is_empty() {
        let _ = std::io::stderr().write_all(format!("zlock: {}\n", one_line(message)).as_bytes());
    }
}

fn one_line(message: &str) -> String {
    message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}
