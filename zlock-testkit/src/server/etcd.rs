//! etcd servers.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use zlock_suite::proxy::Port;

use super::daemon::{Daemon, Kind, Look, NotReady, POLL, retry_taken_ports};
use super::programs::Programs;
use super::tls::make_certificate;

const KIND: Kind = Kind {
    name: "etcd",
    version: "\"etcd-version\":\"",
    port_taken: "address already in use",
    is_parent: false,
};

const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns what is missing to run etcd, and how to install it.
pub(crate) fn missing() -> Option<String> {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    MISSING.get_or_init(|| Programs::selected().missing_etcd()).clone()
}

/// Returns the path of `etcdctl`, in the same version as the servers.
#[must_use]
pub fn etcdctl() -> PathBuf {
    Programs::selected().etcd("etcdctl")
}

/// A real etcd server on a free loopback port, with its own folder.
///
/// The server is killed when the last handle is dropped, and when the test process ends in any way.
#[derive(Clone, Debug)]
pub struct Etcd(Arc<Server>);

#[derive(Debug)]
struct Server {
    daemon: Daemon,
    client: Port,
    peer: Port,
    /// For metrics and health checks, separate from clients.
    look: Port,
    tls: bool,
    /// Further options on the command line.
    options: Vec<&'static str>,
}

impl Deref for Etcd {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.0.daemon
    }
}

/// A self-signed certificate for `localhost` and `127.0.0.1`.
const CERTIFICATE: &str = "cert.pem";
const KEY: &str = "key.pem";

impl Etcd {
    /// Starts a server.
    ///
    /// # Panics
    /// If it does not start: with its log.
    pub async fn start() -> Self {
        tokio::task::spawn_blocking(|| Self::start_blocking(false, &[])).await.expect("a start")
    }

    /// Starts a server with further options on its command line.
    ///
    /// # Panics
    /// If it does not start: with its log.
    pub async fn start_with(options: &'static [&'static str]) -> Self {
        tokio::task::spawn_blocking(|| Self::start_blocking(false, options)).await.expect("a start")
    }

    /// Starts a server that speaks TLS with its clients.
    ///
    /// # Panics
    /// If it does not start: with its log; or if there is no `openssl`.
    pub async fn start_tls() -> Self {
        tokio::task::spawn_blocking(|| Self::start_blocking(true, &[])).await.expect("a start")
    }

    /// Returns the server that all tests of this process share. Use unique paths, and never stop it.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceLock<Etcd> = OnceLock::new();
        // Outside the runtime, which belongs to one test, while the server belongs to all.
        let start = || SHARED.get_or_init(|| Self::start_blocking(false, &[]));
        tokio::task::spawn_blocking(start).await.expect("the shared server")
    }

    fn start_blocking(tls: bool, options: &[&'static str]) -> Self {
        retry_taken_ports(|| {
            let server = Self::prepare(tls, options);
            server.launch("n0", &[server.member("n0")]);
            server.wait_until_ready().map(|()| server)
        })
    }

    fn prepare(tls: bool, options: &[&'static str]) -> Self {
        let folder = Daemon::make_folder(&KIND);
        if tls {
            make_certificate(&folder.path().join(CERTIFICATE), &folder.path().join(KEY), "localhost");
        }
        let [client, peer, look] = [(); 3].map(|()| Port::reserve());
        let (client_addr, look_addr) = (client.addr(), look.addr());
        let daemon = Daemon::new(&KIND, folder, move || is_healthy(client_addr, look_addr));
        Etcd(Arc::new(Server { daemon, client, peer, look, tls, options: options.to_vec() }))
    }

    /// Returns this member's entry in the configuration of a cluster.
    fn member(&self, name: &str) -> String {
        format!("{name}=http://{}", self.0.peer.addr())
    }

    fn launch(&self, name: &str, members: &[String]) {
        self.0.daemon.launch(|| self.command(name, members));
    }

    /// Returns the address for clients.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.0.client.addr()
    }

    /// Returns [`addr`](Etcd::addr) in the format that clients expect.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.addr().to_string()
    }

    /// Returns the certificate that a client must trust, as PEM.
    ///
    /// # Panics
    /// If the server was not started with TLS.
    #[must_use]
    pub fn certificate(&self) -> String {
        std::fs::read_to_string(self.folder().join(CERTIFICATE)).expect("a server with tls")
    }

    /// Creates another certificate and key, which the server presents from the next connection on.
    ///
    /// # Panics
    /// If there is no `openssl`.
    pub fn renew_certificate(&self) {
        make_certificate(&self.folder().join(CERTIFICATE), &self.folder().join(KEY), "localhost");
    }

    /// Returns the server's counters from `/metrics`, by name with labels. The request changes none of them.
    ///
    /// # Panics
    /// Panics if the server does not respond.
    pub async fn metrics(&self) -> Metrics {
        self.try_metrics().await.expect("the server's counters")
    }

    async fn try_metrics(&self) -> Option<Metrics> {
        let addr = self.0.look.addr();
        let text = tokio::task::spawn_blocking(move || ask(addr, "/metrics")).await.expect("a question")?;
        Some(Metrics::read(&text))
    }

    /// Creates an `etcdctl` command for this server, with version 3 of the API.
    #[must_use]
    pub fn etcdctl(&self, args: &[&str]) -> Vec<OsString> {
        let endpoint = format!("--endpoints={}", self.connect_string());
        let args = [endpoint.as_str()].into_iter().chain(args.iter().copied());
        std::iter::once(etcdctl().into()).chain(args.map(Into::into)).collect()
    }

    fn command(&self, name: &str, members: &[String]) -> Vec<OsString> {
        let (client, peer) = (self.0.client.addr(), self.0.peer.addr());
        let scheme = if self.0.tls { "https" } else { "http" };
        let mut command: Vec<OsString> = vec![Programs::selected().etcd("etcd").into()];
        for (option, value) in [
            ("name", name.to_owned()),
            ("listen-client-urls", format!("{scheme}://{client}")),
            ("advertise-client-urls", format!("{scheme}://{client}")),
            ("listen-peer-urls", format!("http://{peer}")),
            ("initial-advertise-peer-urls", format!("http://{peer}")),
            ("initial-cluster", members.join(",")),
            ("listen-metrics-urls", format!("http://{}", self.0.look.addr())),
            ("logger", "zap".to_owned()),
            ("log-level", "info".to_owned()),
        ] {
            command.push(format!("--{option}={value}").into());
        }
        let file = |option: &str, name: &str| {
            let mut arg = OsString::from(format!("--{option}="));
            arg.push(self.folder().join(name));
            arg
        };
        command.push(file("data-dir", "data"));
        command.extend(self.0.options.iter().map(Into::into));
        if self.0.tls {
            command.extend([file("cert-file", CERTIFICATE), file("key-file", KEY)]);
        }
        command
    }
}

