//! A listing of the public API, kept in the tree so that changes to it show up in reviews.
//!
//! The listing is derived from the sources: items that start with `pub` are public, because the lint `unreachable_pub` finds
//! the exceptions.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::run::{Result, root};

/// The published crates: their folders, and the names of their listings.
const CRATES: [(&str, &str); 9] = [
    (".", "zlock"),
    ("zlock-core", "zlock-core"),
    ("zlock-etcd", "zlock-etcd"),
    ("zlock-ledger", "zlock-ledger"),
    ("zlock-mem", "zlock-mem"),
    ("zlock-mysql", "zlock-mysql"),
    ("zlock-postgres", "zlock-postgres"),
    ("zlock-recipes", "zlock-recipes"),
    ("zlock-zk", "zlock-zk"),
];

/// Folders and files that may change in any version.
const UNLISTED: [&str; 3] = ["src/queue", "keys/names.rs", "queues/alone.rs"];

/// Returns the names of the listings.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    CRATES.iter().map(|(_, name)| *name)
}

/// Writes the listings.
pub(crate) fn write() -> Result {
    for (folder, name) in CRATES {
        let file = file(name);
        fs::write(&file, listing(folder)?).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    Ok(())
}

/// Checks that every listing matches the sources.
pub(crate) fn check() -> Result {
    for (folder, name) in CRATES {
        let kept = fs::read_to_string(file(name)).unwrap_or_default();
        let now = listing(folder)?;
        if kept != now {
            let mut changes = String::new();
            let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
            let (before, after) = (lines(&kept), lines(&now));
            for line in before.iter().filter(|line| !after.contains(line)) {
                let _ = writeln!(changes, "- {line}");
            }
            for line in after.iter().filter(|line| !before.contains(line)) {
                let _ = writeln!(changes, "+ {line}");
            }
            return Err(format!(
                "the public API of {name} has changed:\n{changes}write it with `cargo xtask api`"
            ));
        }
    }
    Ok(())
}

fn file(name: &str) -> PathBuf {
    root().join("docs/api").join(format!("{name}.txt"))
}

fn listing(folder: &str) -> Result<String> {
    let source = root().join(folder).join("src");
    let mut files = Vec::new();
    rust_files(&source, &mut files)?;
    files.sort();
    let mut listing = String::new();
    for path in files {
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let items = items(&text);
        if !items.is_empty() {
            let name = path.strip_prefix(&source).unwrap_or(&path).display();
            let _ = writeln!(listing, "{name}");
            for item in &items {
                let _ = writeln!(listing, "    {item}");
            }
        }
    }
    Ok(listing)
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result {
    let failed = |e| format!("{}: {e}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if UNLISTED.iter().any(|unlisted| path.ends_with(unlisted)) {
            continue;
        }
        if path.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the public items of a file, each on one line. Those of an `impl` or a trait follow its head.
fn items(text: &str) -> Vec<String> {
    let mut items = Vec::new();
    // The head of the current block, until its first public item.
    let mut head = None;
    let mut is_public = false;
    // Methods that `kit::builders!` writes are listed by their names.
    let mut is_built = false;
    let mut lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    while let Some(line) = lines.next() {
        let (indent, code) = (line.len() - line.trim_start().len(), line.trim_start());
        if indent == 0 && !code.is_empty() && !code.starts_with("//") {
            (head, is_public) = (None, false);
        }
        is_built = code.ends_with("builders! {") || is_built && code != "}";
        let opens =
            code.starts_with("impl") || code.starts_with("pub trait ") || code.starts_with("pub enum ");
        let is_item = code.starts_with("pub ")
            || is_public && indent == 4 && is_member(code)
            || is_built && code.ends_with(';');
        let begins = is_item || indent == 0 && opens;
        if !begins {
            continue;
        }
        let mut whole = code.to_owned();
        while code.starts_with("pub use ") && !whole.ends_with(';') {
            let Some(next) = lines.next() else { break };
            let _ = write!(whole, " {}", next.trim());
        }
        while !whole.ends_with(['{', ';', ',', '}']) {
            let Some(next) = lines.next() else { break };
            let _ = write!(whole, " {}", next.trim());
        }
        // An argument list may span several lines.
        while whole.matches('(').count() > whole.matches(')').count() {
            let Some(next) = lines.next() else { break };
            let _ = write!(whole, " {}", next.trim());
        }
        while !whole.ends_with(['{', ';', ',', '}']) {
            let Some(next) = lines.next() else { break };
            let _ = write!(whole, " {}", next.trim());
        }
        let item = whole.trim_end_matches(['{', ';', ',', ' ']).to_owned();
        if indent == 0 && opens {
            // All of a public trait and of a trait's implementation is public.
            is_public = code.starts_with("pub ");
            if is_public {
                items.push(item);
            } else {
                head = Some(item);
            }
        } else {
            items.extend(head.take());
            items.push(if indent == 0 { item } else { format!("    {item}") });
        }
    }
    items
}

/// Returns `true` for a method or type of a trait, or a variant of an enum.
fn is_member(code: &str) -> bool {
    let is_variant = code.starts_with(|c: char| c.is_ascii_uppercase());
    is_variant || ["fn ", "async fn ", "type ", "const "].iter().any(|start| code.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_public_is_listed_in_one_line() {
        let text = "use x;\n\npub struct A {\n    pub a: u8,\n    b: u8,\n}\n\nimpl A {\n    fn c() {}\n\n    pub fn d(\n        &self,\n        x: u8,\n    ) -> u8\n    where\n        u8: Copy,\n    {\n        1\n    }\n}\n\nimpl B {\n    kit::builders! {\n        /// Documented.\n        new;\n        with_b;\n    }\n\n    fn e() {\n        return;\n    }\n}\n\npub trait C {\n    fn f(&self);\n}\n\npub use a::{\n    B, C,\n};\n\npub enum D {\n    /// A variant.\n    E(u8),\n}\n\npub(crate) fn g() {}\n#[cfg(test)]\npub fn h() {}\n";
        let expected = [
            "pub struct A",
            "    pub a: u8",
            "impl A",
            "    pub fn d( &self, x: u8, ) -> u8 where u8: Copy",
            "impl B",
            "    new",
            "    with_b",
            "pub trait C",
            "    fn f(&self)",
            "pub use a::{ B, C, }",
            "pub enum D",
            "    E(u8)",
        ];
        assert_eq!(items(text), expected);
    }
}
