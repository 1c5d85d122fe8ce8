//! One ZooKeeper server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use super::four_letter;
use super::programs::{Programs, announce, version};
use super::tls::Tls;
use crate::port::Port;
use crate::process::Process;

const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// Two processors, shared: a server takes half a second when alone, far longer when not.
const START_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// A tick of the tests: sessions from one second on, ended within half a second of their timeout.
const TICK: Duration = Duration::from_millis(500);

/// What is missing to run ZooKeeper, and how to install it.
pub(crate) fn missing() -> Option<String> {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    MISSING.get_or_init(|| Programs::selected().missing_zookeeper()).clone()
}

/// A real ZooKeeper server on a free loopback port, with a folder of its own.
///
/// It ends when the last handle is dropped, and when the test process ends in any way.
#[derive(Clone, Debug)]
pub struct ZooKeeper(Arc<Server>);

#[derive(Debug)]
struct Server {
    /// None while it is stopped. First, so that it ends before its folder goes.
    process: Mutex<Option<Process>>,
    folder: TempDir,
    client: Port,
    secure: Option<(Port, Tls)>,
    java: Vec<OsString>,
}

/// What a server is like. Made by [`ZooKeeper::builder`].
#[derive(Clone, Debug)]
pub struct ZooKeeperBuilder {
    tick: Duration,
    session_timeouts: (Duration, Duration),
    properties: Vec<(String, String)>,
    config: Vec<String>,
    tls: bool,
    /// The number of a member of an ensemble, and what all members are told.
    member: Option<(usize, Vec<String>)>,
}

impl ZooKeeper {
    /// Starts a server with a tick of 500 ms and sessions from 1 s to 2 min.
    ///
    /// # Panics
    /// If it does not start: with its log.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// A server to be.
    #[must_use]
    pub fn builder() -> ZooKeeperBuilder {
        ZooKeeperBuilder {
            tick: TICK,
            session_timeouts: (2 * TICK, Duration::from_secs(120)),
            properties: Vec::new(),
            config: Vec::new(),
            tls: false,
            member: None,
        }
    }

    /// The server that all tests of this process share. Use paths of your own, and never stop it.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceLock<ZooKeeper> = OnceLock::new();
        // Off the runtime: it belongs to one test, the server to all.
        let start = || SHARED.get_or_init(|| ZooKeeper::builder().start_blocking());
        tokio::task::spawn_blocking(start).await.expect("the shared server")
    }

    /// Where clients connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.0.client.addr()
    }

    /// [`addr`](ZooKeeper::addr) as clients take it.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.addr().to_string()
    }

    /// Where clients connect with TLS, and the server's certificate.
    ///
    /// # Panics
    /// If the server was not built with [`tls`](ZooKeeperBuilder::tls).
    #[must_use]
    pub fn tls(&self) -> (SocketAddr, &Tls) {
        let (port, tls) = self.0.secure.as_ref().expect("a server with tls");
        (port.addr(), tls)
    }

    /// Kills the server. Its port and its data stay.
    ///
    /// # Panics
    /// If it is stopped already.
    pub fn stop(&self) {
        drop(self.0.process().take().expect("a running server"));
    }

    /// Kills the server if it runs, and starts it again on the same port with the same data. Returns when it
    /// answers.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn restart(&self) {
        drop(self.0.process().take());
        let server = self.0.clone();
        tokio::task::spawn_blocking(move || {
            server.launch();
            server.wait_until_ready().unwrap_or_else(|why| panic!("{}", why.text));
        })
        .await
        .expect("a restart");
    }

    /// Freezes the server: connections stay open, new ones are taken by the system, nothing is answered.
    pub fn pause(&self) {
        self.0.process().as_ref().expect("a running server").pause();
    }

    /// Lets the server's disk hang until what this returns is dropped: it goes on to answer what it needs no disk for. See
    /// [`have_strace`](crate::have_strace).
    ///
    /// # Panics
    /// If `strace` cannot trace it.
    #[must_use]
    pub fn hang_disk(&self) -> Process {
        self.0.process().as_ref().expect("a running server").hang_syncs()
    }

    /// Lets a frozen server run on.
    pub fn resume(&self) {
        self.0.process().as_ref().expect("a running server").resume();
    }

    /// The process id of the running server.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.process().as_ref().expect("a running server").pid()
    }

    /// The server's folder: log, configuration, data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.0.folder.path()
    }

    /// What the server has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.0.log()
    }

    /// The version of the server, as it has logged it.
    ///
    /// # Panics
    /// If it has logged none.
    #[must_use]
    pub fn version(&self) -> String {
        self.0.version()
    }

    /// The answer to a four-letter word; `None` if the server does not answer. It counts as one packet.
    pub async fn four_letter_word(&self, word: &str) -> Option<String> {
        let (addr, word) = (self.addr(), word.to_owned());
        tokio::task::spawn_blocking(move || four_letter::ask(addr, &word)).await.expect("a question")
    }

    /// The server's counters by `mntr`, without the `zk_` in front of their names: `packets_received`,
    /// `watch_count`, `ephemerals_count`, `znode_count`, `global_sessions`, and all others. Asking counts as
    /// one packet.
    ///
    /// # Panics
    /// If the server does not answer.
    pub async fn mntr(&self) -> BTreeMap<String, f64> {
        four_letter::numbers(&self.four_letter_word("mntr").await.expect("an answer to mntr"))
    }

    /// `standalone`, `leader` or `follower`; `None` if it is not serving.
    pub async fn mode(&self) -> Option<String> {
        let answer = self.four_letter_word("srvr").await?;
        four_letter::field(&answer, "Mode").map(str::to_owned)
    }

    pub(super) fn wait_until_ready(&self) -> Result<(), NotReady> {
        self.0.wait_until_ready()
    }
}

