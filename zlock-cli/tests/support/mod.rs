//! Helpers for the tests of the command, which run the binary as users do.
#![allow(
    dead_code,
    unused_macros,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests; each file uses some of it"
)]

pub mod terminal;

use std::fmt::{self, Debug, Display};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::sleep;
use zlock::Client;
use zlock_testkit::{
    Daemon, Etcd, FaultProxy, PostgresServer, ZooKeeper, etcd_or_skip, have_etcd, have_postgres,
    have_zookeeper, postgres_or_skip, zookeeper_or_skip,
};

pub const POLL: Duration = Duration::from_millis(5);

/// Creates a command that ignores no signals, like one started at a shell's prompt. The test runner may ignore some, for
/// example if a shell runs it in the background.
pub fn at_a_prompt(program: &str) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,QUIT").arg(program);
    command
}

/// Creates a `zlock` command, without environment variables that affect it.
pub fn zlock(args: &[&str]) -> Command {
    zlock_at(env!("CARGO_BIN_EXE_zlock"), args)
}

/// Creates the command of a copy of `zlock`.
pub fn zlock_at(program: &str, args: &[&str]) -> Command {
    let mut command = at_a_prompt(program);
    command.args(args).env_remove("NO_COLOR").kill_on_drop(true);
    for name in ["URL", "USER", "PASSWORD", "PASSWORD_FILE", "AUTH", "CA_FILE", "CERT_FILE", "KEY_FILE"] {
        command.env_remove(format!("ZLOCK_{name}"));
    }
    command.stdin(Stdio::null());
    command
}

/// Creates a `zlock run` command for a shell script, on a store inside the process.
pub fn run_script(script: &str) -> Command {
    zlock(&["run", "--url", "mem://test", "--shell", "a", "--", script])
}

/// Runs the command to its end.
pub async fn output(command: &mut Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().await.unwrap()
}

/// Runs the command to its end. Returns its exit code and its output.
pub async fn outcome(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = output(command).await;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

pub fn pid_of(child: &Child) -> i32 {
    child.id().unwrap().try_into().unwrap()
}

/// Sends a signal to a process that the test or one of its processes has started.
pub fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

pub async fn exit_code(mut child: Child) -> i32 {
    child.wait().await.unwrap().code().unwrap()
}

/// Waits until `look` returns a value.
pub async fn eventually<T>(what: impl Debug, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(found) = look() {
            return found;
        }
        sleep(POLL).await;
    }
    panic!("did not happen: {what:?}");
}

/// Waits until the file has a line, and returns the text.
pub async fn written(file: &Path) -> String {
    let whole = || std::fs::read_to_string(file).ok().filter(|text| text.ends_with('\n'));
    eventually(file, whole).await
}

/// Waits until the file has a number on its first line.
pub async fn number_in(file: &Path) -> i32 {
    written(file).await.lines().next().unwrap().trim().parse().unwrap()
}

/// Returns `true` if a process exists and is not a zombie.
pub fn is_alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// Returns the state of a process: R, S, D, T, Z.
pub fn state(pid: i32) -> Option<char> {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?.rsplit_once(") ")?.1.chars().next()
}

pub async fn is_dead(pid: i32) {
    eventually(("the end of", pid), || (!is_alive(pid)).then_some(())).await;
}

/// Returns the children of a process.
pub fn children(pid: i32) -> Vec<i32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Returns the process that holds the lock of this `zlock run`, once it has started its command.
pub async fn keeper_of(front: i32) -> i32 {
    eventually("a keeper with a command", || {
        children(front).into_iter().find(|keeper| !children(*keeper).is_empty())
    })
    .await
}

/// Creates a folder for a test.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A file of its own, into which a command writes its process ID. It shows as its path.
pub struct PidFile(tempfile::TempDir);

impl PidFile {
    pub fn new() -> Self {
        PidFile(folder())
    }

    /// Waits until the number is there.
    pub async fn number(&self) -> i32 {
        number_in(&self.0.path().join("pid")).await
    }
}

impl Display for PidFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.path().join("pid").display())
    }
}

/// The variable with the file to which another run of this test program writes.
pub const BEATS: &str = "ZLOCK_TEST_BEATS";

/// Returns the arguments that make this test program write to [`BEATS`]. Each test program that uses this has a test `beat`.
pub fn beating() -> Vec<String> {
    let exe = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    [&*exe, "beat", "--exact", "--nocapture"].map(str::to_owned).into()
}

/// The body of the test `beat`. As a command of another test, it ignores all signals that it can, and writes the time into a
/// file as often as possible, until it is killed.
pub fn beat() {
    use std::io::Write as _;

    let Some(file) = std::env::var_os(BEATS).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let _term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
    loop {
        file.write_all(format!("{}\n", nanos()).as_bytes()).unwrap();
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Returns the time in nanoseconds, on a clock that all processes share.
pub fn nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
        .as_nanos()
        .try_into()
        .unwrap()
}

/// Returns the last time in a file of beats.
pub fn last_beat(file: &Path) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    text.rsplit_once('\n').unwrap().0.rsplit('\n').next().unwrap().parse().unwrap()
}

