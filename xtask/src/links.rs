//! Links in Markdown, and that the guide is complete.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::docs::{Text, prose_lines};
use crate::run::{Result, root};

const GUIDE: &str = "docs/guide/src";

/// Checks the relative links of these files, and what else must fit together in the guide.
pub(crate) fn check(files: &[Text], found: &mut Vec<String>) -> Result {
    for file in files {
        for (line, target) in targets(file) {
            if let Err(why) = follow(file, &target) {
                found.push(format!("{}:{line}: {target}: {why}", file.path));
            }
        }
    }
    pages(files, found);
    code(files, found)
}

/// The targets of the links and pictures of a file, each with its line.
fn targets(file: &Text) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    for (line, text) in prose_lines(&file.text) {
        let mut rest = without_code(text);
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, after)) = after.split_once(')') else { break };
            targets.push((line, target.to_owned()));
            rest = after.to_owned();
        }
    }
    targets
}

/// The line with its inline code blanked out.
fn without_code(line: &str) -> String {
    line.split('`').enumerate().map(|(n, part)| if n % 2 == 0 { part } else { "" }).collect()
}

fn follow(file: &Text, target: &str) -> Result {
    if ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
        return Ok(());
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match path {
        "" => PathBuf::from(&file.path),
        path => normal(&Path::new(&file.path).parent().unwrap_or(Path::new("")).join(path)),
    };
    if file.path.starts_with(GUIDE) && !path.starts_with(GUIDE) {
        return Err("leads out of the guide, and nowhere in the book".into());
    }
    let full = root().join(&path);
    if !full.exists() {
        return Err("there is no such file".into());
    }
    if anchor.is_empty() {
        return Ok(());
    }
    let text = match path == Path::new(&file.path) {
        true => file.text.clone(),
        false => fs::read_to_string(&full).map_err(|e| e.to_string())?,
    };
    if anchors(&text).any(|known| known == anchor) { Ok(()) } else { Err("there is no such heading".into()) }
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// The anchors of the headings, as mdBook and GitHub make them.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    prose_lines(text).filter_map(|(_, line)| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len()).then(|| {
            let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
        })
    })
}

/// Each page of the guide is in its table of contents.
fn pages(files: &[Text], found: &mut Vec<String>) {
    let summary = format!("{GUIDE}/SUMMARY.md");
    let Some(file) = files.iter().find(|file| file.path == summary) else { return };
    let listed: BTreeSet<_> = targets(file).into_iter().map(|(_, page)| format!("{GUIDE}/{page}")).collect();
    for file in files.iter().filter(|file| file.path.starts_with(GUIDE) && file.path != summary) {
        if !listed.contains(&file.path) {
            found.push(format!("{}: is not in {summary}", file.path));
        }
    }
}

/// All Rust in the guide is compiled and run: it is in a doc test, or in a file of tests that the page includes.
fn code(files: &[Text], found: &mut Vec<String>) -> Result {
    let tested = fs::read_to_string(root().join("docs/guide/code/lib.rs")).map_err(|e| e.to_string())?;
    for file in files.iter().filter(|file| file.path.starts_with(GUIDE)) {
        let mut lines = file.text.lines().enumerate().map(|(n, line)| (n + 1, line));
        let name = file.path.trim_start_matches(GUIDE).trim_start_matches('/');
        while let Some((n, line)) = lines.next() {
            match line {
                "```rust" if !tested.contains(&format!("\"{name}\"")) => {
                    found.push(format!(
                        "{}:{n}: code of a page that docs/guide/code/lib.rs does not have",
                        file.path
                    ));
                }
                // Not "rust": those are doc tests.
                "```rs" => {
                    let Some((n, line)) = lines.next() else { continue };
                    if let Err(why) = included(line) {
                        found.push(format!("{}:{n}: {why}", file.path));
                    }
                }
                _ if line.starts_with("```rust,") => {
                    found.push(format!("{}:{n}: code that is not run", file.path));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Checks that a line includes a part of a file that is there.
fn included(line: &str) -> Result {
    let include = line.strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}"));
    let Some(include) = include else { return Err("code that is neither run nor included".into()) };
    let (path, part) = include.split_once(':').unwrap_or((include, ""));
    let text = fs::read_to_string(root().join(GUIDE).join(path)).map_err(|e| format!("{path}: {e}"))?;
    let is_number = part.starts_with(|c: char| c.is_ascii_digit());
    if part.is_empty() || is_number || text.contains(&format!("// ANCHOR: {part}\n")) {
        Ok(())
    } else {
        Err(format!("{path} has no part {part:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str, text: &str) -> Text {
        Text { path: path.into(), text: text.into() }
    }

    #[test]
    fn broken_links_are_named() {
        let links = "[a](nowhere.md) `[b](code.md)` [c](#no-such) [d](https://example.org) [e](#a-heading)";
        let mut found = Vec::new();
        check(&[text("README.md", &format!("{links}\n\n# A heading!"))], &mut found).unwrap_or_default();
        let broken = ["nowhere.md: there is no such file", "#no-such: there is no such heading"];
        assert_eq!(found, broken.map(|why| format!("README.md:1: {why}")));
    }

    #[test]
    fn a_page_does_not_lead_out_of_the_book() {
        let mut found = Vec::new();
        check(&[text("docs/guide/src/a.md", "[a](../../../README.md)")], &mut found).unwrap_or_default();
        assert!(found[0].contains("leads out of the guide"), "{found:?}");
    }

    #[test]
    fn code_that_is_not_run_is_named() {
        let page = "```rs\nfn f() {}\n```\n```rust,no_run\n```\n```rust\n```\n";
        let mut found = Vec::new();
        code(&[text("docs/guide/src/a.md", page)], &mut found).unwrap_or_default();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(included("{{#include ../code/service.rs:no_such_part}}").is_err());
        assert!(included("{{#include ../code/service.rs:service}}").is_ok());
    }
}