impl ZooKeeperBuilder {
    /// The length of a tick. Sessions end within a tick of their timeout.
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// What clients may ask for; the default is 1 s to 2 min.
    #[must_use]
    pub fn session_timeouts(mut self, min: Duration, max: Duration) -> Self {
        self.session_timeouts = (min, max);
        self
    }

    /// How often empty container nodes are removed; the server's default is a minute. Lets the server remove
    /// as many at a time as there are.
    #[must_use]
    pub fn container_check_interval(self, interval: Duration) -> Self {
        self.property("znode.container.checkIntervalMs", interval.as_millis())
            .property("znode.container.maxPerMinute", 10_000_000)
    }

    /// A system property of the server's Java.
    #[must_use]
    pub fn property(mut self, name: &str, value: impl ToString) -> Self {
        self.properties.push((name.to_owned(), value.to_string()));
        self
    }

    /// Switches off the digests of the server's data, so that [`set_counters`](ZooKeeper::set_counters) can change it,
    /// and what 3.9 adds to the end of a snapshot.
    #[must_use]
    pub fn without_digests(self) -> Self {
        self.property("zookeeper.digest.enabled", false)
            .property("zookeeper.serializeLastProcessedZxid.enabled", false)
    }

    /// A line of `zoo.cfg`.
    #[must_use]
    pub fn config(mut self, line: impl Into<String>) -> Self {
        self.config.push(line.into());
        self
    }

