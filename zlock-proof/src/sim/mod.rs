//! Many clients and faults from a seed, on mem in paused time.

use std::process::ExitCode;

pub(crate) fn run(_args: &[String]) -> ExitCode {
    ExitCode::FAILURE
}
