//! The texts of the workspace.

use std::fs;

use crate::run::{Result, command, output, root};

/// A file, by its path in the workspace.
pub(crate) struct Text {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The Markdown files of the workspace.
pub(crate) fn markdown() -> Result<Vec<Text>> {
    texts(".md")
}

/// Returns the files that git tracks or would add.
pub(crate) fn texts(suffix: &str) -> Result<Vec<Text>> {
    let list =
        output(command("git", &["ls-files", "--deduplicate", "--cached", "--others", "--exclude-standard"]))?;
    let paths = list.lines().filter(|path| path.ends_with(suffix) && root().join(path).exists());
    paths
        .map(|path| {
            let text = fs::read_to_string(root().join(path)).map_err(|e| format!("{path}: {e}"))?;
            Ok(Text { path: path.to_owned(), text })
        })
        .collect()
}

/// Returns the lines outside of code blocks, with their numbers.
pub(crate) fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(n, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        (!in_code && !fence).then_some((n + 1, line))
    })
}
