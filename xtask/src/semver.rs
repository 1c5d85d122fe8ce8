//! Compares the listing of the public API with that of an earlier release.

use crate::api;
use crate::run::{Result, command, output};

/// Checks that nothing of the public API at this tag has gone or changed, unless the version says so.
pub(crate) fn check(tag: &str) -> Result {
    let manifest = |at: &str| output(command("git", &["show", &format!("{at}:Cargo.toml")]));
    let (before, now) = (version(&manifest(tag)?), version(&manifest("HEAD")?));
    let mut gone = Vec::new();
    for name in api::names() {
        let listing = |at: &str| output(command("git", &["show", &format!("{at}:docs/api/{name}.txt")]));
        gone.extend(
            missing(&listing(tag)?, &listing("HEAD")?).into_iter().map(|item| format!("{name}: {item}")),
        );
    }
    println!("{tag} is {before}, this is {now}; public items that have gone or changed: {}", gone.len());
    if gone.is_empty() || compatible_part(&before) != compatible_part(&now) {
        return Ok(());
    }
    Err(format!("{}\n{now} would break users of {before}", gone.join("\n")))
}

fn version(manifest: &str) -> String {
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
    line.unwrap_or_default().trim_end_matches('"').to_owned()
}

/// Returns the part of a version that has to change when users' code may break: `1`, `0.2` or `0.0.3`.
fn compatible_part(version: &str) -> &str {
    let zeros = version.split('.').take_while(|part| *part == "0").count();
    let end = version.match_indices('.').nth(zeros).map_or(version.len(), |(at, _)| at);
    &version[..end]
}

/// Returns the items of the earlier listing that the later one lacks, with what they are in: an item is known by the lines
/// around it that are less indented.
fn missing(before: &str, after: &str) -> Vec<String> {
    let after = paths(after);
    paths(before).into_iter().filter(|path| !after.contains(path)).collect()
}

/// Returns each line of a listing below the file's name, behind those that contain it. Items may move between files.
fn paths(listing: &str) -> Vec<String> {
    let mut outer: Vec<(usize, &str)> = Vec::new();
    let mut paths = Vec::new();
    for line in listing.lines() {
        let (item, indent) = (line.trim_start(), line.len() - line.trim_start().len());
        outer.retain(|(depth, _)| *depth < indent);
        if indent > 0 {
            outer.push((indent, item));
            paths.push(outer.iter().map(|(_, item)| *item).collect::<Vec<_>>().join(" > "));
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_gone_or_changed_is_named_and_what_has_moved_is_not() {
        let before = "a.rs\n    pub struct A\n    impl A\n        pub fn f(&self)\n        pub fn g(&self)\n";
        let after =
            "b.rs\n    pub struct A\n    impl A\n        pub fn f(&self) -> u8\n        pub fn g(&self)\n";
        assert_eq!(missing(before, after), ["impl A > pub fn f(&self)"]);
        assert_eq!(missing(before, &format!("{before}    pub struct B\n")), [""; 0]);
    }

    #[test]
    fn the_part_of_a_version_that_breaks() {
        for (version, part) in [("1.2.3", "1"), ("0.2.3", "0.2"), ("0.0.3", "0.0.3")] {
            assert_eq!(compatible_part(version), part);
        }
    }
}
