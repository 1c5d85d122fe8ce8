//! Automatic checks of the documentation: links, spelling, the length of sentences, phrases that the house style avoids, figures
//! that are not those of their tables, tests that do not exist, and code and diagrams that do not match their files.

use crate::run::{Result, command, run};
use crate::texts::{markdown, prose_lines, texts};
use crate::tools::Tool;
use crate::{diagrams, figures, links, scenarios, snippets};

/// The maximum number of words in a sentence.
const LONGEST: usize = 40;

/// The folders of the published crates, whose doc comments are checked.
const PUBLISHED: [&str; 9] = [
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

/// Phrases to avoid, and what to write instead. Capitalized phrases apply to the beginning of a sentence.
const BANNED: [(&str, &str); 26] = [
    ("Who ", "name the client, the holder or the waiter"),
    ("Whoever ", "name the client, the holder or the waiter"),
    ("As there.", "say what is the same"),
    ("As there,", "say what is the same"),
    ("Nothing is sent.", "Performs no I/O."),
    ("what became of", "the outcome of"),
    ("what becomes of", "the outcome of"),
    ("what came of", "the result of"),
    ("how it stands", "its state"),
    ("a look at the session", "a snapshot of the session"),
    ("unless set", "Defaults to .."),
    ("unless told", "Defaults to .."),
    ("is told", "is notified, gets, learns"),
    ("are told", "are notified, get, learn"),
    ("was told", "was notified, got, learned"),
    ("believes to ", "believes that it .."),
    ("of which nothing is heard", "that is silent"),
    ("until when", "the instant until which"),
    ("gives back up", "converts into"),
    ("if he ", "a client is no he"),
    ("that he ", "a client is no he"),
    ("no time means", "a zero duration makes"),
    ("he ", "a client is no he"),
    ("to be let go", "to be released"),
    ("curator's recipes", "Curator's locks: zlock has none of the other recipes"),
    ("never gives up", "a client that is refused is closed for good"),
];

const TYPOS: Tool = Tool {
    program: "typos",
    package: "typos-cli",
    version: "1.52.0",
    install: &["--debug", "--config", "profile.dev.debug=false"],
};

/// Checks everything, with `--write` after the code of files is written into the guide's pages.
pub(crate) fn docs(args: &[String]) -> Result {
    match args {
        [] => {}
        [arg] if arg == "--write" => snippets::write()?,
        _ => return Err(format!("cargo xtask docs takes only --write, not {args:?}")),
    }
    check()
}

/// Checks everything.
pub(crate) fn check() -> Result {
    let (markdown, mut found) = (markdown()?, Vec::new());
    links::check(&markdown, &mut found)?;
    figures::check(&mut found)?;
    scenarios::check(&mut found)?;
    for file in &markdown {
        prose(&file.path, prose_lines(&file.text), &mut found);
    }
    for file in texts(".rs")?.iter().filter(|file| is_published(&file.path)) {
        prose(&file.path, doc_lines(&file.text), &mut found);
        links::in_comments(&file.path, doc_lines(&file.text), &mut found);
    }
    report(&found)?;
    diagrams::check()?;
    run(command(&TYPOS.path()?, &["--config", "xtask/typos.toml"]))
}

/// Prints the findings. Returns an error if there are any.
pub(crate) fn report(found: &[String]) -> Result {
    found.iter().for_each(|line| println!("{line}"));
    match found.len() {
        0 => Ok(()),
        n => Err(format!("the documentation has {n} problems")),
    }
}

/// Returns `true` for a source file of a published crate, except tests and the suites.
fn is_published(path: &str) -> bool {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let is_source = first == "src" || rest.starts_with("src/");
    PUBLISHED.contains(&first) && is_source
}

/// Returns the lines of the doc comments in a Rust file outside of code blocks, with their numbers. An empty line separates two comments.
fn doc_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(n, line)| {
        let line = line.trim_start();
        let Some(doc) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            return Some((n + 1, ""));
        };
        let doc = doc.strip_prefix(' ').unwrap_or(doc);
        let fence = doc.trim_start().starts_with("```");
        in_code ^= fence;
        (!in_code && !fence).then_some((n + 1, doc))
    })
}

