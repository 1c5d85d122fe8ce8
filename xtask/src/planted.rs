//! `cargo xtask planted`: deliberate bugs, each of which the simulation, a run on a real cluster or a test (`tests/`) must find.
//!
//! Each bug is a patch that is applied to a copy of the workspace, so the library needs no feature or flag for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Result, cargo, command, root, show, target};
use crate::setup::set_up;

/// The folder of the bugs, relative to the root of the workspace. Those of a store's backend are in a subfolder.
const BUGS: &str = "zlock-proof/planted";

/// The subfolder of bugs that a test finds, because a run on a cluster hardly ever hits the critical moment.
const TESTS: &str = "tests";

/// The subfolder of bugs of the engine for stores without sessions, which the simulation on its in-memory adapter has to find.
const LEDGER: &str = "ledger";

/// The seeds among which each bug must be found.
const SEEDS: &str = "0..20000";

/// The seeds of the runs on a real cluster, until one of them finds the bug, and the length of each in seconds: ten minutes in
/// all. The seed determines the faults of a run, but not the exact times at which they occur.
const RUNS: std::ops::Range<u64> = 117..127;
const SECONDS: &str = "60";

/// Plants each bug, or those with the given names, and searches for it. Fails if one is not found.
pub(crate) fn planted(args: &[String]) -> Result {
    let (store, names) = match args {
        [option, store, names @ ..] if option == "--store" => (Some(store.as_str()), names),
        names => (None, names),
    };
    let folders = match store {
        None => vec![""],
        Some(LEDGER) => vec![LEDGER],
        Some(store @ ("zk" | "etcd")) => {
            set_up()?;
            if names.is_empty() { vec![store] } else { vec!["", store] }
        }
        Some(store) => return Err(format!("--store {store}: expected ledger, zk or etcd")),
    };
    let bugs = bugs(&folders)?;
    if let Some(name) = names.iter().find(|name| !bugs.iter().any(|bug| bug.name == **name)) {
        return Err(format!("no such file: {BUGS}/{name}.patch"));
    }
    let (copy, target) = (target().join("planted/workspace"), target().join("planted/target"));
    let mut missed = Vec::new();
    let cluster = store.filter(|store| *store != LEDGER);
    let figure = if cluster.is_some() { "violations" } else { "after seeds" };
    println!("| planted bug | found by | {figure} |\n|---|---|---|");
    for bug in bugs.iter().filter(|bug| names.is_empty() || names.contains(&bug.name)) {
        copy_folder(&root(), &copy)?;
        bug.apply(&copy, &[])?;
        let program = build(&copy, &target, cluster)?;
        let found = match cluster {
            None => by_seeds(&program, store.unwrap_or("mem"))?,
            Some(store) => on_a_cluster(&program, store)?,
        };
        match found {
            Some((check, figure)) => println!("| {}: {} | {check} | {figure} |", bug.name, bug.what),
            None => {
                println!("| {}: {} | **nothing** | |", bug.name, bug.what);
                missed.push(bug.name.as_str());
            }
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("not found: {}", missed.join(", "))) }
}

/// Checks that every patch still applies.
pub(crate) fn check() -> Result {
    bugs(&["", "zk", "etcd", LEDGER, TESTS])?.iter().try_for_each(|bug| bug.apply(&root(), &["--check"]))
}

/// Returns the names of the bugs that the simulation has to find, a run on a real cluster, and a test.
pub(crate) fn names() -> Result<[Vec<String>; 3]> {
    let names = |folders: &[&str]| bugs(folders).map(|bugs| bugs.into_iter().map(|bug| bug.name).collect());
    Ok([names(&[""])?, names(&["zk", "etcd"])?, names(&[TESTS])?])
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
        // The copy is inside the workspace, whose repository git would use.
        apply.args(options).arg(&self.patch).current_dir(to);
        apply.env("GIT_CEILING_DIRECTORIES", to.parent().unwrap_or(to));
        match apply.status() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(format!("{} no longer applies: recreate it", self.patch.display())),
        }
    }
}

fn bugs(folders: &[&str]) -> Result<Vec<Bug>> {
    let mut bugs = Vec::new();
    for folder in folders {
        for patch in list(&root().join(BUGS).join(folder))? {
            if patch.extension().is_some_and(|extension| extension == "patch") {
                let text = read(&patch)?;
                let text = String::from_utf8_lossy(&text);
                let what = text.lines().next().unwrap_or_default().to_owned();
                let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                bugs.push(Bug { name, what, patch });
            }
        }
    }
    Ok(bugs)
}

/// Builds `zlock-proof` in the copy.
fn build(copy: &Path, target: &Path, store: Option<&str>) -> Result<PathBuf> {
    let mut build = cargo(&["build", "--quiet", "-p", "zlock-proof"]);
    if store.is_some() {
        build.args(["--features", "chaos"]);
    }
    // Without optimization, the seeds take longer than the build.
    build.current_dir(copy).env("CARGO_TARGET_DIR", target).env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    // A planted bug may leave code unused.
    build.env("RUSTFLAGS", "-Awarnings");
    match build.status() {
        Ok(status) if status.success() => Ok(target.join("debug/zlock-proof")),
        _ => Err(format!("failed: {}", show(&build))),
    }
}

/// Returns the check that fails, and the number of seeds until it does.
fn by_seeds(program: &Path, store: &str) -> Result<Option<(String, String)>> {
    let mut sim = Command::new(program);
    let output = output(sim.args(["sim", "--store", store, "--seeds", SEEDS]))?;
    let failed = output.lines().find_map(|line| line.strip_prefix("FAILED seed "));
    Ok(failed.and_then(|line| {
        let (seed, rest) = line.split_once(": ")?;
        let (check, _) = rest.split_once(": ")?;
        Some((check.to_owned(), (seed.parse::<u64>().ok()? + 1).to_string()))
    }))
}

/// Returns the checks that fail on a real cluster, the number of violations, and the run.
fn on_a_cluster(program: &Path, store: &str) -> Result<Option<(String, String)>> {
    for seed in RUNS {
        if let Some((checks, count)) = in_a_run(program, store, &seed.to_string())? {
            return Ok(Some((checks, format!("{count} (seed {seed})"))));
        }
    }
    Ok(None)
}

fn in_a_run(program: &Path, store: &str, seed: &str) -> Result<Option<(String, String)>> {
    let mut chaos = Command::new(program);
    let output = output(chaos.args(["chaos", "--store", store, "--seconds", SECONDS, "--seed", seed]))?;
    let violations = output.lines().filter_map(|line| line.trim().split_once(": VIOLATION "));
    let mut checks: Vec<_> = violations.map(|(check, _)| check).collect();
    let count = checks.len();
    checks.dedup();
    // If so, the store may have caused the failure instead of the bug.
    let doubt = if output.contains("THE SERVERS DISAGREE") { ", but the servers disagree" } else { "" };
    Ok((count > 0).then(|| (checks.join(", "), format!("{count}{doubt}"))))
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|e| format!("{}: {e}", show(command)))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Makes `to` a copy of `from`, without build output and git's data. Equal files are not touched, so that they are not built
/// again.
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
    // A file that was moved would otherwise be in the copy twice.
    let is_gone = |copy: &&PathBuf| !from.join(copy.file_name().unwrap_or_default()).exists();
    for copy in list(to)?.iter().filter(is_gone) {
        let removed = if copy.is_dir() { fs::remove_dir_all(copy) } else { fs::remove_file(copy) };
        removed.map_err(|e| format!("{}: {e}", copy.display()))?;
    }
    Ok(())
}

/// Returns the contents of a folder, sorted.
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
