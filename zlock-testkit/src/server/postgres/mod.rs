//! PostgreSQL servers.

mod bouncer;
mod builder;
mod replica;
mod template;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

pub use self::bouncer::PgBouncer;
pub use self::builder::PostgresBuilder;
use super::daemon::{Daemon, Kind, Look};
use super::programs::Programs;
use crate::port::Port;

const KIND: Kind = Kind {
    name: "PostgreSQL",
    version: "starting PostgreSQL ",
    port_taken: "Address already in use",
    is_parent: true,
};

/// The user and the database of tests. The user owns the database and has no other privilege.
const USER: &str = "zlock";

/// The operator, and the database that no test uses.
const OPERATOR: &str = "postgres";

/// Files in the folder of the data, so that replicas have them too.
const CERTIFICATE: &str = "server.crt";
const KEY: &str = "server.key";
const CLIENT_CERTIFICATE: &str = "client.crt";
const CLIENT_KEY: &str = "client.key";

/// Returns what is missing to run PostgreSQL, and how to install it.
pub(crate) fn missing() -> Option<String> {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    MISSING.get_or_init(|| Programs::selected().missing_postgres()).clone()
}

/// Returns what is missing to run PgBouncer, and how to install it.
pub(crate) fn missing_bouncer() -> Option<String> {
    missing().or_else(|| Programs::selected().missing_pgbouncer())
}

/// A real PostgreSQL server on a free loopback port, with its own folder, which is in memory if there is room.
///
/// The server has a database `zlock`, which a user `zlock` owns, and an operator `postgres` for [`sql`](PostgresServer::sql). It
/// flushes its log as on a disk. All processes of the server are ended when the last handle is dropped, and when the test
/// process ends in any way. The server runs as the user `postgres` if the tests run as root.
#[derive(Clone, Debug)]
pub struct PostgresServer(Arc<Server>);

#[derive(Debug)]
struct Server {
    daemon: Daemon,
    port: Port,
    password: Option<&'static str>,
}

impl Deref for PostgresServer {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.0.daemon
    }
}

