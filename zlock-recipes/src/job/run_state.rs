//! How far a run has come.

use std::fmt::{self, Display};

/// The state of a run.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// The run has begun. If nobody holds the job's lock, its process died, or lost the lock.
    Started,
    /// The run has ended.
    Done,
    /// The run has ended with an error.
    Failed,
}

impl RunState {
    /// Returns the state in lower case, as it is in the record.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Started => "started",
            RunState::Done => "done",
            RunState::Failed => "failed",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        [RunState::Started, RunState::Done, RunState::Failed].into_iter().find(|state| state.as_str() == text)
    }
}

impl Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
