//! Checks that each bullet of the contracts is a case.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Returns the source of a contract, wherever in `zlock-core` it is.
fn contract(name: &str) -> String {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../zlock-core/src");
    let texts = files(&core).into_iter().map(|path| fs::read_to_string(path).unwrap());
    let contract = texts.into_iter().find_map(|text| {
        let (_, contract) = text.split_once(&format!("pub trait {name}:"))?;
        Some(contract.split_once("\n}\n")?.0.to_owned())
    });
    contract.unwrap()
}

/// Returns the text of a doc line. `None` for other lines.
fn doc(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("///").map(str::trim)
}

fn function(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("fn ")?;
    Some(&rest[..rest.find('(')?])
}

/// Returns each method of a contract with its bullets, without those that only return another contract.
fn bullets(name: &str) -> Vec<(String, Vec<String>)> {
    let (mut methods, mut bullets) = (Vec::new(), Vec::<String>::new());
    for line in contract(name).lines() {
        if line.contains("-> Option<&dyn ") {
            bullets.clear();
        } else if let Some(method) = function(line) {
            methods.push((method.to_owned(), std::mem::take(&mut bullets)));
        } else if let Some(text) = doc(line) {
            match (text.strip_prefix("- "), bullets.last_mut()) {
                (Some(bullet), _) => bullets.push(bullet.into()),
                (None, Some(bullet)) => *bullet = format!("{bullet} {text}"),
                (None, None) => {}
            }
        }
    }
    methods
}

/// Returns the docs of the cases of a method, which are in the files whose names begin with it.
fn documented(folder: &str, method: &str) -> Vec<String> {
    let method = method.strip_suffix("_ephemeral_sequential").unwrap_or(method);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder);
    let is_about = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(method);
    let (mut cases, mut text) = (Vec::new(), Vec::new());
    for path in files(&folder).into_iter().filter(is_about) {
        for line in fs::read_to_string(path).unwrap().lines() {
            if let Some(line) = doc(line) {
                text.push(line.to_owned());
            } else {
                if line.trim_start().starts_with("pub async fn") {
                    cases.push(text.join(" "));
                }
                text.clear();
            }
        }
    }
    cases
}

fn check(contract: &str, folder: &str, at_least: usize) {
    let methods = bullets(contract);
    assert!(methods.len() >= at_least, "{methods:?}");
    for (method, bullets) in methods {
        assert!(!bullets.is_empty(), "{method} has no `# Behavior`");
        let cases = documented(folder, &method);
        for bullet in bullets {
            assert!(cases.contains(&bullet), "{method}: no case for {bullet:?}");
        }
    }
}

#[test]
fn every_bullet_is_a_case() {
    check("CoordinationBackend", "conformance", 11);
}

#[test]
fn every_bullet_about_values_is_a_case() {
    check("Values", "values", 3);
}

#[test]
fn every_bullet_about_groups_is_a_case() {
    check("Groups", "groups", 4);
}
