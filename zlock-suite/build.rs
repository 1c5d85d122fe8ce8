//! Collects the cases: every `pub async fn` below `src/conformance`, `src/values`, `src/groups` and `src/recipes`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::{env, fs, io};

/// The cases of one group in one file.
type Group = (String, String);
type Groups = BTreeMap<Group, Vec<String>>;

fn main() -> io::Result<()> {
    let contracts = [
        ("conformance_cases", "conformance", of_a_contract("conformance")?),
        ("values_conformance_cases", "values", of_a_contract("values")?),
        ("groups_conformance_cases", "groups", of_a_contract("groups")?),
    ];
    let mut recipes = Groups::new();
    for (file, text) in files("src/recipes")? {
        for case in cases(&text)? {
            // What a case is generic over says what it runs on.
            let lists: &[&str] = match case.bound {
                None => &["recipe"],
                Some("M: Tasks") => &["mutual"],
                Some("M: Mutual") => &["mutual", "thread"],
                Some(bound) => return Err(unknown(&format!("{} is generic over {bound}", case.name))),
            };
            for list in lists {
                recipes.entry(((*list).to_owned(), file.clone())).or_default().push(case.name.to_owned());
            }
        }
    }
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    let text = macros(&contracts, &recipes).map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("cases.rs"), text)
}

/// Returns the cases of a contract, which has a file for each method.
fn of_a_contract(folder: &str) -> io::Result<Groups> {
    let mut groups = Groups::new();
    for (file, text) in files(&format!("src/{folder}"))? {
        for case in cases(&text)? {
            let group = case.module.unwrap_or("contract").to_owned();
            groups.entry((group, file.clone())).or_default().push(case.name.to_owned());
        }
    }
    Ok(groups)
}

/// Returns the name and the text of each file with cases.
fn files(folder: &str) -> io::Result<Vec<(String, String)>> {
    println!("cargo::rerun-if-changed={folder}");
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if name != "mod" {
            files.push((name, fs::read_to_string(path)?));
        }
    }
    files.sort();
    Ok(files)
}

struct Case<'a> {
    /// The module inside the file, if it is in one.
    module: Option<&'a str>,
    name: &'a str,
    /// The bound of its type parameter, if it has one.
    bound: Option<&'a str>,
}

fn cases(text: &str) -> io::Result<Vec<Case<'_>>> {
    let (mut cases, mut module) = (Vec::new(), None);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("pub mod ") {
            module = name.strip_suffix(" {");
        } else if line == "}" {
            module = None;
        } else if let Some(signature) = line.trim_start().strip_prefix("pub async fn ") {
            let (head, _) = signature.split_once('(').ok_or_else(|| unknown(signature))?;
            let (name, bound) = match head.split_once('<') {
                Some((name, bound)) => (name, bound.strip_suffix('>')),
                None => (head, None),
            };
            cases.push(Case { module, name, bound });
        }
    }
    Ok(cases)
}

/// A case that would silently not be run.
fn unknown(what: &str) -> io::Error {
    io::Error::other(format!("a case that this script does not understand: {what}"))
}

/// Returns the macros that make a module of tests of each group.
fn macros(contracts: &[(&str, &str, Groups)], recipes: &Groups) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for (name, folder, groups) in contracts {
        let names: BTreeSet<_> = groups.keys().map(|(group, _)| group.as_str()).collect();
        begin(&mut text, name, &names, "")?;
        for group in names {
            writeln!(text, "({group}, $time:ident, $store:expr) => {{ mod {group} {{ use super::*;")?;
            for ((_, file), cases) in groups.iter().filter(|((of, _), _)| of == group) {
                let path = if group == "contract" { file.clone() } else { format!("{file}::{group}") };
                module(&mut text, file, &format!("{folder}::{path}"), "[]", cases)?;
            }
            text += "} };\n";
        }
        text += "}\n";
    }
    for (list, lock) in [("mutual", ", $lock"), ("thread", ", $lock"), ("recipe", "")] {
        let groups: Vec<_> = recipes.iter().filter(|((of, _), _)| of == list).collect();
        let names = groups.iter().map(|((_, file), _)| file.as_str()).collect();
        begin(&mut text, &format!("{list}_cases"), &names, lock)?;
        for ((_, file), cases) in groups {
            let (parameter, lock) = if lock.is_empty() { ("", "[]") } else { (", $lock:ty", "[$lock]") };
            writeln!(text, "({file}, $time:ident, $store:expr{parameter}) => {{")?;
            module(&mut text, file, &format!("recipes::{file}"), lock, cases)?;
            text += "};\n";
        }
        text += "}\n";
    }
    Ok(text)
}

/// Begins a macro that has an arm for each group, with the arms for all groups but some.
fn begin(text: &mut String, name: &str, groups: &BTreeSet<&str>, lock: &str) -> std::fmt::Result {
    writeln!(text, "/// The cases of each group.\n#[doc(hidden)]\n#[macro_export]\nmacro_rules! {name} {{")?;
    let parameter = if lock.is_empty() { "" } else { ", $lock:ty" };
    writeln!(text, "(except [$($except:ident),*], $time:ident, $store:expr{parameter}) => {{")?;
    writeln!(text, "$($crate::{name}!(known $except);)*")?;
    for group in groups {
        writeln!(text, "$crate::{name}!({group} unless [$($except)*], $time, $store{lock});")?;
    }
    text.push_str("};\n");
    for group in groups {
        writeln!(text, "(known {group}) => {{}};")?;
        writeln!(text, "({group} unless [{group} $($rest:ident)*], $($of:tt)*) => {{}};")?;
    }
    writeln!(text, "($group:ident unless [$other:ident $($rest:ident)*], $($of:tt)*) => {{")?;
    writeln!(text, "$crate::{name}!($group unless [$($rest)*], $($of)*);")?;
    writeln!(text, "}};\n($group:ident unless [], $($of:tt)*) => {{ $crate::{name}!($group, $($of)*); }};")
}

fn module(text: &mut String, name: &str, path: &str, lock: &str, cases: &[String]) -> std::fmt::Result {
    writeln!(
        text,
        "mod {name} {{ use super::*; use $crate::{path} as cases; $crate::tests!($time, $store, {lock}, [{}]); }}",
        cases.join(", ")
    )
}
