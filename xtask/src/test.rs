//! `cargo xtask test`: every test of the workspace, with a count at the end.

use std::io::{BufRead, BufReader, Write};
use std::process::Command;

use crate::run::{Result, cargo, output, show};
use crate::setup::set_up;
use crate::summary::{Programs, Summary};

/// One selection for clippy, tests and docs, so that they share what they build.
pub(crate) const EVERYTHING: [&str; 2] = ["--workspace", "--all-features"];

const SERVERS: &str = "ZLOCK_TEST_SERVERS";

pub(crate) fn test(args: &[String]) -> Result {
    let require = args.iter().any(|arg| arg == "--require");
    let filter: Vec<_> = args.iter().filter(|arg| *arg != "--require").map(String::as_str).collect();
    if let Some(option) = filter.iter().find(|arg| arg.starts_with('-')) {
        return Err(format!("unknown option {option}"));
    }
    let began = now();
    let servers = if require { "require".into() } else { std::env::var(SERVERS).unwrap_or("auto".into()) };
    if servers != "off" {
        set_up()?;
    }
    let mut build = cargo(&["test", "--no-run", "--message-format=json-render-diagnostics"]);
    build.args(EVERYTHING);
    println!("\n$ {}", show(&build));
    let programs = Programs::read(&output(build)?);
    let built = now();
    let mut tests = cargo(&["test", "--no-fail-fast"]);
    tests.args(EVERYTHING).args(&filter).env(SERVERS, servers);
    let mut summary = Summary::new(programs);
    let passed = watch(tests, |line| summary.line(line))?;
    println!("{summary}");
    println!("time: {:.0?} to build, {:.0?} to run", built - began, built.elapsed());
    match (passed, summary.failed()) {
        (true, 0) => Ok(()),
        (_, n) => Err(format!("FAILED: {n} test(s), or something that is no test: see above")),
    }
}

/// Runs it, shows its output line by line, in the order in which it was written, and hands each line on.
fn watch(mut command: Command, mut each: impl FnMut(&str)) -> Result<bool> {
    let shown = show(&command);
    println!("\n$ {shown}");
    let failed = |e| format!("{shown}: {e}");
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    command.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    let mut child = command.spawn().map_err(failed)?;
    // The command holds the pipe's other end; without it there would be no end to read.
    drop(command);
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.map_err(failed)?;
        let line = String::from_utf8_lossy(&line);
        // A closed standard output (`| head`) is no reason to leave the tests alone.
        let _ = writeln!(std::io::stdout(), "{line}");
        each(&line);
    }
    Ok(child.wait().map_err(failed)?.success())
}

#[allow(clippy::disallowed_methods, reason = "how long a task takes is measured on the wall")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