/// Checks that this server is healthy: it listens on its port, and has a leader.
fn is_healthy(client: SocketAddr, look: SocketAddr) -> Look {
    let healthy = ask(look, "/health").is_some_and(|text| text.contains("\"true\""));
    if healthy && TcpStream::connect(client).is_ok() { Look::Ready } else { Look::NotYet }
}

/// A snapshot of a server's counters.
#[derive(Clone, Debug)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    fn read(text: &str) -> Self {
        let line = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Metrics(text.lines().filter(|line| !line.starts_with('#')).filter_map(line).collect())
    }

    /// Returns the sum over all labels.
    #[must_use]
    pub fn sum(&self, name: &str) -> f64 {
        let is =
            |key: &str| key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'));
        self.0.iter().filter(|(key, _)| is(key)).map(|(_, value)| value).sum()
    }

    /// Returns the number of messages that clients have sent, for each method where it is not 0. Counts requests, and messages
    /// on streams.
    #[must_use]
    pub fn messages(&self) -> BTreeMap<String, u64> {
        let method = |key: &str| {
            let labels = key.strip_prefix("grpc_server_msg_received_total{")?;
            Some(labels.split('"').nth(1)?.to_owned())
        };
        let all = self.0.iter().filter_map(|(key, value)| Some((method(key)?, *value as u64)));
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the number of the server's watches.
    #[must_use]
    pub fn watches(&self) -> u64 {
        self.sum("etcd_debugging_mvcc_watcher_total") as u64
    }

    /// Returns the number of watches that are served by the loop that runs every 100 ms.
    #[must_use]
    pub fn slow_watches(&self) -> u64 {
        self.sum("etcd_debugging_mvcc_slow_watcher_total") as u64
    }

    /// Returns the number of transactions that have changed keys. This is the revision, because a server may count proposals
    /// after it has responded to them (3.5.1 does).
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.sum("etcd_debugging_mvcc_current_revision") as u64
    }
}

/// A cluster of real etcd servers.
#[derive(Debug)]
pub struct EtcdCluster(Vec<Etcd>);

impl EtcdCluster {
    /// Starts a cluster of this many servers. Returns when all of them are healthy.
    ///
    /// # Panics
    /// If they are not: with a log.
    pub async fn start(size: usize) -> Self {
        let start = move || retry_taken_ports(|| Self::launch(size));
        tokio::task::spawn_blocking(start).await.expect("a cluster")
    }

    fn launch(size: usize) -> Result<Self, NotReady> {
        let members: Vec<_> = (0..size).map(|_| Etcd::prepare(false, &[])).collect();
        let names: Vec<_> = (0..size).map(|i| format!("n{i}")).collect();
        let all: Vec<_> = members.iter().zip(&names).map(|(member, name)| member.member(name)).collect();
        members.iter().zip(&names).for_each(|(member, name)| member.launch(name, &all));
        members.iter().try_for_each(|member| member.wait_until_ready())?;
        Ok(EtcdCluster(members))
    }

    /// Returns the servers.
    #[must_use]
    pub fn members(&self) -> &[Etcd] {
        &self.0
    }

    /// Returns the addresses of all servers in the format that clients expect.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.0.iter().map(Etcd::connect_string).collect::<Vec<_>>().join(",")
    }

    /// Returns the index of the leader. Waits until there is one among the members that respond.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn leader(&self) -> usize {
        loop {
            for (i, member) in self.0.iter().enumerate() {
                let metrics = member.try_metrics().await;
                if metrics.is_some_and(|metrics| metrics.sum("etcd_server_is_leader") > 0.0) {
                    return i;
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Sends an HTTP GET. Returns `None` without a response within two seconds.
fn ask(addr: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&addr, ASK_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(ASK_TIMEOUT)).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read() {
        let metrics = Metrics::read(
            "# HELP a text\na{x=\"1\"} 2\na{x=\"2\"} 3.5\nab 100\n\
             grpc_server_msg_received_total{grpc_method=\"Txn\",grpc_type=\"unary\"} 7\n\
             grpc_server_msg_received_total{grpc_method=\"Put\",grpc_type=\"unary\"} 0\n",
        );
        assert!((metrics.sum("a") - 5.5).abs() < f64::EPSILON);
        assert_eq!(metrics.messages(), [("Txn".to_owned(), 7)].into());
    }
}
