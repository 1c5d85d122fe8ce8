//! A network link that tests can break: [`FaultProxy`], for the [`Links`](crate::Links) of a store that has a server.
//!
//! What the suites do to a connection, a proxy does as follows:
//!
//! | method of `Links` | call |
//! |---|---|
//! | `cut`, and `connect_cut` before it connects | [`refuse`](FaultProxy::refuse), then [`cut`](FaultProxy::cut) with [`Cut::Fin`] |
//! | `freeze` | [`freeze`](FaultProxy::freeze) |
//! | `mute` | [`to_client`](FaultProxy::to_client) with [`Flow::Swallow`] |
//! | `heal` | [`heal`](FaultProxy::heal) |

mod framing;
mod link;
mod port;
mod settings;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use self::framing::Framing;
pub use self::framing::{zk_op, zookeeper_request};
use self::link::Link;
pub use self::port::Port;
use self::settings::{Control, Fault, Gate, Shared};
pub use self::settings::{Cut, Flow, Lose, Staged};

/// A TCP proxy on its own loopback port, between clients and one server. All settings can be changed while connections are
/// open, and apply to open and new connections.
///
/// Dropping the proxy ends it and its connections.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    port: Port,
    acceptor: JoinHandle<()>,
    reached: watch::Receiver<Gate>,
}

impl FaultProxy {
    /// Starts a proxy for any TCP server. Bytes that arrive together count as one request.
    pub async fn start(upstream: SocketAddr) -> Self {
        Self::start_framed(upstream, Framing::Raw).await
    }

    /// Starts a proxy for a TCP server that may not listen yet. A client's connection waits for the server, for at most
    /// `patience`, before it ends.
    pub async fn start_patient(upstream: SocketAddr, patience: Duration) -> Self {
        Self::start_with(upstream, Framing::Raw, patience).await
    }

    /// Starts a proxy for a ZooKeeper server. It recognizes individual requests and responses.
    pub async fn start_zookeeper(upstream: SocketAddr) -> Self {
        Self::start_framed(upstream, Framing::ZooKeeper).await
    }

    /// Starts a proxy for a gRPC server, which can end single streams.
    pub async fn start_grpc(upstream: SocketAddr) -> Self {
        Self::start_framed(upstream, Framing::Http2).await
    }

    async fn start_framed(upstream: SocketAddr, framing: Framing) -> Self {
        Self::start_with(upstream, framing, Duration::ZERO).await
    }

    async fn start_with(upstream: SocketAddr, framing: Framing, patience: Duration) -> Self {
        let (to_server, to_client) = (Flow::Pass, Flow::Pass);
        let control = Control { upstream, to_server, to_client, gate: Gate::Open, cuts: 0, cut: Cut::Fin };
        let shared = Arc::new(Shared {
            framing,
            patience,
            control: watch::Sender::new(control),
            fault: Mutex::new(None),
            last_answers: Mutex::new(None),
            to_server: AtomicU64::new(0),
            to_client: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        });
        let port = Port::reserve();
        let (gate, mut reached) = watch::channel(Gate::Refused);
        let acceptor = tokio::spawn(accept(shared.clone(), port.addr(), gate));
        reached.wait_for(|gate| *gate == Gate::Open).await.expect("the acceptor");
        FaultProxy { shared, port, acceptor, reached }
    }

