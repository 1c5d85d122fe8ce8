//! What happens when a server is not installed.

use std::io::Write;
use std::process::Command;

use crate::server::{Etcd, ZooKeeper, dns, etcd, zookeeper};

/// The beginning of a line that reports a skipped test; `cargo xtask test` counts them.
pub const SKIP_MARK: &str = "ZLOCK-SKIP";

const VARIABLE: &str = "ZLOCK_TEST_SERVERS";

/// Whether ZooKeeper can be run; see [`have`].
///
/// # Panics
/// As [`have`].
#[must_use = "false: return from the test"]
pub fn have_zookeeper() -> bool {
    have(zookeeper::missing().as_deref())
}

/// Whether etcd can be run; see [`have`].
///
/// # Panics
/// As [`have`].
#[must_use = "false: return from the test"]
pub fn have_etcd() -> bool {
    have(etcd::missing().as_deref())
}

/// Whether a DNS server can be run; see [`have`].
///
/// # Panics
/// As [`have`].
#[must_use = "false: return from the test"]
pub fn have_dns() -> bool {
    have(dns::missing().as_deref())
}

/// Whether [`Process::hang_syncs`](crate::Process::hang_syncs) works; see [`have`].
///
/// # Panics
/// As [`have`].
#[must_use = "false: return from the test"]
pub fn have_strace() -> bool {
    let runs = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    let runs = runs.is_ok_and(|out| out.status.success());
    have((!runs).then_some("strace is missing or may trace nothing (apt-get install strace)"))
}

/// Whether Prometheus's promtool is there, which checks rules; see [`have`].
///
/// # Panics
/// As [`have`].
#[must_use = "false: return from the test"]
pub fn have_promtool() -> bool {
    let runs = Command::new("promtool").arg("--version").output().is_ok_and(|out| out.status.success());
    have((!runs).then_some("promtool is missing (apt-get install prometheus)"))
}

/// Whether a test can use what is not part of this workspace, by `ZLOCK_TEST_SERVERS`. `missing` says what is
/// not installed, and how to install it:
///
/// - `require`: it fails the test;
/// - `auto`, the default: it skips it, with a line on stderr that no test runner hides;
/// - `off`: skips it, with the same line, whether or not anything is missing.
///
/// # Panics
/// If something is required and missing, or the variable has another value.
#[must_use = "false: return from the test"]
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

/// The server that all tests of a process share, or `None` to skip; see [`have_zookeeper`].
///
/// # Panics
/// As [`have_zookeeper`], or if the server does not start.
pub async fn zookeeper_or_skip() -> Option<&'static ZooKeeper> {
    if have_zookeeper() { Some(ZooKeeper::shared().await) } else { None }
}

/// The server that all tests of a process share, or `None` to skip; see [`have_etcd`].
///
/// # Panics
/// As [`have_etcd`], or if the server does not start.
pub async fn etcd_or_skip() -> Option<&'static Etcd> {
    if have_etcd() { Some(Etcd::shared().await) } else { None }
}

pub(crate) fn test_name() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}

/// Past libtest, which keeps what `eprintln!` writes in a test that passes to itself. In one piece, or what
/// another test prints comes in between.
pub(crate) fn say(line: &str) {
    let _ = std::io::stderr().write_all(format!("\n{line}\n").as_bytes());
}
