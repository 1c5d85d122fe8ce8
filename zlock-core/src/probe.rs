//! Finds out why a host does not grant a session, since the stores' client libraries do not report it.
//!
//! For backends only. A probe opens its own connection, sends a few bytes that are harmless to any server, and reads the
//! first bytes of the response. It opens no session, and costs nothing if a connect succeeds soon. It runs in its own threads
//! and uses the standard library's sockets, so that a backend whose client brings its own reactor does not need tokio's.

use std::fmt;
use std::io::{self, ErrorKind as Io, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::mutex::Mutex;

/// A connect that completes within this time is not probed.
const PATIENCE: Duration = Duration::from_millis(250);

/// The pause between two rounds.
const PAUSE: Duration = Duration::from_secs(5);

/// The time limit for a connection, and for an answer.
const LIMIT: Duration = Duration::from_secs(2);

/// The protocol of a store's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// ZooKeeper's own protocol.
    ZooKeeper,
    /// gRPC over HTTP/2, which etcd uses.
    Etcd,
}

/// The four-letter word that every server answers, even if only to refuse it.
const SRVR: &[u8] = b"srvr\n";

/// The beginning of an HTTP/2 connection, with an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A TLS handshake's first message, without extensions: the server answers with its own or with an alert.
const CLIENT_HELLO: &[u8] = b"\x16\x03\x01\0\x37\x01\0\0\x33\x03\x03zlock looks whether this is TLS.\0\
    \0\x0c\xc0\x2b\xc0\x2f\xc0\x2c\xc0\x30\0\x9c\0\x2f\x01\0";

impl Protocol {
    /// Returns the messages to send, one after the other, until there is an answer. A client that uses TLS begins with TLS,
    /// because a port may accept both.
    fn hellos(self, tls: bool) -> [&'static [u8]; 3] {
        match (self, tls) {
            (Protocol::ZooKeeper, false) => [SRVR, CLIENT_HELLO, PREFACE],
            (Protocol::ZooKeeper, true) => [CLIENT_HELLO, SRVR, PREFACE],
            (Protocol::Etcd, false) => [PREFACE, CLIENT_HELLO, SRVR],
            (Protocol::Etcd, true) => [CLIENT_HELLO, PREFACE, SRVR],
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::ZooKeeper => "ZooKeeper",
            Protocol::Etcd => "etcd",
        })
    }
}

/// Probes the hosts of one connect.
#[derive(Debug)]
pub struct Probe {
    protocol: Protocol,
    /// `true` if the client uses TLS.
    tls: bool,
    hosts: Vec<String>,
    found: Mutex<Vec<Option<Finding>>>,
}

impl Probe {
    /// Creates a probe of these hosts, each `name:port`.
    pub fn new(protocol: Protocol, tls: bool, hosts: impl IntoIterator<Item = String>) -> Self {
        let hosts: Vec<_> = hosts.into_iter().collect();
        let found = Mutex::new(vec![None; hosts.len()]);
        Probe { protocol, tls, hosts, found }
    }

    /// Probes the hosts repeatedly, and returns once waiting is pointless for all of them: their names do not resolve
    /// in two rounds, or they speak another protocol.
    ///
    /// # Cancel safety
    /// Safe. Probes in flight continue for a few seconds in their threads.
    pub async fn hopeless(&self) {
        sleep(PATIENCE).await;
        // The number of rounds in a row in which a host's name did not resolve. A single failure may be temporary,
        // which is common when a container starts, and the standard library does not say whether it is.
        let mut unresolved = vec![0; self.hosts.len()];
        loop {
            let (found, mut findings) = mpsc::unbounded_channel();
            for (i, host) in self.hosts.iter().enumerate() {
                let (host, found) = (host.clone(), found.clone());
                let (protocol, tls) = (self.protocol, self.tls);
                // Without a thread there is no finding, and no harm.
                let _ = thread::Builder::new().name("zlock-probe".into()).spawn(move || {
                    // Fails only if the receiver was dropped.
                    let say = |finding| drop(found.send((i, finding)));
                    say(Some(look_at(&host, protocol, tls, || say(None))));
                });
            }
            drop(found);
            while let Some((i, finding)) = findings.recv().await {
                let mut all = self.found.lock();
                match finding {
                    Some(finding) => {
                        let is_unresolved = matches!(finding, Finding::Unresolved(_));
                        unresolved[i] = if is_unresolved { unresolved[i] + 1 } else { 0 };
                        all[i] = Some(finding);
                    }
                    // Connected. Until there is more, the finding of the previous round counts.
                    None => {
                        all[i].get_or_insert(Finding::Silent);
                    }
                }
            }
            let is_hopeless = |finding: &Finding| finding.is_hopeless(self.protocol, self.tls);
            if self.found.lock().iter().all(|finding| finding.as_ref().is_some_and(is_hopeless))
                && !unresolved.contains(&1)
            {
                return;
            }
            sleep(PAUSE).await;
        }
    }

