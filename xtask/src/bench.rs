//! `cargo xtask bench`: becomes the bench program, built for speed.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::run::{Result, cargo, root};

pub(crate) fn bench(args: &[String]) -> Result {
    // Standard output is for the results alone, and cargo keeps to standard error.
    let mut build = cargo(&["build", "--quiet", "--release", "-p", "zlock-bench"]);
    // Only etcd's client needs protoc to build.
    if args.first().is_some_and(|store| store == "etcd") {
        build.args(["--features", "etcd"]);
    }
    let built = build.status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("the bench does not build".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let mut bench = Command::new(root().join(target).join("release/zlock-bench"));
    Err(format!("zlock-bench: {}", bench.args(args).stdin(Stdio::null()).exec()))
}
