//! `cargo xtask planted`: bugs that were made on purpose, each of which the simulation has to find.
//!
//! A patch is applied to a copy of the workspace, so that no feature or flag of the library knows of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Result, cargo, command, root, show};

/// Where the bugs are, from the root of the workspace.
const BUGS: &str = "zlock-proof/planted";

/// In how many seeds each bug has to be found.
const SEEDS: &str = "0..20000";

/// Plants each bug, or those whose names are given, and runs seeds until it is found. Fails if one is not.
pub(crate) fn planted(names: &[String]) -> Result {
    let bugs = bugs()?;
    if let Some(name) = names.iter().find(|name| !bugs.iter().any(|bug| bug.name == **name)) {
        return Err(format!("there is no {BUGS}/{name}.patch"));
    }
    let target = root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let (copy, target) = (target.join("planted/workspace"), target.join("planted/target"));
    let mut missed = Vec::new();
    println!("| planted bug | found by | after seeds |\n|---|---|---|");
    for bug in bugs.iter().filter(|bug| names.is_empty() || names.contains(&bug.name)) {
        copy_folder(&root(), &copy)?;
        bug.apply(&copy, &[])?;
        match found(&copy, &target)? {
            Some((check, seed)) => println!("| {}: {} | {check} | {} |", bug.name, bug.what, seed + 1),
            None => {
                println!("| {}: {} | **nothing** | {SEEDS} |", bug.name, bug.what);
                missed.push(bug.name.as_str());
            }
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("not found: {}", missed.join(", "))) }
}

/// Every patch still applies.
pub(crate) fn check() -> Result {
    bugs()?.iter().try_for_each(|bug| bug.apply(&root(), &["--check"]))
}

struct Bug {
    name: String,
    /// The first line of the patch's file.
    what: String,
    patch: PathBuf,
}

impl Bug {
    fn apply(&self, to: &Path, options: &[&str]) -> Result {
        let mut apply = command("git", &["apply"]);
        // The copy is below a workspace that git would take for its own.
        apply.args(options).arg(&self.patch).current_dir(to);
        apply.env("GIT_CEILING_DIRECTORIES", to.parent().unwrap_or(to));
        match apply.status() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(format!("{BUGS}/{}.patch does not apply any more: make it anew", self.name)),
        }
    }
}

fn bugs() -> Result<Vec<Bug>> {
    let mut bugs = Vec::new();
    for entry in list(&root().join(BUGS))? {
        if entry.extension().is_some_and(|extension| extension == "patch") {
            let text = read(&entry)?;
            let text = String::from_utf8_lossy(&text);
            let what = text.lines().next().unwrap_or_default().to_owned();
            let name = entry.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            bugs.push(Bug { name, what, patch: entry });
        }
    }
    Ok(bugs)
}

/// Which check fails in the copy, and at which seed.
fn found(copy: &Path, target: &Path) -> Result<Option<(String, u64)>> {
    let mut build = cargo(&["build", "--quiet", "-p", "zlock-proof"]);
    // Seeds take longer than the build without it.
    build.current_dir(copy).env("CARGO_TARGET_DIR", target).env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    // A planted bug may leave something unused.
    build.env("RUSTFLAGS", "-Awarnings");
    if !build.status().is_ok_and(|status| status.success()) {
        return Err(format!("failed: {}", show(&build)));
    }
    let mut sim = Command::new(target.join("debug/zlock-proof"));
    sim.args(["sim", "--seeds", SEEDS]);
    let output = sim.output().map_err(|e| format!("{}: {e}", show(&sim)))?;
    let output = String::from_utf8_lossy(&output.stdout);
    let failed = output.lines().find_map(|line| line.strip_prefix("FAILED seed "));
    Ok(failed.and_then(|line| {
        let (seed, rest) = line.split_once(": ")?;
        let (check, _) = rest.split_once(": ")?;
        Some((check.to_owned(), seed.parse().ok()?))
    }))
}

/// Makes `to` like `from`, without what is built and what git knows. Files that are equal stay as they are, so
/// that they are not built again.
fn copy_folder(from: &Path, to: &Path) -> Result {
    fs::create_dir_all(to).map_err(|e| format!("{}: {e}", to.display()))?;
    for path in list(from)? {
        let name = path.file_name().unwrap_or_default();
        let copy = to.join(name);
        if path.is_dir() {
            if name != "target" && name != ".git" {
                copy_folder(&path, &copy)?;
            }
        } else {
            let content = read(&path)?;
            if fs::read(&copy).ok().as_ref() != Some(&content) {
                fs::write(&copy, content).map_err(|e| format!("{}: {e}", copy.display()))?;
            }
        }
    }
    Ok(())
}

/// What is in a folder, in order.
fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |e| format!("{}: {e}", folder.display());
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut paths =
        entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}