    /// Listens for TLS too, on another port, with a certificate made for it.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    pub(super) fn member(mut self, id: usize, lines: &[String]) -> Self {
        self.member = Some((id, lines.to_vec()));
        self
    }

    /// Starts the server; returns when it answers.
    ///
    /// # Panics
    /// If it does not start: with its log.
    pub async fn start(self) -> ZooKeeper {
        tokio::task::spawn_blocking(|| self.start_blocking()).await.expect("a start")
    }

    fn start_blocking(self) -> ZooKeeper {
        retry_taken_ports(|| {
            let server = self.launch();
            server.wait_until_ready().map(|()| server)
        })
    }

    pub(super) fn launch(&self) -> ZooKeeper {
        let folder = tempfile::Builder::new().prefix("zlock-zookeeper-").tempdir().expect("a folder");
        let secure = self.tls.then(|| (Port::reserve(), Tls::make(folder.path())));
        let client = Port::reserve();
        self.write_config(folder.path(), &client, secure.as_ref());
        let java = self.java(folder.path());
        let server = Server { process: Mutex::new(None), folder, client, secure, java };
        server.launch();
        ZooKeeper(Arc::new(server))
    }

    fn write_config(&self, folder: &Path, client: &Port, secure: Option<&(Port, Tls)>) {
        let data = folder.join("data");
        std::fs::create_dir(&data).expect("a data folder");
        if let Some((id, _)) = &self.member {
            std::fs::write(data.join("myid"), id.to_string()).expect("myid");
        }
        let mut text = format!(
            "tickTime={}\nminSessionTimeout={}\nmaxSessionTimeout={}\ndataDir={}\n\
             clientPort={}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n\
             maxClientCnxns=0\n4lw.commands.whitelist=*\n",
            self.tick.as_millis(),
            self.session_timeouts.0.as_millis(),
            self.session_timeouts.1.as_millis(),
            data.display(),
            client.number(),
        );
        if let Some((port, tls)) = secure {
            text += &tls.config(port);
        }
        // Later lines win: the builder's own are the last.
        for line in self.member.iter().flat_map(|(_, lines)| lines).chain(&self.config) {
            writeln!(text, "{line}").expect("a string");
        }
        std::fs::write(folder.join("zoo.cfg"), text).expect("zoo.cfg");
    }

    fn java(&self, folder: &Path) -> Vec<OsString> {
        let mut java: Vec<OsString> =
            ["java", "-Xms16m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
                .map(Into::into)
                .into();
        let properties = [
            ("org.slf4j.simpleLogger.defaultLogLevel", "info"),
            ("org.slf4j.simpleLogger.showDateTime", "true"),
            ("org.slf4j.simpleLogger.dateTimeFormat", "HH:mm:ss.SSS"),
            // Debian's servers log by slf4j-simple, later ones by log4j.
            ("org.apache.logging.log4j.level", "INFO"),
            ("zookeeper.jmx.log4j.disable", "true"),
            // The transaction log is as large as the tests need: less to write on a busy disk.
            ("zookeeper.preAllocSize", "1024"),
        ];
        java.extend(properties.map(|(name, value)| format!("-D{name}={value}").into()));
        java.extend(self.properties.iter().map(|(name, value)| format!("-D{name}={value}").into()));
        java.extend([
            "-cp".into(),
            Programs::selected().zookeeper(),
            MAIN.into(),
            folder.join("zoo.cfg").into(),
        ]);
        java
    }
}

impl Server {
    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn version(&self) -> String {
        version(&self.log(), "zookeeper.version=")
    }

    fn launch(&self) {
        let (folder, log) = (self.folder.path(), self.log_path());
        *self.process() = Some(Process::spawn_guarded(&self.java, &[], Some(folder), Some(&log)));
    }

    /// Returns when our server answers on our port: one that has our data, not one that was there before.
    fn wait_until_ready(&self) -> Result<(), NotReady> {
        let data = self.folder.path().join("data");
        for _ in 0..START_LIMIT.as_millis() / POLL.as_millis() {
            if !self.process().as_ref().is_some_and(Process::is_running) {
                let log = self.log();
                let port_taken = log.contains("BindException");
                return Err(NotReady { port_taken, text: format!("ZooKeeper ended while starting:\n{log}") });
            }
            let conf = four_letter::ask(self.client.addr(), "conf").unwrap_or_default();
            match four_letter::field(&conf, "dataDir") {
                Some(theirs) if Path::new(theirs).starts_with(&data) => {
                    announce("ZooKeeper", &self.version());
                    return Ok(());
                }
                Some(theirs) => {
                    let text = format!("port {} has another server, of {theirs}", self.client.number());
                    return Err(NotReady { port_taken: true, text });
                }
                None => std::thread::sleep(POLL),
            }
        }
        let text = format!("ZooKeeper does not answer after {START_LIMIT:?}:\n{}", self.log());
        Err(NotReady { port_taken: false, text })
    }
}

/// Why a server did not come up.
#[derive(Debug)]
pub(super) struct NotReady {
    pub(super) port_taken: bool,
    pub(super) text: String,
}

/// Somebody who does not know of our locks may take a port between our look and the server's: then with
/// other ports.
pub(super) fn retry_taken_ports<T>(mut start: impl FnMut() -> Result<T, NotReady>) -> T {
    for _ in 0..4 {
        match start() {
            Err(NotReady { port_taken: true, .. }) => {}
            other => return other.unwrap_or_else(|why| panic!("{}", why.text)),
        }
    }
    start().unwrap_or_else(|why| panic!("{}", why.text))
}
