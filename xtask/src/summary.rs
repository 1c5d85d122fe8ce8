//! Counts the results of test programs by crate and backend.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The beginning of a line about a skipped test: zlock-testkit's `SKIP_MARK`.
const SKIP_MARK: &str = "ZLOCK-SKIP ";

/// The beginning of a line about a running server: zlock-testkit's `SERVER_MARK`.
const SERVER_MARK: &str = "ZLOCK-SERVER ";

const BACKENDS: [&str; 6] = ["mem", "zookeeper", "etcd", "postgres", "mysql", "none"];

#[derive(Debug, Default)]
struct Count {
    passed: u32,
    failed: u32,
    skipped: u32,
    ignored: u32,
}

/// Counts the tests of several programs, and displays a table.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    counts: BTreeMap<(String, &'static str), Count>,
    /// The reasons, and the tests.
    skipped: BTreeMap<String, Vec<String>>,
    failures: Vec<String>,
    /// The servers that ran, with their versions.
    servers: BTreeSet<String>,
}

impl Summary {
    pub(crate) fn failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Returns `true` if no test ran.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Adds the output of one program. Its standard error has the tests that it skipped (`name: reason`) and the servers that
    /// it ran. `passed` is `true` if its exit status was 0. The crate of a documentation test follows from the test's name.
    pub(crate) fn add(&mut self, package: &str, source: &str, stdout: &str, stderr: &str, passed: bool) {
        let marked = |mark| stderr.lines().filter_map(move |line| line.strip_prefix(mark));
        let skips: BTreeMap<_, _> = marked(SKIP_MARK).filter_map(|skip| skip.split_once(": ")).collect();
        self.servers.extend(marked(SERVER_MARK).map(str::to_owned));
        let failures = self.failures.len();
        for (name, result) in stdout.lines().filter_map(test) {
            let package = if package.is_empty() { documented(name) } else { package };
            let count = self.counts.entry((package.to_owned(), backend(package, source, name))).or_default();
            match (result, skips.get(name)) {
                // For libtest, a test that returns early has passed.
                ("ok", Some(reason)) => {
                    count.skipped += 1;
                    self.skipped.entry((*reason).to_owned()).or_default().push(format!("{package} {name}"));
                }
                ("ok", None) => count.passed += 1,
                ("FAILED", _) => {
                    count.failed += 1;
                    self.failures.push(format!("{package} {source} {name}{}", panic(stdout, name)));
                }
                _ => count.ignored += 1,
            }
        }
        if !passed && self.failures.len() == failures {
            self.failures.push(format!("{package} {source}: not by a test, see its output"));
        }
    }

    fn sum(&self, package: Option<&str>, backend: Option<&str>, what: fn(&Count) -> u32) -> u32 {
        let of = self.counts.iter().filter(|((p, b), _)| {
            package.is_none_or(|package| package == p) && backend.is_none_or(|backend| backend == *b)
        });
        of.map(|(_, count)| what(count)).sum()
    }
}

/// Parses `test a::b ... ok`, also with `- should panic` or `- compile`, and with a reason after `ignored`.
fn test(line: &str) -> Option<(&str, &str)> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let result = result.split([',', ' ']).next()?;
    ["ok", "FAILED", "ignored"].contains(&result).then_some((name.split(" - should").next()?, result))
}

/// Returns the beginning of what a failed test printed from its panic on, indented.
fn panic(stdout: &str, name: &str) -> String {
    let output = stdout.split_once(&format!("---- {name} stdout ----")).map_or("", |(_, output)| output);
    let lines = output.lines().take_while(|line| !line.starts_with("---- ") && *line != "failures:");
    lines
        .skip_while(|line| !line.contains(" panicked at "))
        .take(10)
        .map(|line| format!("\n  {line}"))
        .collect()
}

/// Returns the crate of a documentation test such as `zlock-core/src/path.rs - LockPath (line 3)`.
fn documented(name: &str) -> &str {
    name.split_once("/src/").map_or("zlock", |(package, _)| package)
}

