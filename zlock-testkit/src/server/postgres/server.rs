//! PostgreSQL servers.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zlock_suite::proxy::Port;

use super::super::daemon::{Daemon, Look};
use super::super::programs::Programs;
use super::layout::{CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY, CLOCK, KIND, OPERATOR, USER, data};
use super::psql::psql;
use super::template;
use crate::until;

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
    /// Creates a server without starting it.
    pub(super) fn new(folder: tempfile::TempDir, port: Port, password: Option<&'static str>) -> Self {
        let status = data(folder.path()).join("postmaster.pid");
        let daemon = Daemon::new(&KIND, folder, move || look(&status));
        PostgresServer(Arc::new(Server { daemon, port, password }))
    }

    /// Returns the password of the user of tests.
    pub(super) fn password(&self) -> Option<&'static str> {
        self.0.password
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
    /// If the server was not built with [`tls`](super::PostgresBuilder::tls).
    #[must_use]
    pub fn certificate(&self) -> String {
        std::fs::read_to_string(self.data().join(CERTIFICATE)).expect("a server with tls")
    }

    /// Returns the files of the certificate and the key of the user, if the server was built with
    /// [`client_certificate`](super::PostgresBuilder::client_certificate).
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
        until(&format!("{name} is {value:?}"), async || loaded().await != before).await;
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

    /// Returns how many pages the users' statements that contain this text have looked at in memory, with what they call.
    ///
    /// # Panics
    /// Panics if the server does not respond.
    pub async fn pages(&self, text: &str) -> u64 {
        let query = format!(
            "SELECT coalesce(sum(shared_blks_hit), 0) FROM pg_stat_statements s JOIN pg_roles r ON r.oid = userid
             WHERE rolname <> '{OPERATOR}' AND position('{text}' IN query) > 0;"
        );
        let pages = self.psql(OPERATOR, &query).await.unwrap_or_else(|error| panic!("{error}"));
        pages.trim_end().parse().expect("a number")
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
    /// Panics if the server was not built with [`own_clock`](super::PostgresBuilder::own_clock).
    pub fn step_clock(&self, seconds: i64) {
        assert!(self.has_own_clock(), "a server with a clock of its own");
        self.set_clock(seconds);
    }

    pub(super) fn has_own_clock(&self) -> bool {
        self.folder().join(CLOCK).exists()
    }

    pub(super) fn set_clock(&self, seconds: i64) {
        // A reader must not see half of it.
        let new = self.folder().join("clock.new");
        std::fs::write(&new, format!("{seconds:+}")).expect("the clock's file");
        std::fs::rename(&new, self.folder().join(CLOCK)).expect("the clock's file");
    }

    /// Returns the command of the server. What differs between a server and its replica is on the command line.
    pub(super) fn command(&self, own_clock: bool) -> Vec<OsString> {
        let mut command: Vec<OsString> = Vec::new();
        if own_clock {
            let mut file = OsString::from("FAKETIME_TIMESTAMP_FILE=");
            file.push(self.folder().join(CLOCK));
            let mut preload = OsString::from("LD_PRELOAD=");
            preload.push(Programs::faketime().expect("libfaketime"));
            command.extend(["env".into(), file, preload]);
            // The timers of the server are no wall clock.
            command.extend(
                ["FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", "NO_FAKE_STAT=1"].map(Into::into),
            );
        }
        command.extend([Programs::selected().postgres("postgres").into(), "-D".into(), self.data().into()]);
        command.extend(["-h".into(), "127.0.0.1".into(), "-k".into(), self.folder().into()]);
        command.extend(["-p".into(), self.addr().port().to_string().into()]);
        template::as_server(command)
    }

    pub(super) fn data(&self) -> PathBuf {
        data(self.folder())
    }
}

/// Checks in the server's status file whether it takes connections. Another server cannot be mistaken for it.
fn look(status: &Path) -> Look {
    let text = std::fs::read_to_string(status).unwrap_or_default();
    let mut lines = text.lines();
    let runs = lines.next().is_some_and(|pid| Path::new("/proc").join(pid).exists());
    let is_ready = text.lines().nth(7).is_some_and(|status| status.trim_end() == "ready");
    if runs && is_ready { Look::Ready } else { Look::NotYet }
}
