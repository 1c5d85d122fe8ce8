//! The code in the guide: all of it is tested, and what comes from a file is equal to it.
//!
//! A block in a page is the code of a file, or of a part between `// ANCHOR: part` and `// ANCHOR_END: part`, if it follows a line
//! such as `<!-- from ../code/service.rs:part -->`. GitHub and mdBook do not show that line.

use std::fs;

use crate::run::{Result, root};
use crate::texts::{Text, markdown};

const GUIDE: &str = "docs/guide/src/";
const FROM: &str = "<!-- from ";

/// Writes the code of files into the pages.
pub(crate) fn write() -> Result {
    for page in markdown()?.iter().filter(|file| file.path.starts_with(GUIDE)) {
        let filled = filled(&page.text).map_err(|why| format!("{}: {why}", page.path))?;
        if filled != page.text {
            fs::write(root().join(&page.path), filled).map_err(|e| format!("{}: {e}", page.path))?;
            println!("{}", page.path);
        }
    }
    Ok(())
}

/// Checks that all Rust code of the guide is compiled and run: in a doc test, or in the file that it is from.
pub(crate) fn check(files: &[Text], found: &mut Vec<String>) -> Result {
    let tested = fs::read_to_string(root().join("docs/guide/code/lib.rs")).map_err(|e| e.to_string())?;
    for Text { path, text } in files {
        let Some(name) = path.strip_prefix(GUIDE) else { continue };
        let is_tested = tested.contains(&format!("\"{name}\""));
        let mut before = "";
        for (n, line) in text.lines().enumerate() {
            let why = match line {
                "```rust" if !is_tested => "code in a page that docs/guide/code/lib.rs does not include",
                // Blocks marked "rust" are doc tests.
                "```rs" if !before.starts_with(FROM) => "code that is neither run nor from a file",
                _ if line.starts_with("```rust,") => "code that is not run",
                _ if line.starts_with("{{#") => "GitHub does not include files: name the file in a comment",
                _ => "",
            };
            if !why.is_empty() {
                found.push(format!("{path}:{}: {why}", n + 1));
            }
            before = line;
        }
        match filled(text) {
            Ok(filled) if filled == *text => {}
            Ok(_) => found.push(format!("{path}: not the code of its files: run cargo xtask docs --write")),
            Err(why) => found.push(format!("{path}: {why}")),
        }
    }
    Ok(())
}

/// Returns the page with the present code of its files.
fn filled(page: &str) -> Result<String> {
    let (mut filled, mut rest) = (String::new(), page);
    while let Some((before, after)) = rest.split_once(FROM) {
        let block = || {
            let (source, block) = after.split_once(" -->\n```")?;
            let (language, block) = block.split_at(block.find('\n')?);
            let (_old, rest) = block.split_once("\n```\n")?;
            Some((source, language, rest))
        };
        let Some((source, language, next)) = block() else {
            return Err("a comment that begins with \"from\" is not directly above a block".into());
        };
        filled += &format!("{before}{FROM}{source} -->\n```{language}\n{}```\n", code(source)?);
        rest = next;
    }
    Ok(filled + rest)
}

/// Returns the code of a file, or of a part of it.
fn code(source: &str) -> Result<String> {
    let (path, part) = source.split_once(':').unwrap_or((source, ""));
    let text = fs::read_to_string(root().join(GUIDE).join(path)).map_err(|e| format!("{path}: {e}"))?;
    if part.is_empty() {
        return Ok(text);
    }
    let begin = text.split_once(&format!("// ANCHOR: {part}\n"));
    let code = begin.and_then(|(_, rest)| rest.split_once(&format!("// ANCHOR_END: {part}\n")));
    code.map(|(code, _)| code.to_owned()).ok_or(format!("{path} has no part {part:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<String> {
        let mut found = Vec::new();
        check(&[Text { path: "docs/guide/src/a.md".into(), text: page.into() }], &mut found).unwrap();
        found
    }

    #[test]
    fn code_that_is_not_run_is_named() {
        let page = "```rs\nfn f() {}\n```\n```rust,no_run\n```\n```rust\n```\n{{#include a.rs}}\n";
        assert_eq!(found(page).len(), 4, "{:?}", found(page));
    }

    #[test]
    fn code_that_differs_from_its_file_is_named_and_replaced() {
        for old in ["", "old\n"] {
            let page = format!("Text.\n<!-- from ../code/service.rs:service -->\n```rs\n{old}```\nText.\n");
            let stale = "docs/guide/src/a.md: not the code of its files: run cargo xtask docs --write";
            assert_eq!(found(&page), [stale]);
            let new = filled(&page).unwrap();
            assert!(new.contains("\nstruct Invoices {\n") && new.ends_with("}\n```\nText.\n"), "{new}");
            assert_eq!(filled(&new), Ok(new));
        }
    }

    #[test]
    fn a_comment_without_a_file_or_a_block_is_named() {
        for (page, why) in [
            (
                "<!-- from ../code/service.rs:other -->\n```rs\n```\n",
                "../code/service.rs has no part \"other\"",
            ),
            ("<!-- from ../code/none.rs -->\n```rs\n```\n", "../code/none.rs: "),
            ("<!-- from ../code/service.rs -->\n\n```rust\n```\n", "a comment that begins with \"from\""),
        ] {
            assert!(filled(page).is_err_and(|e| e.starts_with(why)), "{page}");
        }
    }
}