/// Returns the backend that a test belongs to: by the name of its crate, of its source file, or of one of its modules.
fn backend(package: &str, source: &str, name: &str) -> &'static str {
    match package {
        "zlock-mem" => return "mem",
        "zlock-postgres" => return "postgres",
        "zlock-mysql" => return "mysql",
        "zlock-zk" => return "zookeeper",
        "zlock-etcd" => return "etcd",
        _ => {}
    }
    let modules = name.rsplit_once("::").map_or("", |(modules, _)| modules);
    let mut words = source.split(['/', '.', '_', '-']).chain(modules.split("::"));
    match words.find(|word| matches!(*word, "mem" | "zk" | "zookeeper" | "etcd" | "postgres" | "mysql")) {
        Some("mem") => "mem",
        Some("etcd") => "etcd",
        Some("postgres") => "postgres",
        Some("mysql") => "mysql",
        Some(_) => "zookeeper",
        None => "none",
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packages: BTreeSet<_> = self.counts.keys().map(|(package, _)| package.as_str()).collect();
        write!(f, "\n{:14}", "tests passed")?;
        BACKENDS.iter().try_for_each(|backend| write!(f, " {backend:>9}"))?;
        write!(f, " {:>9}", "together")?;
        writeln!(f, " {:>9} {:>9} {:>9}", "failed", "skipped", "ignored")?;
        for package in packages.into_iter().map(Some).chain([None]) {
            write!(f, "{:14}", package.unwrap_or("all"))?;
            for backend in BACKENDS {
                write!(f, " {:>9}", self.sum(package, Some(backend), |count| count.passed))?;
            }
            let rest: [fn(&Count) -> u32; 4] = [|c| c.passed, |c| c.failed, |c| c.skipped, |c| c.ignored];
            for what in rest {
                write!(f, " {:>9}", self.sum(package, None, what))?;
            }
            writeln!(f)?;
        }
        if !self.servers.is_empty() {
            writeln!(
                f,
                "servers: {}",
                self.servers.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
            )?;
        }
        for (reason, tests) in &self.skipped {
            writeln!(f, "\nSKIPPED {} test(s), {reason}:", tests.len())?;
            tests.iter().try_for_each(|test| writeln!(f, "  {test}"))?;
        }
        if self.skipped.is_empty() {
            writeln!(f, "no test was skipped")?;
        }
        self.failures.iter().try_for_each(|failure| writeln!(f, "FAILED {failure}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(summary: &mut Summary, package: &str, source: &str, stdout: &str, passed: bool) {
        let stderr = "ZLOCK-SERVER etcd 3.4.23\nZLOCK-SKIP a::skipped: there is no java\nelse";
        summary.add(package, source, stdout, stderr, passed);
    }

    #[test]
    fn counts_by_crate_and_backend() {
        let mut summary = Summary::default();
        assert!(summary.is_empty());
        let zk = "running 3 tests\ntest a::skipped ... ok\ntest b ... FAILED\ntest c - should panic ... ok\n\n\
                  failures:\n\n---- b stdout ----\na line\nthread 'b' panicked at tests/live.rs:7:5:\nnot held\n\nfailures:\n    b\n";
        add(&mut summary, "zlock-zk", "tests/live.rs", zk, false);
        let recipes = "test mutex::mem::order ... ok\ntest mutex::zk::order ... ok\n\
                       test judge ... ignored, slow\ntest what_zookeeper::zookeeper ... ok\n";
        add(&mut summary, "zlock-recipes", "src/lib.rs", recipes, true);
        let docs =
            "test zlock-core/src/lib.rs - (line 3) - compile ... ok\ntest src/lib.rs - (line 3) ... ok";
        add(&mut summary, "", "doc", docs, true);
        add(&mut summary, "zlock-core", "src/lib.rs", "", false);
        let row = |((package, backend), n): (&(String, &'static str), &Count)| {
            format!("{package} {backend} {} {} {} {}", n.passed, n.failed, n.skipped, n.ignored)
        };
        assert_eq!(
            summary.counts.iter().map(row).collect::<Vec<_>>(),
            [
                "zlock none 1 0 0 0",
                "zlock-core none 1 0 0 0",
                "zlock-recipes mem 1 0 0 0",
                "zlock-recipes none 1 0 0 1",
                "zlock-recipes zookeeper 1 0 0 0",
                "zlock-zk zookeeper 1 1 1 0",
            ]
        );
        summary.add("zlock-core", "src/lib.rs", "", "ZLOCK-SERVER ZooKeeper 3.8.0\n", true);
        let text = summary.to_string();
        assert!(text.contains("\nservers: ZooKeeper 3.8.0, etcd 3.4.23\n"), "{text}");
        assert!(text.contains("SKIPPED 1 test(s), there is no java:\n  zlock-zk a::skipped"), "{text}");
        let panic =
            "FAILED zlock-zk tests/live.rs b\n  thread 'b' panicked at tests/live.rs:7:5:\n  not held\n";
        assert!(text.contains(panic), "{text}");
        assert!(text.contains("FAILED zlock-core src/lib.rs: not by a test"), "{text}");
        assert!(summary.failed() && !summary.is_empty());
    }
}
