//! Builds and runs the workspace's programs, in place of the task.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::matrix;
use crate::run::{Result, cargo, show, target};
use crate::setup::set_up;

/// `cargo xtask bench`.
pub(crate) fn bench(args: &[String]) -> Result {
    // Only etcd's client needs protoc to build.
    let options: &[_] = match args.first().map(String::as_str) {
        Some("etcd") => &["--release", "--features", "etcd"],
        Some("postgres") => &["--release", "--features", "postgres"],
        Some("mysql") => &["--release", "--features", "mysql"],
        _ => &["--release"],
    };
    become_program("zlock-bench", options, args)
}

/// `cargo xtask sim` and `cargo xtask model`. `args` begins with the task.
pub(crate) fn proof(args: &[String]) -> Result {
    // Only the models have etcd's client, which needs protoc to build.
    let is_model = args.first().is_some_and(|task| task == "model");
    let options: &[_] = if is_model { &["--release", "--features", "model"] } else { &["--release"] };
    become_program("zlock-proof", options, args)
}

/// `cargo xtask chaos`. `args` begins with the task.
pub(crate) fn chaos(args: &[String]) -> Result {
    set_up()?;
    let mut args = args.to_vec();
    let newest = matrix::environment(&mut args)?;
    run_in_place(program("zlock-proof", &["--features", "chaos"])?.envs(newest).args(args))
}

fn become_program(package: &str, options: &[&str], args: &[String]) -> Result {
    run_in_place(program(package, options)?.args(args))
}

/// Builds a member that is a program.
fn program(package: &str, options: &[&str]) -> Result<Command> {
    // Standard output is only for the results; cargo writes to standard error.
    let built = cargo(&["build", "--quiet", "-p", package]).args(options).status();
    if !built.is_ok_and(|status| status.success()) {
        return Err(format!("{package} does not build"));
    }
    let profile = if options.contains(&"--release") { "release" } else { "debug" };
    Ok(Command::new(target().join(profile).join(package)))
}

/// Replaces this process by the program. Returns only if that fails.
fn run_in_place(program: &mut Command) -> Result {
    Err(format!("{}: {}", show(program), program.stdin(Stdio::null()).exec()))
}