    /// Returns the address for clients.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Returns [`addr`](FaultProxy::addr) in the format that clients expect.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.addr().to_string()
    }

    /// Sends new connections to another server.
    pub fn set_upstream(&self, upstream: SocketAddr) {
        self.shared.control.send_modify(|control| control.upstream = upstream);
    }

    /// Sets what happens to bytes for the server.
    pub fn to_server(&self, flow: Flow) {
        self.shared.control.send_modify(|control| control.to_server = flow);
    }

    /// Sets what happens to bytes for the clients.
    pub fn to_client(&self, flow: Flow) {
        self.shared.control.send_modify(|control| control.to_client = flow);
    }

    /// Sets what happens to bytes in both directions.
    pub fn both(&self, flow: Flow) {
        self.shared.control.send_modify(|control| (control.to_server, control.to_client) = (flow, flow));
    }

    /// Ends all connections. Accepts new ones.
    pub fn cut(&self, how: Cut) {
        self.shared.control.send_modify(|control| (control.cuts, control.cut) = (control.cuts + 1, how));
    }

    /// Refuses new connections by not listening. Returns when that is in effect.
    pub async fn refuse(&self) {
        self.gate(Gate::Refused).await;
    }

    /// Freezes the proxy: holds bytes in both directions, and leaves new connections to the system, which accepts them.
    /// Returns when that is in effect.
    pub async fn freeze(&self) {
        self.both(Flow::Hold);
        self.gate(Gate::Frozen).await;
    }

    /// Passes all bytes on and accepts new connections, whatever was set before. Returns when that is in effect.
    pub async fn heal(&self) {
        self.both(Flow::Pass);
        self.gate(Gate::Open).await;
    }

    async fn gate(&self, gate: Gate) {
        self.shared.control.send_modify(|control| control.gate = gate);
        self.reached.clone().wait_for(|reached| *reached == gate).await.expect("the acceptor");
    }

    /// Loses the next request that `matches` accepts, or its response, and then cuts the connection. None of the connection's
    /// other bytes are lost before. For `matches` see [`zookeeper_request`].
    pub fn lose_next(
        &self,
        lose: Lose,
        matches: impl Fn(&[u8]) -> bool + Send + 'static,
        then: Cut,
    ) -> Staged {
        let (done, happened) = oneshot::channel();
        let fault = Fault { lose, matches: Box::new(matches), then, done };
        *self.shared.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
        Staged(happened)
    }

    /// Ends each gRPC stream right after an answer whose bytes `matches` accepts, as a proxy does that limits the time of
    /// streams. The connection lives on. The proxy must be one for [gRPC](Self::start_grpc).
    pub fn end_streams_after(&self, matches: impl Fn(&[u8]) -> bool + Send + 'static) {
        let mut last_answers = self.shared.last_answers.lock().unwrap_or_else(PoisonError::into_inner);
        *last_answers = Some(Box::new(matches));
    }

    /// Returns the number of bytes that have arrived at the server.
    #[must_use]
    pub fn bytes_to_server(&self) -> u64 {
        self.shared.to_server.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that have arrived at clients.
    #[must_use]
    pub fn bytes_to_client(&self) -> u64 {
        self.shared.to_client.load(Ordering::Relaxed)
    }

    /// Returns the number of accepted connections.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

/// Accepts connections as the gate allows, and reports when a change of the gate is in effect.
async fn accept(shared: Arc<Shared>, addr: SocketAddr, reached: watch::Sender<Gate>) {
    let mut control = shared.control.subscribe();
    let mut listener = None;
    let mut links = JoinSet::new();
    loop {
        let gate = control.borrow_and_update().gate;
        match gate {
            Gate::Refused => listener = None,
            _ if listener.is_none() => listener = Some(listen(addr).await),
            _ => {}
        }
        reached.send_replace(gate);
        tokio::select! {
            biased;
            changed = control.changed() => if changed.is_err() { return },
            client = take(listener.as_ref()), if gate == Gate::Open => {
                shared.connections.fetch_add(1, Ordering::Relaxed);
                links.spawn(Link::new(shared.clone()).run(client));
            }
            Some(_) = links.join_next() => {}
        }
    }
}

async fn take(listener: Option<&TcpListener>) -> tokio::net::TcpStream {
    match listener {
        Some(listener) => listener.accept().await.expect("a connection").0,
        None => std::future::pending().await,
    }
}

/// For a moment, a process that is being started has this process's sockets, even those that were just closed.
const IN_USE: Duration = Duration::from_secs(2);

async fn listen(addr: SocketAddr) -> TcpListener {
    let until = Instant::now() + IN_USE;
    loop {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("an option");
        match socket.bind(addr).and_then(|()| socket.listen(1024)) {
            Ok(listener) => return listener,
            Err(e) if e.kind() == ErrorKind::AddrInUse && Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(e) => panic!("{addr}: {e}"),
        }
    }
}
