//! A ZooKeeper server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use zlock_suite::proxy::Port;

use super::daemon::{Daemon, Kind, Look, retry_taken_ports};
use super::four_letter;
use super::programs::Programs;
use super::tls::Tls;

const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

const KIND: Kind =
    Kind { name: "ZooKeeper", version: "zookeeper.version=", port_taken: "BindException", is_parent: false };

/// The tick in tests: session timeouts are at least one second, and sessions end within half a second of their timeout.
const TICK: Duration = Duration::from_millis(500);

/// Returns what is missing to run ZooKeeper, and how to install it.
pub(crate) fn missing() -> Option<String> {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    MISSING.get_or_init(|| Programs::selected().missing_zookeeper()).clone()
}

/// A real ZooKeeper server on a free loopback port, with its own folder.
///
/// The server is killed when the last handle is dropped, and when the test process ends in any way.
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

/// The settings of a server. Created by [`ZooKeeper::builder`].
#[derive(Clone, Debug)]
pub struct ZooKeeperBuilder {
    tick: Duration,
    session_timeouts: (Duration, Duration),
    properties: Vec<(String, String)>,
    config: Vec<String>,
    tls: bool,
    /// The number of a member of an ensemble, and the configuration that all members share.
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

    /// Returns a builder for a server.
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

    /// Returns the server that all tests of this process share. Use unique paths, and never stop it.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceLock<ZooKeeper> = OnceLock::new();
        // Outside the runtime, which belongs to one test, while the server belongs to all.
        let start = || SHARED.get_or_init(|| ZooKeeper::builder().start_blocking());
        tokio::task::spawn_blocking(start).await.expect("the shared server")
    }

    /// Returns the address for clients.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.0.client.addr()
    }

    /// Returns [`addr`](ZooKeeper::addr) in the format that clients expect.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.addr().to_string()
    }

    /// Returns the address for clients with TLS, and the server's certificate.
    ///
    /// # Panics
    /// If the server was not built with [`tls`](ZooKeeperBuilder::tls).
    #[must_use]
    pub fn tls(&self) -> (SocketAddr, &Tls) {
        let (port, tls) = self.0.secure.as_ref().expect("a server with tls");
        (port.addr(), tls)
    }

    /// Creates another certificate and key, which the server uses from its next start on. Returns the certificate, as PEM.
    ///
    /// # Panics
    /// If there is no `keytool`.
    pub fn renew_certificate(&self) -> String {
        Tls::make(self.folder()).certificate().to_owned()
    }

    /// Returns the response to a four-letter word, or `None` if the server does not respond. Counts as one packet.
    pub async fn four_letter_word(&self, word: &str) -> Option<String> {
        let (addr, word) = (self.addr(), word.to_owned());
        tokio::task::spawn_blocking(move || four_letter::ask(addr, &word)).await.expect("a question")
    }

    /// Returns the server's counters from `mntr`, without the prefix `zk_` of their names: `packets_received`, `watch_count`,
    /// `ephemerals_count`, `znode_count`, `global_sessions`, and all others. The request counts as one packet.
    ///
    /// # Panics
    /// Panics if the server does not respond.
    pub async fn mntr(&self) -> BTreeMap<String, f64> {
        four_letter::numbers(&self.four_letter_word("mntr").await.expect("an answer to mntr"))
    }

    /// Returns `standalone`, `leader` or `follower`, or `None` if the server is not serving.
    pub async fn mode(&self) -> Option<String> {
        let answer = self.four_letter_word("srvr").await?;
        four_letter::field(&answer, "Mode").map(str::to_owned)
    }
}

impl ZooKeeperBuilder {
    /// Sets the length of a tick. Sessions end within a tick of their timeout.
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets the range of session timeouts that clients may request. Defaults to 1 second to 2 minutes.
    #[must_use]
    pub fn session_timeouts(mut self, min: Duration, max: Duration) -> Self {
        self.session_timeouts = (min, max);
        self
    }

    /// Sets how often empty container nodes are removed, without a limit on their number. The server's default is one minute.
    #[must_use]
    pub fn container_check_interval(self, interval: Duration) -> Self {
        self.property("znode.container.checkIntervalMs", interval.as_millis())
            .property("znode.container.maxPerMinute", 10_000_000)
    }

    /// Sets a Java system property of the server.
    #[must_use]
    pub fn property(mut self, name: &str, value: impl ToString) -> Self {
        self.properties.push((name.to_owned(), value.to_string()));
        self
    }

    /// Disables the digests of the server's data, so that [`set_counters`](ZooKeeper::set_counters) can change the data, and
    /// the additions of 3.9 at the end of a snapshot.
    #[must_use]
    pub fn without_digests(self) -> Self {
        self.property("zookeeper.digest.enabled", false)
            .property("zookeeper.serializeLastProcessedZxid.enabled", false)
    }

    /// Adds a line to `zoo.cfg`.
    #[must_use]
    pub fn config(mut self, line: impl Into<String>) -> Self {
        self.config.push(line.into());
        self
    }

    /// Also listens for TLS, on another port, with a certificate created for the server.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    pub(super) fn member(mut self, id: usize, lines: &[String]) -> Self {
        self.member = Some((id, lines.to_vec()));
        self
    }

    /// Starts the server. Returns when it responds.
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
        // Later lines take precedence, so the builder's own come last.
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
            // Debian's servers log with slf4j-simple, later ones with log4j.
            ("org.apache.logging.log4j.level", "INFO"),
            ("zookeeper.jmx.log4j.disable", "true"),
            // A small transaction log suffices for tests, and saves writes to a busy disk.
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

/// Checks that the server that responds on this port is the one with this data.
fn look(addr: SocketAddr, data: &Path) -> Look {
    let conf = four_letter::ask(addr, "conf").unwrap_or_default();
    match four_letter::field(&conf, "dataDir") {
        Some(theirs) if Path::new(theirs).starts_with(data) => Look::Ready,
        Some(theirs) => Look::Another(format!("port {} has another server, of {theirs}", addr.port())),
        None => Look::NotYet,
    }
}
