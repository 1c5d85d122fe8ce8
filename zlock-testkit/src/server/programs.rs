//! Selects the programs of servers: Debian's, or those in a folder.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use rustix::process::geteuid;

use crate::notice::say;

/// The variable with a folder of servers that are used instead of Debian's: jars in `zookeeper`, programs in
/// `etcd` and in `postgres/bin`.
const FOLDER: &str = "ZLOCK_SERVERS_FOLDER";

/// The beginning of a line about a running server. `cargo xtask test` collects these lines.
const SERVER_MARK: &str = "ZLOCK-SERVER";

/// Debian's ZooKeeper. Its manifest names the other jars, except two for TLS. slf4j-simple is added so that the server logs
/// its errors.
const JARS: [&str; 4] = [
    "/usr/share/java/zookeeper.jar",
    "/usr/share/java/slf4j-simple.jar",
    "/usr/share/java/netty-codec.jar",
    "/usr/share/java/netty-resolver.jar",
];

/// Debian's versions of PostgreSQL, whose programs are not in the `PATH`.
const POSTGRES: &str = "/usr/lib/postgresql";

/// The programs of the servers.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// The folder; `None` selects Debian's servers.
    folder: Option<PathBuf>,
}

impl Programs {
    /// Returns the programs selected by the environment.
    pub(crate) fn selected() -> Self {
        Programs { folder: std::env::var_os(FOLDER).map(PathBuf::from) }
    }

    /// Returns the class path of ZooKeeper.
    pub(crate) fn zookeeper(&self) -> OsString {
        match &self.folder {
            Some(folder) => folder.join("zookeeper/*").into(),
            None => JARS.join(":").into(),
        }
    }

    /// Returns the path of `etcd` or `etcdctl`.
    pub(crate) fn etcd(&self, program: &str) -> PathBuf {
        self.folder.as_ref().map_or_else(|| program.into(), |folder| folder.join("etcd").join(program))
    }

    /// PgBouncer. `/usr/sbin` is not in the users' `PATH`.
    pub(crate) const PGBOUNCER: &str = "/usr/sbin/pgbouncer";

    /// MariaDB's server, and what makes its first data.
    pub(crate) const MARIADBD: &str = "/usr/sbin/mariadbd";
    pub(crate) const MARIADB_INSTALL: &str = "/usr/bin/mariadb-install-db";

    /// Returns the path of PostgreSQL's client, which is always Debian's.
    pub(crate) fn psql() -> PathBuf {
        newest_postgres().unwrap_or_default().join("psql")
    }

    /// Returns the path of a program of PostgreSQL's server. Without a folder, it is of the newest version that Debian has installed.
    pub(crate) fn postgres(&self, program: &str) -> PathBuf {
        let folder = self.folder.as_ref().map(|folder| folder.join("postgres/bin"));
        folder.or_else(newest_postgres).unwrap_or_default().join(program)
    }

    /// Returns the IDs of the user whom PostgreSQL runs as, and of the user's group.
    pub(crate) fn postgres_user() -> Option<(u32, u32)> {
        let users = std::fs::read_to_string("/etc/passwd").ok()?;
        let user = users.lines().find_map(|line| line.strip_prefix("postgres:"))?;
        let mut ids = user.split(':').skip(1);
        Some((ids.next()?.parse().ok()?, ids.next()?.parse().ok()?))
    }

    /// Returns the path of the library that changes the clock of a program.
    pub(crate) fn faketime() -> Option<PathBuf> {
        let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        let files = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
        files.into_iter().find(|file| file.is_file())
    }

    /// Returns which of PostgreSQL's programs is missing, and how to install it.
    pub(crate) fn missing_postgres(&self) -> Option<String> {
        let install = "(apt-get install --no-install-recommends postgresql)";
        if newest_postgres().is_none() {
            return Some(format!("there is no {POSTGRES}/*/bin/postgres {install}"));
        }
        if !self.postgres("postgres").is_file() {
            return Some(format!("{FOLDER}: there is no {}", self.postgres("postgres").display()));
        }
        (geteuid().is_root() && Self::postgres_user().is_none())
            .then(|| format!("there is no user postgres, and PostgreSQL does not run as root {install}"))
    }

    /// Returns that PgBouncer is missing, and how to install it.
    pub(crate) fn missing_pgbouncer(&self) -> Option<String> {
        (!Path::new(Self::PGBOUNCER).is_file())
            .then(|| "there is no pgbouncer (apt-get install --no-install-recommends pgbouncer)".to_owned())
    }