impl PostgresServer {
    /// Starts a server.
    ///
    /// # Panics
    /// If it does not start: with its log.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// Returns a builder for a server.
    #[must_use]
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::new()
    }

    /// Returns the server that all tests of this process share. Use unique paths, and never stop it.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        // Outside the runtime, which belongs to one test, while the server belongs to all.
        let start = || SHARED.get_or_init(|| PostgresServer::builder().start_blocking());
        tokio::task::spawn_blocking(start).await.expect("the shared server")
    }

    /// Creates a server without starting it.
    fn new(folder: tempfile::TempDir, port: Port, password: Option<&'static str>) -> Self {
        let status = data(folder.path()).join("postmaster.pid");
        let daemon = Daemon::new(&KIND, folder, move || look(&status));
        PostgresServer(Arc::new(Server { daemon, port, password }))
    }

    /// Returns the address for clients.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.0.port.addr()
    }

    /// Returns the URL of the database for its user, with the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_at(self.addr())
    }

    /// Returns [`url`](PostgresServer::url) with another address: of a link to this server, or of a pooler.
    #[must_use]
    pub fn url_at(&self, addr: SocketAddr) -> String {
        let password = self.0.password.map(|password| format!(":{password}")).unwrap_or_default();
        format!("postgres://{USER}{password}@{addr}/{USER}")
    }

    /// Returns the folder with the server's Unix socket.
    #[must_use]
    pub fn socket_folder(&self) -> &Path {
        self.folder()
    }

    /// Returns the certificate that a client must trust, as PEM.
    ///
    /// # Panics
    /// If the server was not built with [`tls`](PostgresBuilder::tls).
    #[must_use]
    pub fn certificate(&self) -> String {
        std::fs::read_to_string(self.data().join(CERTIFICATE)).expect("a server with tls")
    }

    /// Returns the files of the certificate and the key of the user, if the server was built with
    /// [`client_certificate`](PostgresBuilder::client_certificate).
    #[must_use]
    pub fn client_certificate(&self) -> (PathBuf, PathBuf) {
        (self.folder().join(CLIENT_CERTIFICATE), self.folder().join(CLIENT_KEY))
    }

    /// Executes statements as the operator, in the database of the tests. Returns the rows, one a line, with `|` between columns.
    ///
    /// # Panics
    /// Panics with the server's message if a statement fails.
    pub async fn sql(&self, statements: &str) -> String {
        self.try_sql(statements).await.unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    /// [`sql`](PostgresServer::sql) that may fail.
    ///
    /// # Errors
    /// The output of `psql`.
    pub async fn try_sql(&self, statements: &str) -> Result<String, String> {
        self.psql(USER, statements).await
    }

    async fn psql(&self, database: &'static str, statements: &str) -> Result<String, String> {
        let (addr, statements) = (self.addr(), statements.to_owned());
        tokio::task::spawn_blocking(move || psql(addr, database, &statements)).await.expect("psql")
    }

    /// Sets a parameter of the running server, as an operator does. Returns when new statements use it.
    ///
    /// # Panics
    /// Panics if the server refuses the value.
    pub async fn set(&self, name: &str, value: &str) {
        let loaded = async || self.sql("SELECT pg_conf_load_time()").await;
        let before = loaded().await;
        self.sql(&format!("ALTER SYSTEM SET {name} = '{value}'; SELECT pg_reload_conf();")).await;
        crate::until(&format!("{name} is {value:?}"), async || loaded().await != before).await;
    }

    /// Returns how often the users of tests have sent each statement, without its constants. Statements in functions do not
    /// count, nor do the operator's.
    ///
    /// # Panics
    /// Panics if the server does not respond.
    pub async fn statements(&self) -> BTreeMap<String, u64> {
        let query = format!(
            "SELECT sum(calls), regexp_replace(query, '\\s+', ' ', 'g') FROM pg_stat_statements s
             JOIN pg_roles r ON r.oid = userid WHERE rolname <> '{OPERATOR}' GROUP BY 2;"
        );
        let rows = self.psql(OPERATOR, &query).await.unwrap_or_else(|error| panic!("{error}"));
        let row = |row: &str| {
            let (calls, query) = row.split_once('|')?;
            Some((query.to_owned(), calls.parse().ok()?))
        };
        rows.lines().map(|line| row(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }

    /// Returns the number of flushes of the log so far. A process that is idle reports its flushes after 10 seconds, or when its
    /// connection ends.
    ///
    /// # Panics
    /// Panics if the server does not respond.
    pub async fn flushes(&self) -> u64 {
        self.sql("SELECT wal_sync FROM pg_stat_wal").await.trim_end().parse().expect("a number")
    }

    /// Ends the connections of the database, except those of the operator, as an operator does. Returns how many there were.
    ///
    /// # Panics
    /// Panics if the server does not respond.
    pub async fn end_connections(&self) -> u64 {
        let query =
            format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '{USER}'");
        self.sql(&query).await.trim_end().parse().expect("a number")
    }

    /// Steps the server's clock: sets it to this many seconds after the real one, or before if negative.
    ///
    /// # Panics
    /// Panics if the server was not built with [`own_clock`](PostgresBuilder::own_clock).
    pub fn step_clock(&self, seconds: i64) {
        let file = self.folder().join(builder::CLOCK);
        assert!(file.exists(), "a server with a clock of its own");
        // A reader must not see half of it.
        let new = self.folder().join("clock.new");
        std::fs::write(&new, format!("{seconds:+}")).expect("the clock's file");
        std::fs::rename(&new, &file).expect("the clock's file");
    }

    fn data(&self) -> PathBuf {
        data(self.folder())
    }
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// Checks in the server's status file whether it takes connections. Another server cannot be mistaken for it.
fn look(status: &Path) -> Look {
    let text = std::fs::read_to_string(status).unwrap_or_default();
    let mut lines = text.lines();
    let runs = lines.next().is_some_and(|pid| Path::new("/proc").join(pid).exists());
    let is_ready = text.lines().nth(7).is_some_and(|status| status.trim_end() == "ready");
    if runs && is_ready { Look::Ready } else { Look::NotYet }
}

fn psql(addr: SocketAddr, database: &str, statements: &str) -> Result<String, String> {
    let mut psql = Command::new(Programs::selected().postgres("psql"));
    psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", OPERATOR, "-d", database]);
    psql.args(["-h", &addr.ip().to_string(), "-p", &addr.port().to_string()]);
    // The environment of whoever runs the tests is not meant for this server.
    std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")).for_each(|(name, _)| {
        psql.env_remove(name);
    });
    let mut child = psql
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("psql: {error}"))?;
    // It only fails if psql has ended, which it explains.
    let _ = child.stdin.take().map(|mut input| input.write_all(statements.as_bytes()));
    let out = child.wait_with_output().map_err(|error| format!("psql: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if out.status.success() { Ok(text(&out.stdout)) } else { Err(text(&out.stderr)) }
}