/// Checks each sentence.
fn prose<'a>(path: &str, lines: impl Iterator<Item = (usize, &'a str)>, found: &mut Vec<String>) {
    for (line, paragraph) in paragraphs(lines) {
        for sentence in sentences(&paragraph) {
            let words =
                sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
            if words > LONGEST {
                found.push(format!("{path}:{line}: {words} words: {}", excerpt(sentence)));
            }
            for (phrase, better) in BANNED {
                if has(sentence, phrase) {
                    found.push(format!(
                        "{path}:{line}: {:?} ({better}): {}",
                        phrase.trim(),
                        excerpt(sentence)
                    ));
                }
            }
        }
    }
}

fn excerpt(sentence: &str) -> String {
    let words: Vec<_> = sentence.split_whitespace().take(12).collect();
    words.join(" ") + " .."
}

fn has(sentence: &str, phrase: &str) -> bool {
    if phrase.starts_with(char::is_uppercase) {
        return sentence.starts_with(phrase);
    }
    let text = sentence.to_lowercase();
    text.match_indices(phrase).any(|(at, _)| !text[..at].ends_with(char::is_alphanumeric))
}

/// Returns paragraphs, list items, headings and table cells, each with its first line. Inline code counts as one word.
fn paragraphs<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, String)> {
    let mut paragraphs: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (n, line) in lines {
        let line = line.trim();
        let begins = ["- ", "* ", "#", "<!--"].iter().any(|mark| line.starts_with(mark)) || is_numbered(line);
        if let Some(row) = line.strip_prefix('|') {
            paragraphs.extend(row.split('|').map(|cell| (n, cell.trim().to_owned())));
            is_open = false;
        } else if line.is_empty() {
            is_open = false;
        } else if is_open && !begins {
            if let Some((_, paragraph)) = paragraphs.last_mut() {
                paragraph.push(' ');
                paragraph.push_str(line);
            }
        } else {
            paragraphs.push((n, line.trim_start_matches(['-', '*', '#', ' ']).to_owned()));
            is_open = !line.starts_with('#');
        }
    }
    for (_, paragraph) in &mut paragraphs {
        *paragraph = paragraph
            .split('`')
            .enumerate()
            .map(|(n, part)| if n % 2 == 0 { part } else { "x" })
            .collect::<String>()
            .replace("**", "");
    }
    paragraphs
}

fn is_numbered(line: &str) -> bool {
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.len() < line.len() && rest.starts_with(". ")
}

/// Splits a paragraph into sentences, at full stops, question marks and exclamation marks.
fn sentences(paragraph: &str) -> impl Iterator<Item = &str> {
    let ends = |(at, _): (usize, &str)| {
        let rest = &paragraph[at + 1..];
        rest.starts_with([' ', ')']).then_some(at + 1)
    };
    let mut cuts: Vec<_> = paragraph
        .match_indices(['.', '?', '!'])
        .filter_map(ends)
        .filter(|at| !paragraph[..*at].ends_with(".."))
        .collect();
    cuts.insert(0, 0);
    cuts.push(paragraph.len());
    let cuts: Vec<_> = cuts.windows(2).map(|cut| (cut[0], cut[1])).collect();
    cuts.into_iter().map(|(from, to)| paragraph[from..to].trim_start_matches([' ', ')']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        prose("a.md", prose_lines(text), &mut found);
        found
    }

    #[test]
    fn long_sentences_are_named() {
        let forty = "word ".repeat(40);
        assert!(found(&format!("{forty}. Next.")).is_empty());
        assert_eq!(found(&format!("One.\n\nAnd {forty}.")).len(), 1);
        // Neither code nor the cells of a table add up, nor do items of a list.
        assert!(found(&format!("```text\n{forty} {forty}\n```")).is_empty());
        assert!(
            found(&format!("| {forty} | {forty} |\n- {forty}\n- {forty}\n1. {forty}\n2. {forty}")).is_empty()
        );
    }

    #[test]
    fn banned_phrases_are_named() {
        assert_eq!(found("Who asks is served. It says who asks.").len(), 1);
        assert_eq!(found("It is 10 s\nunless set.").len(), 1);
        assert!(found("`unless set` is code").is_empty());
    }

    #[test]
    fn doc_comments_are_read() {
        let source = "/// Who asks.\nfn f() {}\n    /// ```\n    /// // Who asks.\n    /// ```\n// Who asks.\n//! Who asks.\n";
        let mut found = Vec::new();
        prose("a.rs", doc_lines(source), &mut found);
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