    /// Returns which of ZooKeeper's programs are missing, and how to install them. Debian's programs are no fallback for those
    /// that a folder lacks.
    pub(crate) fn missing_zookeeper(&self) -> Option<String> {
        if let Some(folder) = &self.folder {
            let folder = folder.join("zookeeper");
            if !has_zookeeper(&folder) {
                return Some(format!("{FOLDER}: there is no zookeeper-*.jar in {}", folder.display()));
            }
        } else {
            let jars: Vec<_> = JARS.iter().filter(|jar| !Path::new(jar).is_file()).copied().collect();
            if !jars.is_empty() {
                return Some(format!(
                    "there is no {} (apt-get install --no-install-recommends libzookeeper-java \
                     default-jre-headless)",
                    jars.join(", ")
                ));
            }
        }
        (!runs(Path::new("java"), "-version")).then(|| {
            "there is no java (apt-get install --no-install-recommends default-jre-headless)".to_owned()
        })
    }

    /// Returns which of etcd's programs is missing, and how to install it.
    pub(crate) fn missing_etcd(&self) -> Option<String> {
        let programs = [("etcd", "--version"), ("etcdctl", "version")];
        let (program, _) = programs.into_iter().find(|(program, arg)| !runs(&self.etcd(program), arg))?;
        Some(match self.folder {
            Some(_) => format!("{FOLDER}: {} does not run", self.etcd(program).display()),
            None => format!(
                "there is no {program} (apt-get install --no-install-recommends etcd-server etcd-client)"
            ),
        })
    }
}

/// Returns the folder of the programs of PostgreSQL's newest version.
fn newest_postgres() -> Option<PathBuf> {
    let versions = std::fs::read_dir(POSTGRES).into_iter().flatten().flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let programs = versions.map(|version| version.path()).filter(|path| path.join("bin/postgres").is_file());
    Some(programs.max_by_key(|path| number(path))?.join("bin"))
}

fn has_zookeeper(folder: &Path) -> bool {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.map(|name| name.to_string_lossy().into_owned()).any(|name| {
        name.strip_prefix("zookeeper-").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            && name.ends_with(".jar")
    })
}

fn runs(program: &Path, arg: &str) -> bool {
    let out = Command::new(program).arg(arg).env("ETCDCTL_API", "3").output();
    out.is_ok_and(|out| out.status.success())
}

/// Prints which server runs, once for each version in this process.
pub(super) fn announce(server: &str, version: &str) {
    static ANNOUNCED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let server = format!("{server} {version}");
    let is_new = ANNOUNCED.lock().unwrap_or_else(PoisonError::into_inner).insert(server.clone());
    if is_new {
        say(&format!("{SERVER_MARK} {server}"));
    }
}

/// Returns the version that a server has logged: the text after `mark`, up to the next character that no version contains.
///
/// # Panics
/// Panics if there is none.
pub(super) fn version(log: &str, mark: &str) -> String {
    let (_, rest) = log.split_once(mark).unwrap_or_else(|| panic!("no {mark:?} in the server's log:\n{log}"));
    rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_used_in_place_of_debians_servers() {
        let debian = Programs { folder: None };
        assert!(debian.zookeeper().to_string_lossy().starts_with("/usr/share/java/zookeeper.jar:"));
        assert_eq!(debian.etcd("etcdctl"), Path::new("etcdctl"));
        let newest = Programs { folder: Some("/servers".into()) };
        assert_eq!(newest.zookeeper(), "/servers/zookeeper/*");
        assert_eq!(newest.etcd("etcdctl"), Path::new("/servers/etcd/etcdctl"));
    }

    #[test]
    fn a_folder_without_servers_is_not_made_up_for_by_debians() {
        let folder = tempfile::tempdir().unwrap();
        let programs = Programs { folder: Some(folder.path().to_owned()) };
        let missing = programs.missing_zookeeper().unwrap();
        assert!(missing.contains(FOLDER) && missing.contains("no zookeeper-*.jar in"), "{missing}");
        let missing = programs.missing_etcd().unwrap();
        assert!(missing.contains("etcd/etcd does not run"), "{missing}");
        let missing = programs.missing_postgres().unwrap();
        assert!(missing.contains("postgres/bin/postgres"), "{missing}");
        // The jar of the protocol is not a server.
        std::fs::create_dir(folder.path().join("zookeeper")).unwrap();
        std::fs::write(folder.path().join("zookeeper/zookeeper-jute-3.9.5.jar"), "").unwrap();
        assert!(!has_zookeeper(&folder.path().join("zookeeper")));
        std::fs::write(folder.path().join("zookeeper/zookeeper-3.9.5.jar"), "").unwrap();
        assert!(has_zookeeper(&folder.path().join("zookeeper")));
    }

    #[test]
    fn versions_are_read_from_logs() {
        let log = "INFO Server environment:zookeeper.version=3.9.5-293c895a, built on 2026-02-11\n";
        assert_eq!(version(log, "zookeeper.version="), "3.9.5");
        assert_eq!(version(r#"{"etcd-version":"3.4.23","git-sha":"x"}"#, r#""etcd-version":""#), "3.4.23");
    }
}