    /// Returns the latest findings, host by host, or an empty string if there are none.
    pub fn causes(&self) -> String {
        let found = self.found.lock();
        let cause = |(host, finding): (&String, &Option<Finding>)| {
            let finding = finding.as_ref()?;
            Some(format!("{host}: {}", finding.text(self.protocol, self.tls)))
        };
        self.hosts.iter().zip(found.iter()).filter_map(cause).collect::<Vec<_>>().join("; ")
    }
}

/// The finding for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Finding {
    /// The name has no address.
    Unresolved(String),
    /// There is no connection.
    Unreachable(String),
    /// The connection was accepted, but there is no answer.
    Silent,
    /// The server accepted the connection and closed it without an answer.
    HungUp,
    /// The server answered.
    Speaks(Voice),
}

/// The protocol of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    Tls,
    ZooKeeper { serves: bool },
    Http1,
    Http2,
    Other,
}

impl Voice {
    /// Reads the first bytes of an answer.
    fn of(answer: &[u8]) -> Self {
        let text = String::from_utf8_lossy(answer);
        let says = |part: &str| text.contains(part);
        match answer {
            // An alert, or a handshake.
            [0x15 | 0x16, 3, ..] => Voice::Tls,
            // A SETTINGS frame.
            [_, _, _, 4, _, 0, 0, 0, 0, ..] => Voice::Http2,
            _ if text.starts_with("HTTP/") => Voice::Http1,
            _ if says("not currently serving requests") => Voice::ZooKeeper { serves: false },
            // Also ClickHouse Keeper.
            _ if says("eeper version") || says("not in the whitelist") => Voice::ZooKeeper { serves: true },
            _ => Voice::Other,
        }
    }

    fn is_of(self, protocol: Protocol) -> bool {
        match protocol {
            Protocol::ZooKeeper => matches!(self, Voice::ZooKeeper { .. }),
            Protocol::Etcd => self == Voice::Http2,
        }
    }
}

impl Finding {
    /// Returns `true` if waiting is pointless. For a name that does not resolve, the next round must confirm that. An unknown
    /// answer may be that of a compatible server.
    fn is_hopeless(&self, protocol: Protocol, tls: bool) -> bool {
        match self {
            Finding::Unresolved(_) => true,
            Finding::Unreachable(_) | Finding::Silent | Finding::HungUp => false,
            Finding::Speaks(Voice::Other) => false,
            Finding::Speaks(Voice::Tls) => !tls,
            Finding::Speaks(voice) => tls || !voice.is_of(protocol),
        }
    }

