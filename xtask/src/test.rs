//! `cargo xtask test`: runs every test of the workspace, and counts the results.

use std::cmp::Reverse;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::lanes::{is_heavy, is_paused, is_waiting, side_by_side};
use crate::programs::{Program, programs};
use crate::run::{Result, cargo, output, run as run_command, show, target};
use crate::setup::set_up;
use crate::summary::Summary;

/// Returns one selection of packages for clippy, tests and docs, so that they share their builds. Without protoc it excludes
/// etcd, and prints that.
pub(crate) fn everything() -> Vec<&'static str> {
    if has_protoc() {
        return vec!["--workspace", "--all-features"];
    }
    println!(
        "SKIPPED all of etcd, and the command and the models, which have it: its client needs protoc and \
         google/protobuf/*.proto to build (apt-get install protobuf-compiler libprotobuf-dev)"
    );
    let features = "zlock/zk-tls,zlock/zk-sasl,zlock/srv,zlock/cron,zlock/discovery,zlock-tests/zk-tls,zlock-tests/zk-sasl,zlock-tests/srv";
    vec!["--workspace", "--exclude", "zlock-etcd", "--exclude", "zlock-cli", "--features", features]
}

/// Returns `true` if protoc is installed, with the files that etcd's protocol imports.
fn has_protoc() -> bool {
    let mut protoc = Command::new(std::env::var("PROTOC").unwrap_or_else(|_| "protoc".into()));
    if let Ok(include) = std::env::var("PROTOC_INCLUDE") {
        protoc.arg("-I").arg(include);
    }
    protoc.args(["-o", "/dev/null", "google/protobuf/descriptor.proto"]);
    protoc.output().is_ok_and(|out| out.status.success())
}

/// The guide's code with other libraries for PostgreSQL, in a workspace of its own.
pub(crate) const POOLS: &str = "docs/guide/pools/Cargo.toml";

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
    let programs = build(require)?;
    // Not beside the tests: it needs every core for minutes, and servers would answer too late.
    let mut build_pools = pools();
    build_pools.arg("--no-run");
    run_command(build_pools)?;
    let built = now();

    let mut jobs = Vec::new();
    for program in programs {
        let mut command =
            if is_paused(&program) { Command::new("nice") } else { Command::new(&program.path) };
        if is_paused(&program) {
            command.args(["-n", "5", &program.path]);
        }
        command.args(&filter);
        jobs.push((program, command));
    }
    let mut docs = cargo(&["test", "--doc", "--no-fail-fast"]);
    docs.args(everything()).arg("--").args(&filter);
    let mut pools = pools();
    pools.arg("--").args(&filter);
    for (package, source, command) in [("", "doc", docs), ("zlock-pools", "postgres", pools)] {
        let (package, source) = (package.to_owned(), source.to_owned());
        jobs.push((Program { package, source, ..Program::default() }, command));
    }
    let outcome = run_all(jobs, &servers);
    println!("time: {:.0?} to build, {:.0?} to run", built - began, built.elapsed());
    outcome
}

/// Returns the command that tests the pools.
fn pools() -> Command {
    let mut pools = cargo(&["test", "--manifest-path", POOLS, "--target-dir"]);
    pools.arg(target().join("pools"));
    pools
}

/// Builds all test programs.
pub(crate) fn build(require: bool) -> Result<Vec<Program>> {
    let mut build = cargo(&["test", "--no-run", "--message-format=json-render-diagnostics"]);
    let everything = everything();
    if require && everything.contains(&"--exclude") {
        return Err("protoc is missing, or the files that it imports".into());
    }
    build.args(&everything);
    println!("\n$ {}", show(&build));
    Ok(programs(&output(build)?))
}

/// Runs programs, and counts and prints their results.
pub(crate) fn run_all(mut jobs: Vec<(Program, Command)>, servers: &str) -> Result {
    for (program, command) in &mut jobs {
        command.env(SERVERS, servers);
        if is_waiting(program) {
            command.env("RUST_TEST_THREADS", "5");
        }
        if !program.folder.is_empty() {
            command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
        }
    }
    // The programs that take longest start first. A large file has many tests. The docs come before all: most of their time is the
    // compiler's, which needs every core and would have one at the end.
    let size = |program: &Program| std::fs::metadata(&program.path).map_or(u64::MAX, |file| file.len());
    jobs.sort_by_cached_key(|(program, _)| Reverse(size(program)));
    let (heavy, light): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|(program, _)| is_heavy(program));
    let (paused, light) = light.into_iter().partition(|(program, _)| is_paused(program));

    let mut done = side_by_side([heavy, paused], light, run).into_iter().collect::<Result<Vec<_>>>()?;
    done.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut summary = Summary::default();
    for (program, output) in &done {
        let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        summary.add(&program.package, &program.source, &stdout, &stderr, output.status.success());
    }
    println!("{summary}");
    match summary.is_empty() {
        true => Err("FAILED: no test was found".into()),
        false if summary.failed() => Err("FAILED".into()),
        false => Ok(()),
    }
}

/// Runs a program to its end, then prints its output, so that the outputs of two programs do not mix. Standard error is kept
/// apart from standard output, whose lines are counted.
fn run((program, mut command): (Program, Command)) -> Result<(Program, Output)> {
    let title = format!("{} {}", program.package, program.source);
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{title}: {e}"))?;
    let mut stdout = std::io::stdout().lock();
    // Tests run even if standard output is closed (`| head`).
    let _ = writeln!(stdout, "\n$ {}", title.trim());
    let _ = std::io::stderr().write_all(&output.stderr);
    let _ = stdout.write_all(&output.stdout);
    Ok((program, output))
}

#[allow(clippy::disallowed_methods, reason = "how long a task takes is measured on the wall")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
