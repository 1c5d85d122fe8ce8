//! One ZooKeeper server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::daemon::{Daemon, Kind, Look, retry_taken_ports};
use super::four_letter;
use super::programs::Programs;
use super::tls::Tls;
use crate::port::Port;

const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

const KIND: Kind = Kind { name: "ZooKeeper", version: "zookeeper.version=", port_taken: "BindException" };

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
    daemon: Daemon,
    client: Port,
    secure: Option<(Port, Tls)>,
}

impl Deref for ZooKeeper {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.0.daemon
    }
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

    /// Makes another certificate and key, which the server has from its next start on. Returns the certificate, as PEM.
    ///
    /// # Panics
    /// If there is no `keytool`.
    pub fn renew_certificate(&self) -> String {
        Tls::make(self.folder()).certificate().to_owned()
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
        let folder = Daemon::make_folder(&KIND);
        let secure = self.tls.then(|| (Port::reserve(), Tls::make(folder.path())));
        let client = Port::reserve();
        self.write_config(folder.path(), &client, secure.as_ref());
        let java = self.java(folder.path());
        let (addr, data) = (client.addr(), folder.path().join("data"));
        let daemon = Daemon::new(&KIND, folder, move || look(addr, &data));
        daemon.launch(|| java);
        ZooKeeper(Arc::new(Server { daemon, client, secure }))
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

/// Whether our server answers on our port: the one that has our data.
fn look(addr: SocketAddr, data: &Path) -> Look {
    let conf = four_letter::ask(addr, "conf").unwrap_or_default();
    match four_letter::field(&conf, "dataDir") {
        Some(theirs) if Path::new(theirs).starts_with(data) => Look::Ready,
        Some(theirs) => Look::Another(format!("port {} has another server, of {theirs}", addr.port())),
        None => Look::NotYet,
    }
}