    fn text(&self, protocol: Protocol, tls: bool) -> String {
        let other = |what: &str| format!("answers with {what}, which is not {protocol}: is the port right?");
        match self {
            Finding::Unresolved(why) => format!("the name does not resolve ({why})"),
            Finding::Unreachable(why) => why.clone(),
            Finding::Silent => "accepts connections but does not respond".into(),
            Finding::HungUp if protocol == Protocol::ZooKeeper => {
                "accepts connections and closes them without a response: does this machine have maxClientCnxns \
                 connections already?"
                    .into()
            }
            Finding::HungUp => "accepts connections and closes them without a response".into(),
            Finding::Speaks(Voice::Tls) if !tls => {
                "answers with TLS, but this client speaks plain text: switch TLS on (`with_tls` or \
                 ZLOCK_CA_FILE) or use the plain port"
                    .into()
            }
            Finding::Speaks(Voice::Tls) => {
                "answers with TLS, but grants no session: do the certificates match?".into()
            }
            Finding::Speaks(voice) if voice.is_of(protocol) && tls => {
                "answers in plain text, but this client speaks TLS: use the TLS port or switch TLS off".into()
            }
            Finding::Speaks(Voice::ZooKeeper { serves: false }) if protocol == Protocol::ZooKeeper => {
                "ZooKeeper is up and does not serve requests: does the ensemble have a quorum?".into()
            }
            Finding::Speaks(voice) if voice.is_of(protocol) => "responds, but grants no session".into(),
            Finding::Speaks(Voice::ZooKeeper { .. }) => other("ZooKeeper's text"),
            Finding::Speaks(Voice::Http1) => other("HTTP/1"),
            Finding::Speaks(Voice::Http2) => other("HTTP/2"),
            Finding::Speaks(Voice::Other) => "sends an unknown response: is the port right?".into(),
        }
    }
}

/// Finds out what is wrong with a host. Calls `connected` when there is a connection but no finding yet.
fn look_at(host: &str, protocol: Protocol, tls: bool, connected: impl Fn()) -> Finding {
    let addresses = match host.to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(error) => return Finding::Unresolved(error.to_string()),
    };
    let mut last = Finding::Unresolved("it has no address".into());
    for address in addresses {
        let finding = greet(address, protocol.hellos(tls), &connected);
        // An answer at another address is more informative.
        if matches!(finding, Finding::Unreachable(_)) && matches!(last, Finding::Speaks(_)) {
            continue;
        }
        let goes_on = matches!(finding, Finding::Unreachable(_)) || finding.is_hopeless(protocol, tls);
        last = finding;
        if !goes_on {
            break;
        }
    }
    last
}

/// Sends several greetings, each on its own connection, until there is an answer.
fn greet(address: SocketAddr, hellos: [&[u8]; 3], connected: impl Fn()) -> Finding {
    let mut first = None;
    for hello in hellos {
        let stream = match connect(address) {
            Ok(stream) => stream,
            Err(finding) => return first.unwrap_or(finding),
        };
        if first.is_none() {
            connected();
        }
        let finding = ask(stream, hello);
        if matches!(finding, Finding::Speaks(_)) {
            return finding;
        }
        first.get_or_insert(finding);
    }
    first.unwrap_or(Finding::Silent)
}

fn connect(address: SocketAddr) -> Result<TcpStream, Finding> {
    TcpStream::connect_timeout(&address, LIMIT).map_err(|error| no_connection(&error))
}

/// Returns what the failure of a connect tells.
fn no_connection(error: &io::Error) -> Finding {
    Finding::Unreachable(match error.kind() {
        // The server accepted the connection, and closed it before this thread could see that.
        Io::ConnectionReset | Io::BrokenPipe => return Finding::HungUp,
        Io::ConnectionRefused => "connection refused: is a server running there?".into(),
        Io::TimedOut => {
            format!(
                "no connection within {LIMIT:?}: is the server frozen or overloaded, or does a firewall block it?"
            )
        }
        _ => format!("no connection: {error}"),
    })
}

