//! MariaDB servers.

use std::ffi::OsString;
use std::io::Read;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use rustix::process::geteuid;
use tempfile::TempDir;
use zlock_suite::proxy::Port;

use super::daemon::{Daemon, Kind, Look, POLL, retry_taken_ports};
use super::programs::Programs;
use super::room::roomy_folder;
use crate::process::Process;

const KIND: Kind = Kind {
    name: "MariaDB",
    version: "Starting MariaDB ",
    port_taken: "Address already in use",
    is_parent: false,
};

/// One statement a line. The user and the database of tests: the user may do everything in the database, and nothing else. The operator is `root`.
/// Each server makes its own ones, which are not replicated.
const USERS: &str = "SET sql_log_bin = 0;
CREATE DATABASE IF NOT EXISTS zlock;
CREATE USER IF NOT EXISTS zlock@'%';
GRANT ALL ON zlock.* TO zlock@'%';
CREATE USER IF NOT EXISTS root@'127.0.0.1';
GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;
";

/// Small, because a test program may have several servers. Durability is the default: a flush costs nothing in memory.
const OPTIONS: [&str; 9] = [
    "--bind-address=127.0.0.1",
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=16M",
    "--performance-schema=OFF",
    "--max-connections=500",
    "--skip-name-resolve",
    "--skip-log-error",
    "--innodb-undo-log-truncate=ON",
    "--lower-case-table-names=0",
];

/// A real MariaDB server on a free loopback port, with its own folder, which is in memory if there is room.
///
/// The server has a database `zlock` and a user of this name. The server is killed when the last handle is dropped, and when the test
/// process ends in any way.
#[derive(Clone, Debug)]
pub struct MariaDb(Arc<Server>);

#[derive(Debug)]
struct Server {
    daemon: Daemon,
    port: Port,
}

impl Deref for MariaDb {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.0.daemon
    }
}

impl MariaDb {
    /// Starts a server with these options in addition to those of all tests.
    ///
    /// # Panics
    /// If it does not start: with its log.
    pub async fn start(options: &[&str]) -> Self {
        Self::start_in(roomy_folder, options).await
    }

    /// Like [`start`](Self::start), with a folder on the disk. In `/dev/shm`, the server maps its log into memory: it flushes nothing, and
    /// loses nothing when it is killed, whatever the options say.
    ///
    /// # Panics
    /// If it does not start: with its log.
    pub async fn start_on_disk(options: &[&str]) -> Self {
        Self::start_in(Daemon::make_folder, options).await
    }

    async fn start_in(folder: fn(&Kind) -> TempDir, options: &[&str]) -> Self {
        let options: Vec<_> = options.iter().map(OsString::from).collect();
        tokio::task::spawn_blocking(move || Self::start_blocking(folder, &options)).await.expect("a start")
    }

    /// Returns the server that all tests of this process share. Use unique paths, and never stop it.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceLock<MariaDb> = OnceLock::new();
        // Outside the runtime, which belongs to one test, while the server belongs to all.
        let start = || SHARED.get_or_init(|| Self::start_blocking(roomy_folder, &[]));
        tokio::task::spawn_blocking(start).await.expect("the shared server")
    }

    fn start_blocking(folder: fn(&Kind) -> TempDir, options: &[OsString]) -> Self {
        retry_taken_ports(|| {
            let folder = folder(&KIND);
            copy_template(&data(folder.path()));
            std::fs::write(folder.path().join("users.sql"), USERS).expect("the server's users");
            let (port, socket) = (Port::reserve(), folder.path().join("s"));
            let daemon = Daemon::new(&KIND, folder, move || look(&socket));
            let server = MariaDb(Arc::new(Server { daemon, port }));
            server.launch(|| server.command(options));
            server.wait_until_ready()?;
            Ok(server)
        })
    }

    /// Returns the address for clients.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.0.port.addr()
    }

    /// Returns the URL of the database for its user.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mysql://zlock@{}/zlock", self.addr())
    }

    fn command(&self, options: &[OsString]) -> Vec<OsString> {
        let folder = self.folder();
        let with = |name: &str, path: PathBuf| {
            let mut option = OsString::from(name);
            option.push(path);
            option
        };
        let mut command: Vec<OsString> = vec![Programs::MARIADBD.into(), "--no-defaults".into()];
        command.extend(OPTIONS.map(Into::into));
        command.push(with("--datadir=", data(folder)));
        command.push(with("--socket=", folder.join("s")));
        command.push(with("--pid-file=", folder.join("pid")));
        command.push(with("--init-file=", folder.join("users.sql")));
        command.push(format!("--port={}", self.addr().port()).into());
        if geteuid().is_root() {
            command.push("--user=root".into());
        }
        command.extend_from_slice(options);
        command
    }
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// Waits for the greeting on the server's own socket. Another server cannot be mistaken for it.
fn look(socket: &Path) -> Look {
    let greets = || {
        let mut stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(POLL)).ok()?;
        stream.read_exact(&mut [0; 5]).ok()
    };
    if greets().is_some() { Look::Ready } else { Look::NotYet }
}

/// Copies the data of a new server, which is made once for all servers of a test program.
fn copy_template(data: &Path) {
    // The process keeps the folder until this one ends.
    static TEMPLATE: OnceLock<(TempDir, Process)> = OnceLock::new();
    let (template, _) = TEMPLATE.get_or_init(|| {
        let folder = roomy_folder(&KIND);
        let keeper = Process::spawn_guarded(
            &["sleep", "infinity"].map(Into::into),
            &[],
            Some(folder.path()),
            None,
            false,
        );
        let mut install = Command::new(Programs::MARIADB_INSTALL);
        install.args([
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--innodb-log-file-size=16M",
        ]);
        install.arg(format!("--datadir={}", self::data(folder.path()).display()));
        if geteuid().is_root() {
            install.arg("--user=root");
        }
        run(&mut install);
        (folder, keeper)
    });
    run(Command::new("cp").args(["-a", "-T"]).arg(self::data(template.path())).arg(data));
}

fn run(command: &mut Command) {
    let out = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [out.stdout, out.stderr].concat();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&text));
}

/// Returns what is missing to run MariaDB, and how to install it.
pub(crate) fn missing() -> Option<String> {
    let programs = [Programs::MARIADBD, Programs::MARIADB_INSTALL];
    let missing = programs.into_iter().find(|program| !Path::new(program).is_file())?;
    Some(format!("there is no {missing} (apt-get install --no-install-recommends mariadb-server)"))
}
