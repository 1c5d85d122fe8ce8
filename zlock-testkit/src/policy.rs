//! The policy for tests whose server is not installed.

use std::process::Command;

use crate::notice::say;
use crate::server::{
    Etcd, MariaDb, PostgresServer, Programs, ZooKeeper, dns, etcd, mariadb, postgres, zookeeper,
};

/// The beginning of a line about a skipped test. `cargo xtask test` counts these lines.
pub const SKIP_MARK: &str = "ZLOCK-SKIP";

const VARIABLE: &str = "ZLOCK_TEST_SERVERS";

/// Returns `true` if ZooKeeper can be used; see [`have`].
///
/// # Panics
/// As [`have`].
#[must_use = "false: skip the test, see limit_if"]
pub fn have_zookeeper() -> bool {
    have(zookeeper::missing().as_deref())
}

/// Returns `true` if etcd can be used; see [`have`].
///
/// # Panics
/// As [`have`].
#[must_use = "false: skip the test, see limit_if"]
pub fn have_etcd() -> bool {
    have(etcd::missing().as_deref())
}

/// Returns `true` if PostgreSQL can be used; see [`have`].
///
/// # Panics
/// As [`have`].
#[must_use = "false: skip the test, see limit_if"]
pub fn have_postgres() -> bool {
    have(postgres::missing().as_deref())
}

/// Returns `true` if MariaDB can be used; see [`have`].
///
/// # Panics
/// As [`have`].
#[must_use = "false: skip the test, see limit_if"]
pub fn have_mariadb() -> bool {
    have(mariadb::missing().as_deref())
}

/// Returns `true` if PostgreSQL and PgBouncer can be used; see [`have`].
///
/// # Panics
/// As [`have`].
#[must_use = "false: skip the test, see limit_if"]
pub fn have_pgbouncer() -> bool {
    have(postgres::missing_bouncer().as_deref())
}

/// Returns `true` if a server can have a clock of its own; see [`have`].
///
/// # Panics
/// As [`have`].
#[must_use = "false: skip the test, see limit_if"]
pub fn have_faketime() -> bool {
    let missing = "there is no libfaketime (apt-get install --no-install-recommends faketime)";
    have(Programs::faketime().is_none().then_some(missing))
}

/// Returns `true` if a DNS server can be used; see [`have`].
///
/// # Panics
/// As [`have`].
#[must_use = "false: skip the test, see limit_if"]
pub fn have_dns() -> bool {
    have(dns::missing().as_deref())
}

/// Returns `true` if [`Process::hang_syncs`](crate::Process::hang_syncs) can be used; see [`have`].
///
/// # Panics
/// As [`have`].
#[must_use = "false: skip the test, see limit_if"]
pub fn have_strace() -> bool {
    let runs = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    let runs = runs.is_ok_and(|out| out.status.success());
    have((!runs).then_some("strace is missing or may trace nothing (apt-get install strace)"))
}

/// Returns `true` if Prometheus's promtool, which checks rules, can be used; see [`have`].
///
/// # Panics
/// As [`have`].
#[must_use = "false: skip the test, see limit_if"]
pub fn have_promtool() -> bool {
    let runs = Command::new("promtool").arg("--version").output().is_ok_and(|out| out.status.success());
    have((!runs).then_some("promtool is missing (apt-get install prometheus)"))
}

/// Returns `true` if a test can use an external program. `missing` describes a program that is not installed, and how to
/// install it. The variable `ZLOCK_TEST_SERVERS` selects what happens then:
///
/// - `require`: the test fails.
/// - `auto`, the default: the test is skipped, with a line on standard error that no test runner hides.
/// - `off`: the test is skipped with the same line, even if the program is installed.
///
/// # Panics
/// Panics if a required program is missing, or if the variable has another value.
#[must_use = "false: skip the test, see limit_if"]
pub fn have(missing: Option<&str>) -> bool {
    let setting = std::env::var(VARIABLE).unwrap_or_else(|_| "auto".into());
    let reason = match (setting.as_str(), missing) {
        ("off", _) => format!("{VARIABLE}=off"),
        ("auto" | "require", None) => return true,
        ("auto", Some(what)) => what.to_owned(),
        ("require", Some(what)) => panic!("{VARIABLE}=require, but {what}"),
        (other, _) => panic!("{VARIABLE}={other:?}; expected require, auto or off"),
    };
    say(&format!("{SKIP_MARK} {}: {reason}", test_name()));
    false
}

/// Returns the server that all tests of a process share, or `None` to skip the test; see [`have_zookeeper`].
///
/// # Panics
/// Panics where [`have_zookeeper`] does, or if the server does not start.
pub async fn zookeeper_or_skip() -> Option<&'static ZooKeeper> {
    if have_zookeeper() { Some(ZooKeeper::shared().await) } else { None }
}

/// Returns the server that all tests of a process share, or `None` to skip the test; see [`have_etcd`].
///
/// # Panics
/// Panics where [`have_etcd`] does, or if the server does not start.
pub async fn etcd_or_skip() -> Option<&'static Etcd> {
    if have_etcd() { Some(Etcd::shared().await) } else { None }
}

/// Returns the server that all tests of a process share, or `None` to skip the test; see [`have_postgres`].
///
/// # Panics
/// Panics where [`have_postgres`] does, or if the server does not start.
pub async fn postgres_or_skip() -> Option<&'static PostgresServer> {
    if have_postgres() { Some(PostgresServer::shared().await) } else { None }
}

/// Returns the server that all tests of a process share, or `None` to skip the test; see [`have_mariadb`].
///
/// # Panics
/// Panics where [`have_mariadb`] does, or if the server does not start.
pub async fn mariadb_or_skip() -> Option<&'static MariaDb> {
    if have_mariadb() { Some(MariaDb::shared().await) } else { None }
}

pub(crate) fn test_name() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}
