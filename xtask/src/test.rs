//! `cargo xtask test`: every test of the workspace, with a count at the end.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use crate::newest;
use crate::programs::{Program, programs};
use crate::run::{Result, cargo, output, show};
use crate::setup::set_up;
use crate::summary::{SERVER_MARK, SKIP_MARK, Summary};

/// One selection for clippy, tests and docs, so that they share what they build. Without protoc everything but
/// etcd, and that is said.
pub(crate) fn everything() -> Vec<&'static str> {
    if has_protoc() {
        return vec!["--workspace", "--all-features"];
    }
    println!(
        "SKIPPED all of etcd: its client needs protoc and google/protobuf/*.proto to build \
         (apt-get install protobuf-compiler libprotobuf-dev)"
    );
    let features = "zlock/zk-tls,zlock/zk-sasl,zlock-core/conformance,zlock-recipes/suite";
    vec!["--workspace", "--exclude", "zlock-etcd", "--features", features]
}

/// Whether there is a protoc, and with it the files that etcd's protocol imports.
fn has_protoc() -> bool {
    let mut protoc = Command::new(std::env::var("PROTOC").unwrap_or_else(|_| "protoc".into()));
    if let Ok(include) = std::env::var("PROTOC_INCLUDE") {
        protoc.arg("-I").arg(include);
    }
    protoc.args(["-o", "/dev/null", "google/protobuf/descriptor.proto"]);
    protoc.output().is_ok_and(|out| out.status.success())
}

const SERVERS: &str = "ZLOCK_TEST_SERVERS";

pub(crate) fn test(args: &[String]) -> Result {
    let mut args = args.to_vec();
    let newest = newest::environment(&mut args)?;
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
    let everything = everything();
    if require && everything.contains(&"--exclude") {
        return Err("there is no protoc, or not what it imports".into());
    }
    build.args(&everything);
    println!("\n$ {}", show(&build));
    let programs = programs(&output(build)?);
    let built = now();

    let mut summary = Summary::default();
    for Program { package, source, folder, path } in &programs {
        let mut program = Command::new(path);
        program.args(&filter).current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
        program.envs(newest.clone());
        watch(&mut summary, program.env(SERVERS, &servers), package, source)?;
    }
    let mut docs = cargo(&["test", "--doc", "--no-fail-fast"]);
    docs.args(&everything).arg("--").args(&filter);
    watch(&mut summary, &mut docs, "", "doc")?;
    println!("{summary}");
    println!("time: {:.0?} to build, {:.0?} to run", built - began, built.elapsed());
    match summary.is_empty() {
        true => Err("FAILED: no test was found".into()),
        false if summary.failed() => Err("FAILED".into()),
        false => Ok(()),
    }
}

/// Runs it, shows what it writes, and counts. Its standard error is not mixed with its standard output:
/// another line would come between a test's name and its result.
fn watch(summary: &mut Summary, command: &mut Command, package: &str, source: &str) -> Result {
    let title = format!("{package} {source}");
    println!("\n$ {}", title.trim());
    let failed = |e| format!("{title}: {e}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let errors = std::thread::spawn(move || {
        let (mut skips, mut servers) = (Vec::new(), Vec::new());
        lines(stderr, |line| {
            let _ = writeln!(std::io::stderr(), "{line}");
            skips.extend(line.strip_prefix(SKIP_MARK).map(str::to_owned));
            servers.extend(line.strip_prefix(SERVER_MARK).map(str::to_owned));
        });
        (skips, servers)
    });
    let mut results = Vec::new();
    lines(stdout, |line| {
        // A closed standard output (`| head`) is no reason to leave the tests alone.
        let _ = writeln!(std::io::stdout(), "{line}");
        results.push(line.to_owned());
    });
    let passed = child.wait().map_err(failed)?.success();
    let (skips, servers) =
        errors.join().map_err(|_| format!("{title}: its standard error cannot be read"))?;
    summary.add(package, source, &results, &skips, passed);
    summary.add_servers(servers);
    Ok(())
}

fn lines(from: Option<impl Read>, mut each: impl FnMut(&str)) {
    let Some(from) = from else { return };
    for line in BufReader::new(from).split(b'\n').map_while(|line| line.ok()) {
        each(&String::from_utf8_lossy(&line));
    }
}

#[allow(clippy::disallowed_methods, reason = "how long a task takes is measured on the wall")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
