//! The waiting state machine under a model checker.

use std::process::ExitCode;

pub(crate) fn run(_args: &[String]) -> ExitCode {
    ExitCode::FAILURE
}
