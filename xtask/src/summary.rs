//! What `cargo test` printed, in numbers: by crate and backend.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What a skipped test's line begins with: zlock-testkit's `SKIP_MARK`.
const SKIP_MARK: &str = "ZLOCK-SKIP ";

const BACKENDS: [&str; 3] = ["mem", "zookeeper", "none"];

/// The test programs, by file name: which crate each belongs to.
#[derive(Debug, Default)]
pub(crate) struct Programs(BTreeMap<String, String>);

impl Programs {
    /// From cargo's JSON messages, one a line.
    pub(crate) fn read(messages: &str) -> Self {
        let program = |message: &str| {
            let path = text(message, "executable")?;
            let manifest = text(message, "manifest_path")?;
            let folder = manifest.strip_suffix("/Cargo.toml")?;
            let mut name = file_name(folder).to_owned();
            if std::path::Path::new(&format!("{folder}/Cargo.lock")).exists() {
                // The root, whatever its folder is called.
                name = "zlock".into();
            }
            Some((file_name(&path).to_owned(), name))
        };
        Programs(messages.lines().filter_map(program).collect())
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The text of a field in a line of JSON; cargo writes no blanks and paths have no quotes.
fn text(json: &str, field: &str) -> Option<String> {
    let (_, rest) = json.split_once(&format!("\"{field}\":\""))?;
    Some(rest.split_once('"')?.0.to_owned())
}

#[derive(Debug, Default)]
struct Count {
    passed: u32,
    failed: u32,
    ignored: u32,
}

/// Reads the output of `cargo test` line by line; shows a table.
#[derive(Debug)]
pub(crate) struct Summary {
    programs: Programs,
    /// The crate and the test program whose lines are coming.
    current: (String, String),
    counts: BTreeMap<(String, &'static str), Count>,
    /// Why, and which tests.
    skipped: BTreeMap<String, BTreeSet<String>>,
    failures: Vec<String>,
}

impl Summary {
    pub(crate) fn new(programs: Programs) -> Self {
        let (current, counts) = Default::default();
        Summary { programs, current, counts, skipped: BTreeMap::new(), failures: Vec::new() }
    }

    pub(crate) fn failed(&self) -> usize {
        self.failures.len()
    }

    pub(crate) fn line(&mut self, line: &str) {
        let trimmed = line.trim();
        if let Some(name) = trimmed.strip_prefix("Doc-tests ") {
            self.current = (name.replace('_', "-"), "doc".into());
        } else if let Some((what, path)) = running(trimmed) {
            let name = self.programs.0.get(file_name(path)).cloned();
            self.current = (name.unwrap_or_else(|| "?".into()), what.to_owned());
        } else if let Some(skip) = trimmed.strip_prefix(SKIP_MARK) {
            let (test, reason) = skip.split_once(": ").unwrap_or((skip, ""));
            self.skipped.entry(reason.to_owned()).or_default().insert(format!("{}: {test}", self.current.0));
        } else if let Some((name, result)) = test(line) {
            self.count(name, result);
        }
    }

    fn count(&mut self, name: &str, result: &str) {
        let (package, program) = &self.current;
        let count = self.counts.entry((package.clone(), backend(package, program, name))).or_default();
        match result {
            "ok" => count.passed += 1,
            "FAILED" => {
                count.failed += 1;
                self.failures.push(format!("{package} {program} {name}"));
            }
            _ => count.ignored += 1,
        }
    }
}

/// `Running tests/a.rs (target/debug/deps/a-1234)`.
fn running(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once(" (")
}

/// `test a::b ... ok`, also with `- should panic` and `- compile`, and with a reason behind `ignored`.
fn test(line: &str) -> Option<(&str, &str)> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let result = result.split([',', ' ']).next()?;
    ["ok", "FAILED", "ignored"].contains(&result).then_some((name.split(" - should").next()?, result))
}

/// By the crate's name; else by the name of the test program, or of a module that the test is in.
fn backend(package: &str, program: &str, name: &str) -> &'static str {
    match package {
        "zlock-mem" => return "mem",
        "zlock-zk" => return "zookeeper",
        _ => {}
    }
    let modules = name.rsplit_once("::").map_or("", |(modules, _)| modules);
    let mut words = program.split(['/', '.', '_', '-']).chain(modules.split("::"));
    match words.find(|word| matches!(*word, "mem" | "zk" | "zookeeper" | "ensemble")) {
        Some("mem") => "mem",
        Some(_) => "zookeeper",
        None => "none",
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packages: BTreeSet<_> = self.counts.keys().map(|(package, _)| package.as_str()).collect();
        let number = |package: Option<&str>, backend: Option<&str>, what: fn(&Count) -> u32| -> u32 {
            let of = self.counts.iter().filter(|((p, b), _)| {
                package.is_none_or(|package| package == p) && backend.is_none_or(|backend| backend == *b)
            });
            of.map(|(_, count)| what(count)).sum()
        };
        let row = |f: &mut fmt::Formatter<'_>, title: &str, package: Option<&str>| {
            write!(f, "{title:16}")?;
            for backend in BACKENDS {
                write!(f, " {:>10}", number(package, Some(backend), |count| count.passed))?;
            }
            write!(f, " {:>10}", number(package, None, |count| count.passed))?;
            write!(f, " {:>8}", number(package, None, |count| count.failed))?;
            writeln!(f, " {:>8}", number(package, None, |count| count.ignored))
        };
        let [mem, zookeeper, none] = BACKENDS;
        writeln!(
            f,
            "\n{:16} {mem:>10} {zookeeper:>10} {none:>10} {:>10} {:>8} {:>8}",
            "tests passed", "together", "failed", "ignored"
        )?;
        for package in packages {
            row(f, package, Some(package))?;
        }
        row(f, "all", None)?;
        for (reason, tests) in &self.skipped {
            writeln!(f, "\n{} test(s) above are no more than SKIPPED, {reason}:", tests.len())?;
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

    const MESSAGES: &str = r#"
{"reason":"compiler-artifact","manifest_path":"/w/zlock-zk/Cargo.toml","executable":"/t/debug/deps/live-12"}
{"reason":"compiler-artifact","manifest_path":"/w/zlock-recipes/Cargo.toml","executable":"/t/debug/deps/zlock_recipes-34"}
{"reason":"compiler-artifact","manifest_path":"/w/zlock-recipes/Cargo.toml","executable":null}
{"reason":"build-finished","success":true}"#;

    const OUTPUT: &str = "
     Running tests/live.rs (target/debug/deps/live-12)
running 3 tests

ZLOCK-SKIP a::skipped: there is no java
test a::skipped ... ok
test b ... FAILED
test c - should panic ... ok
test result: FAILED. 2 passed; 1 failed
     Running unittests src/lib.rs (target/debug/deps/zlock_recipes-34)
test mutex::mem::order ... ok
test mutex::zk::order ... ok
test judge ... ignored, slow
test what_zookeeper::zookeeper ... ok
   Doc-tests zlock_recipes
test zlock-recipes/src/lib.rs - (line 3) - compile ... ok";

    #[test]
    fn counts_by_crate_and_backend() {
        let mut summary = Summary::new(Programs::read(MESSAGES));
        OUTPUT.lines().for_each(|line| summary.line(line));
        let counts: Vec<_> = summary
            .counts
            .iter()
            .map(|((package, backend), n)| (&package[6..], *backend, n.passed, n.failed, n.ignored))
            .collect();
        assert_eq!(
            counts,
            [
                ("recipes", "mem", 1, 0, 0),
                ("recipes", "none", 2, 0, 1),
                ("recipes", "zookeeper", 1, 0, 0),
                ("zk", "zookeeper", 2, 1, 0),
            ]
        );
        let text = summary.to_string();
        assert!(
            text.contains(
                "1 test(s) above are no more than SKIPPED, there is no java:\n  zlock-zk: a::skipped"
            )
        );
        assert!(text.contains("FAILED zlock-zk tests/live.rs b"), "{text}");
    }
}