/// The time in which a test on a real server has to end.
pub const LIMIT: Duration = Duration::from_secs(540);

/// The session of a holder that loses its lock.
pub const SESSION: Duration = Duration::from_secs(2);

/// A real server, and a link to it that can be broken.
pub struct Site {
    pub scheme: &'static str,
    pub server: Daemon,
    pub addr: SocketAddr,
    pub proxy: FaultProxy,
    // Keeps the server.
    _owner: Box<dyn std::any::Any + Send + Sync>,
}

impl Site {
    pub async fn zk() -> Option<Self> {
        if !have_zookeeper() {
            return None;
        }
        let server = ZooKeeper::start().await;
        let (addr, daemon) = (server.addr(), (*server).clone());
        let proxy = FaultProxy::start_zookeeper(addr).await;
        Some(Site { scheme: "zk", server: daemon, addr, proxy, _owner: Box::new(server) })
    }

    pub async fn etcd() -> Option<Self> {
        if !have_etcd() {
            return None;
        }
        let server = Etcd::start().await;
        let (addr, daemon) = (server.addr(), (*server).clone());
        let proxy = FaultProxy::start(addr).await;
        Some(Site { scheme: "etcd", server: daemon, addr, proxy, _owner: Box::new(server) })
    }

    pub async fn postgres() -> Option<Self> {
        if !have_postgres() {
            return None;
        }
        let server = PostgresServer::start().await;
        server.sql(&zlock::postgres::schema_sql()).await;
        server.sql("GRANT zlock_user TO zlock").await;
        let (addr, daemon) = (server.addr(), (*server).clone());
        let proxy = FaultProxy::start(addr).await;
        Some(Site { scheme: "postgres", server: daemon, addr, proxy, _owner: Box::new(server) })
    }

    pub fn url(&self, addr: SocketAddr, session: Duration) -> String {
        let (user, database) = if self.scheme == "postgres" { ("zlock@", "/zlock") } else { ("", "") };
        format!("{}://{user}{addr}{database}?session_timeout={}s", self.scheme, session.as_secs())
    }

    /// A client that has nothing to do with the link.
    pub async fn other(&self) -> Client {
        zlock::connect(&self.url(self.addr, 10 * SESSION)).await.unwrap()
    }
}

/// Returns the URL of a part of the server that all tests of a program share, which no other test uses.
pub async fn zookeeper_url() -> Option<String> {
    Some(format!("zk://{}/{}", zookeeper_or_skip().await?.addr(), unique_name()))
}

/// Like [`zookeeper_url`].
pub async fn etcd_url() -> Option<String> {
    Some(format!("etcd://{}/{}", etcd_or_skip().await?.addr(), unique_name()))
}

/// Returns the URL of the server that all tests of a program share, for a user who may call the schema's functions and nothing
/// else.
pub async fn postgres_url(name: &str) -> Option<String> {
    let server = postgres_or_skip().await?;
    // Running it again changes nothing, but two at a time would be in each other's way.
    let sql = ["SELECT pg_advisory_lock(1);\n", &zlock::postgres::schema_sql(), "GRANT zlock_user TO zlock;"];
    server.sql(&sql.concat()).await;
    Some(format!("{}?prefix=/{name}", server.url()))
}

/// Returns a name that no other test uses.
pub fn unique_name() -> String {
    folder().path().file_name().unwrap().to_str().unwrap().trim_start_matches('.').to_owned()
}

/// Adds a parameter to a URL.
pub fn with(url: &str, parameter: &str) -> String {
    format!("{url}{}{parameter}", if url.contains('?') { '&' } else { '?' })
}

/// Makes each function a test with the URL of a part of a shared server: `on_url! { module, url; case, .. }`.
macro_rules! on_url {
    ($module:ident, $url:expr; $($case:ident,)*) => {
        mod $module {
            use super::*;

            $(#[tokio::test]
            async fn $case() {
                zlock_testkit::limit(async {
                    if let Some(url) = $url.await {
                        super::$case(&url).await;
                    }
                })
                .await;
            })*
        }
    };
}

/// Makes each function a test on ZooKeeper, one on etcd, and one on PostgreSQL.
macro_rules! on_each_url {
    ($($case:ident,)*) => {
        on_url! { on_zookeeper, support::zookeeper_url(); $($case,)* }
        on_url! { on_etcd, support::etcd_url(); $($case,)* }
        on_url! { on_postgres, support::postgres_url(&support::unique_name()); $($case,)* }
    };
}

/// Makes each function a test on one store: `on_store! { module, site: case, .. }`.
macro_rules! on_store {
    ($module:ident, $site:ident: $($case:ident,)*) => {
        mod $module {
            use super::*;

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                zlock_testkit::limit_to(support::LIMIT, async {
                    if let Some(site) = support::Site::$site().await {
                        super::$case(&site).await;
                    }
                })
                .await;
            })*
        }
    };
}

/// Makes each function a test on ZooKeeper and one on etcd.
macro_rules! on_each_store {
    ($($case:ident,)*) => {
        on_store! { zookeeper, zk: $($case,)* }
        on_store! { etcd, etcd: $($case,)* }
    };
}
