//! Checks that the contract, the cases and the list of tests match.

const CONTRACT: &str = include_str!("../contract/backend.rs");
const LIST: &str = include_str!("macros.rs");

fn cases(method: &str) -> &'static str {
    match method {
        "create_ephemeral_sequential" => include_str!("cases/create.rs"),
        "create_unlisted" => include_str!("cases/create_unlisted.rs"),
        "children" => include_str!("cases/children.rs"),
        "children_up_to" => include_str!("cases/children_up_to.rs"),
        "children_with_watch" => include_str!("cases/children_with_watch.rs"),
        "exists_with_watch" => include_str!("cases/exists_with_watch.rs"),
        "relabel" => include_str!("cases/relabel.rs"),
        "delete" => include_str!("cases/delete.rs"),
        "hand_over" => include_str!("cases/hand_over.rs"),
        "data" => include_str!("cases/data.rs"),
        "data_with_watch" => include_str!("cases/data_with_watch.rs"),
        "set_data" => include_str!("cases/set_data.rs"),
        "session_events" => include_str!("cases/session_events.rs"),
        "background" => include_str!("cases/background.rs"),
        "close" => include_str!("cases/close.rs"),
        other => panic!("no cases for the method {other}"),
    }
}

/// Returns the text of a doc line. `None` for other lines.
fn doc(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("///").map(str::trim)
}

fn function(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("fn ")?;
    Some(&rest[..rest.find('(')?])
}

/// Returns each method of the contract with its bullets.
fn bullets() -> Vec<(&'static str, Vec<String>)> {
    let (_, contract) = CONTRACT.split_once("pub trait CoordinationBackend").unwrap();
    let (contract, _) = contract.split_once("\n}\n").unwrap();
    let (mut methods, mut bullets) = (Vec::new(), Vec::<String>::new());
    for line in contract.lines() {
        if let Some(method) = function(line) {
            methods.push((method, std::mem::take(&mut bullets)));
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

/// Returns each case of a file with its doc.
fn documented(file: &'static str) -> Vec<(&'static str, String)> {
    let (mut cases, mut text) = (Vec::new(), Vec::new());
    for line in file.lines() {
        if let Some(line) = doc(line) {
            text.push(line);
        } else {
            if line.starts_with("pub async fn")
                && let Some(name) = function(line)
            {
                cases.push((name, text.join(" ")));
            }
            text.clear();
        }
    }
    cases
}

#[test]
fn every_bullet_is_a_case() {
    for (method, bullets) in bullets() {
        assert!(!bullets.is_empty(), "{method} has no `# Behavior`");
        let cases = documented(cases(method));
        for bullet in bullets {
            assert!(cases.iter().any(|(_, doc)| *doc == bullet), "{method}: no case for {bullet:?}");
        }
    }
}

#[test]
fn every_case_is_in_the_list() {
    for (method, _) in bullets() {
        for (case, _) in documented(cases(method)) {
            let listed = LIST.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == case);
            assert!(listed, "{method}::{case} is in no group");
        }
    }
}
