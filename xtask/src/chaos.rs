//! `cargo xtask chaos`: becomes the program that runs real clusters under faults.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::run::{Result, cargo, root};
use crate::setup::set_up;

pub(crate) fn chaos(args: &[String]) -> Result {
    set_up()?;
    let built = cargo(&["build", "--quiet", "-p", "zlock-proof", "--features", "chaos"]).status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("zlock-proof does not build".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let mut chaos = Command::new(root().join(target).join("debug/zlock-proof"));
    Err(format!("zlock-proof: {}", chaos.arg("chaos").args(args).stdin(Stdio::null()).exec()))
}