fn ask(mut stream: TcpStream, hello: &[u8]) -> Finding {
    let mut answer = Vec::new();
    let sent = stream
        .set_read_timeout(Some(LIMIT))
        .and_then(|()| stream.set_write_timeout(Some(LIMIT)))
        .and_then(|()| stream.write_all(hello));
    if sent.is_err() {
        return Finding::HungUp;
    }
    let mut bytes = [0; 256];
    // Enough to recognize each of them.
    while answer.len() < 16 {
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(n) => answer.extend_from_slice(&bytes[..n]),
            Err(error) if error.kind() == Io::Interrupted => {}
            Err(error) if matches!(error.kind(), Io::WouldBlock | Io::TimedOut) && answer.is_empty() => {
                return Finding::Silent;
            }
            Err(_) => break,
        }
    }
    if answer.is_empty() { Finding::HungUp } else { Finding::Speaks(Voice::of(&answer)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_distinguished() {
        let answers: [(&[u8], Voice); 10] = [
            (b"\x15\x03\x03\0\x02\x02(", Voice::Tls),
            (b"\x16\x03\x03\0\x5a\x02", Voice::Tls),
            (b"\0\0\x0c\x04\0\0\0\0\0\0\x05\0\0@\0", Voice::Http2),
            (b"HTTP/1.1 400 Bad Request\r\n", Voice::Http1),
            (b"Zookeeper version: 3.8.0, built on", Voice::ZooKeeper { serves: true }),
            (b"ClickHouse Keeper version: v24.2.1.2248", Voice::ZooKeeper { serves: true }),
            (
                b"srvr is not executed because it is not in the whitelist.\n",
                Voice::ZooKeeper { serves: true },
            ),
            (
                b"This ZooKeeper instance is not currently serving requests\n",
                Voice::ZooKeeper { serves: false },
            ),
            (b"SSH-2.0-OpenSSH_9.2\r\n", Voice::Other),
            (b"\0", Voice::Other),
        ];
        for (answer, voice) in answers {
            assert_eq!(Voice::of(answer), voice, "{:?}", String::from_utf8_lossy(answer));
        }
    }

    /// The lengths in the handshake's first message match the data that follows them.
    #[test]
    fn the_client_hello_is_well_formed() {
        assert_eq!(usize::from(CLIENT_HELLO[4]), CLIENT_HELLO.len() - 5);
        assert_eq!(usize::from(CLIENT_HELLO[8]), CLIENT_HELLO.len() - 9);
        let suites = 9 + 2 + 32 + 1;
        assert_eq!(usize::from(CLIENT_HELLO[suites + 1]), CLIENT_HELLO.len() - suites - 2 - 2);
    }

    #[test]
    fn only_what_may_pass_is_waited_for() {
        let why = || "why".to_owned();
        let zookeeper = Finding::Speaks(Voice::ZooKeeper { serves: true });
        for (finding, plain, tls) in [
            (Finding::Unresolved(why()), true, true),
            (Finding::Unreachable(why()), false, false),
            (Finding::Silent, false, false),
            (Finding::HungUp, false, false),
            (Finding::Speaks(Voice::Tls), true, false),
            (zookeeper, false, true),
            (Finding::Speaks(Voice::ZooKeeper { serves: false }), false, true),
            (Finding::Speaks(Voice::Http1), true, true),
            (Finding::Speaks(Voice::Http2), true, true),
            (Finding::Speaks(Voice::Other), false, false),
        ] {
            let seen = [false, true].map(|tls| finding.is_hopeless(Protocol::ZooKeeper, tls));
            assert_eq!(seen, [plain, tls], "{finding:?}");
        }
        assert!(!Finding::Speaks(Voice::Http2).is_hopeless(Protocol::Etcd, false));
    }

    #[test]
    fn a_connection_that_was_closed_at_once_was_accepted() {
        for closed in [Io::ConnectionReset, Io::BrokenPipe] {
            assert_eq!(no_connection(&closed.into()), Finding::HungUp);
        }
        assert!(matches!(no_connection(&Io::ConnectionRefused.into()), Finding::Unreachable(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_does_not_resolve_is_looked_up_twice() {
        // Too long for a name, so that no server is asked.
        let host = format!("{}:1", "x".repeat(64));
        let probe = Probe::new(Protocol::ZooKeeper, false, [host]);
        let began = tokio::time::Instant::now();
        probe.hopeless().await;
        assert_eq!(began.elapsed(), PATIENCE + PAUSE);
        assert!(probe.causes().contains("the name does not resolve"), "{}", probe.causes());
    }
}
