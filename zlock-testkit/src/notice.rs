//! Lines that no test runner hides.

use std::io::Write;

/// Writes a line to standard error, bypassing libtest, which hides the output of `eprintln!` in passing tests. Writes it in
/// one piece, so that output of other tests does not mix with it.
pub(crate) fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("\n{line}\n").as_bytes());
}
