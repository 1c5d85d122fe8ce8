//! Checks that each test that `docs/scenarios.md` names exists.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::run::{Result, root};

const PAGE: &str = "docs/scenarios.md";

/// The folder of the cases that run on each store.
const SUITE: &str = "zlock-suite/src/recipes";

/// What the last column calls a folder.
const PLACES: [(&str, &str); 2] = [("suite", SUITE), ("mem", "zlock-tests/tests")];

/// Checks each row of the page's tables.
pub(crate) fn check(found: &mut Vec<String>) -> Result {
    let page = fs::read_to_string(root().join(PAGE)).map_err(|e| format!("{PAGE}: {e}"))?;
    let mut functions = BTreeMap::new();
    for (number, line) in page.lines().enumerate() {
        for (name, places) in tests(line) {
            let mut exists = false;
            for place in &places {
                exists |= functions_of(place, &mut functions)?.iter().any(|function| is(function, &name));
            }
            if !exists {
                found.push(format!("{PAGE}:{}: {name}: no such test in {}", number + 1, places.join(", ")));
            }
        }
    }
    Ok(())
}

/// Returns the tests that a row names, and the files or folders in which to look for them: those that the row names, else the
/// suite.
fn tests(row: &str) -> Vec<(String, Vec<String>)> {
    let cells: Vec<_> = row.split('|').map(str::trim).collect();
    let [_, _, tests, rest @ ..] = cells.as_slice() else { return Vec::new() };
    let place = rest.first().copied().unwrap_or_default();
    let mut places: Vec<_> = code(tests).chain(code(place)).filter(|code| is_file(code)).collect();
    places.extend(PLACES.iter().filter(|(name, _)| *name == place).map(|(_, folder)| *folder));
    // A row of the table of the rules.
    if place.is_empty() {
        places.push(SUITE);
    }
    let places: Vec<_> = places.into_iter().map(str::to_owned).collect();
    code(tests).filter(|code| is_name(code)).map(|name| (name.to_owned(), places.clone())).collect()
}

/// Returns the inline code of a cell.
fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn is_file(code: &str) -> bool {
    code.contains('/') || code.starts_with("zlock-")
}

/// Returns `true` for a path of lower-case words that is not the name of a type or a method.
fn is_name(code: &str) -> bool {
    code.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c))
}

/// Returns `true` if a function, with the modules that its file's path and the file show, is called so.
fn is(function: &[String], name: &str) -> bool {
    let words: Vec<_> = name.split("::").collect();
    let Some(((last, modules), (function, path))) = words.split_last().zip(function.split_last()) else {
        return false;
    };
    last == function && modules.iter().all(|module| path.iter().any(|word| word == module))
}

type Functions = Vec<Vec<String>>;

/// Returns the functions in a file or below a folder.
fn functions_of<'a>(place: &str, known: &'a mut BTreeMap<String, Functions>) -> Result<&'a Functions> {
    if !known.contains_key(place) {
        let mut files = Vec::new();
        rust_files(&root().join(place), &mut files)?;
        let mut functions = Vec::new();
        for file in files {
            let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            functions.extend(functions_in(&file, &text));
        }
        known.insert(place.to_owned(), functions);
    }
    known.get(place).ok_or_else(|| place.to_owned())
}

/// Returns the files at a path, which is a file or a folder. None if it does not exist.
fn rust_files(path: &Path, files: &mut Vec<PathBuf>) -> Result {
    if path.extension().is_some_and(|extension| extension == "rs") && path.is_file() {
        files.push(path.to_owned());
    } else if path.is_dir() {
        for entry in fs::read_dir(path).map_err(|e| format!("{}: {e}", path.display()))? {
            rust_files(&entry.map_err(|e| e.to_string())?.path(), files)?;
        }
    }
    Ok(())
}

/// Returns the words of the file's path and of the modules in it, followed by the name, for each function that is a test or a
/// case.
fn functions_in(file: &Path, text: &str) -> Functions {
    let path = file.with_extension("");
    let mut words: Vec<_> = path.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let outside = words.len();
    let (mut functions, mut is_test) = (Vec::new(), false);
    for line in text.lines() {
        let code = line.trim_start();
        if let Some(module) = line.strip_prefix("mod ").or_else(|| line.strip_prefix("pub mod ")) {
            words.truncate(outside);
            words.extend(module.strip_suffix(" {").map(str::to_owned));
        }
        if line == "}" {
            words.truncate(outside);
        }
        if code.starts_with("#[test]") || code.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((_, rest)) = code.split_once("fn ")
            && (is_test || code.starts_with("pub async fn "))
        {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            functions.push(words.iter().cloned().chain([name.to_owned()]).collect());
            is_test = false;
        }
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_row() {
        let names = |row: &str| -> Vec<String> {
            tests(row).into_iter().map(|(name, places)| format!("{name} in {}", places.join("+"))).collect()
        };
        assert_eq!(
            names("| A-1 | `one::a_b`, `c_d` (see `makeIt`) | suite |"),
            [format!("one::a_b in {SUITE}"), format!("c_d in {SUITE}")]
        );
        assert_eq!(names("| | `a_b` | `zlock-x/tests/y.rs` |"), ["a_b in zlock-x/tests/y.rs"]);
        assert_eq!(
            names("| rule | `one::a_b`; and `c_d` in `tests/y.rs` |"),
            [format!("one::a_b in tests/y.rs+{SUITE}"), format!("c_d in tests/y.rs+{SUITE}")]
        );
        assert_eq!(names("|---|---|---|"), [""; 0]);
    }

    #[test]
    fn tests_and_cases_are_found() {
        let text = "fn helper_one() {}\n\n#[tokio::test(flavor = \"x\")]\nasync fn test_one() {\n}\n\nmod inner {\n    #[test]\n    fn test_two() {}\n}\n\npub async fn case_one<M: Mutual>(case: &Case<'_>) {}\n";
        let found = functions_in(Path::new("tests/file.rs"), text);
        for (name, exists) in [
            ("test_one", true),
            ("file::test_one", true),
            ("inner::test_two", true),
            ("file::case_one", true),
            ("inner::case_one", false),
            ("helper_one", false),
            ("other::test_one", false),
        ] {
            assert_eq!(found.iter().any(|function| is(function, name)), exists, "{name}");
        }
    }
}
