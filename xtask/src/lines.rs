//! A ratchet: the number of lines of code in each crate is kept in the tree, so that a change shows what it adds and removes.
//!
//! Counted are lines of Rust and SQL that are neither blank nor comments nor tests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use crate::run::{Result, command, output, root};

const KEPT: &str = "docs/lines.txt";

/// The crates that an application may link: the product.
const PRODUCT: [&str; 9] = [
    "src",
    "zlock-core",
    "zlock-etcd",
    "zlock-ledger",
    "zlock-mem",
    "zlock-mysql",
    "zlock-postgres",
    "zlock-recipes",
    "zlock-zk",
];

/// Writes the counts.
pub(crate) fn write() -> Result {
    fs::write(root().join(KEPT), counts()?).map_err(|e| format!("{KEPT}: {e}"))
}

/// Checks that the counts are those of the tree.
pub(crate) fn check() -> Result {
    let (kept, now) = (fs::read_to_string(root().join(KEPT)).unwrap_or_default(), counts()?);
    if kept == now {
        return Ok(());
    }
    let changed: Vec<_> = now.lines().filter(|line| !kept.lines().any(|kept| kept == *line)).collect();
    Err(format!(
        "the lines of code differ from {KEPT}:\n{}\nwrite them with `cargo xtask lines`; a commit that adds lines to a crate says why",
        changed.join("\n")
    ))
}

/// Returns a line for each top-level folder, and one for the product.
fn counts() -> Result<String> {
    let mut counts = BTreeMap::<String, usize>::new();
    for file in output(command("git", &["ls-files", "-co", "--exclude-standard", "*.rs", "*.sql"]))?
        .lines()
        .filter(|file| !is_test(file))
    {
        // A file that is deleted and not committed yet has no lines.
        let text = fs::read_to_string(root().join(file)).unwrap_or_default();
        let folder = file.split('/').next().unwrap_or_default();
        *counts.entry(folder.to_owned()).or_default() += code(&text, file.ends_with(".sql"));
    }
    counts.retain(|_, lines| *lines > 0);
    let product = PRODUCT.iter().filter_map(|folder| counts.get(*folder)).sum::<usize>();
    let mut text = String::new();
    for (folder, lines) in &counts {
        let _ = writeln!(text, "{folder:<15} {lines:>6}");
    }
    let _ = writeln!(text, "{:<15} {product:>6}", "the product");
    Ok(text)
}

fn is_test(file: &str) -> bool {
    let folders = ["tests", "test", "suite", "conformance", "benches"];
    file.split('/').any(|part| folders.contains(&part.trim_end_matches(".rs"))) || file.ends_with("_tests.rs")
}

fn code(text: &str, is_sql: bool) -> usize {
    let body = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let comment = if is_sql { "--" } else { "//" };
    body.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(comment)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blanks_and_tests_do_not_count() {
        let text = "//! About.\n\nfn f() {}\n  // Why.\n#[cfg(test)]\nmod tests {}\n";
        assert_eq!((code(text, false), code("-- why\nSELECT 1;\n", true)), (1, 1));
        assert!(is_test("zlock-cli/tests/run.rs") && is_test("a/src/kit/sessions/tests.rs"));
        assert!(!is_test("zlock-tests/src/lib.rs") && !is_test("xtask/src/test_lines.rs"));
    }
}
