//! A network link that tests can break.

mod framing;
mod link;

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
use crate::port::Port;

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

/// What happens to bytes in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// They arrive.
    Pass,
    /// They are accepted but never arrive, and neither does the end of the connection. A connection that has lost bytes stays
    /// silent in this direction, because TCP never delivers a stream with a gap.
    Swallow,
    /// They are kept until another flow is set, as in a temporary network outage.
    Hold,
    /// They arrive this much later.
    Delay(Duration),
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// An orderly end (FIN) to both sides.
    Fin,
    /// A reset (RST) to both sides.
    Reset,
    /// Not at all: no bytes arrive in either direction any more.
    Mute,
}

/// The lost part of a request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lose {
    /// The request never reaches the server.
    Request,
    /// The server has carried out the request and responded, but the response never reaches the client.
    Answer,
}

/// A fault that is waiting for its request. Dropping this does not disarm it.
#[derive(Debug)]
pub struct Staged(oneshot::Receiver<()>);

impl Staged {
    /// Waits until the request or its response was lost and the connection was cut.
    ///
    /// # Panics
    /// Panics if another fault has replaced this one, or if the connection ended before the response.
    pub async fn happened(self) {
        self.0.await.expect("the fault could not happen");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// The system accepts connections, but nothing responds.
    Frozen,
    Refused,
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    ToServer,
    ToClient,
}

#[derive(Clone, Debug)]
struct Control {
    upstream: SocketAddr,
    to_server: Flow,
    to_client: Flow,
    gate: Gate,
    /// The number of cuts of all connections, and the kind of the last one.
    cuts: u64,
    cut: Cut,
}

type Matches = Box<dyn Fn(&[u8]) -> bool + Send>;

struct Fault {
    lose: Lose,
    matches: Matches,
    then: Cut,
    done: oneshot::Sender<()>,
}

struct Shared {
    framing: Framing,
    /// How long a refused connection to the server is tried again.
    patience: Duration,
    control: watch::Sender<Control>,
    fault: Mutex<Option<Fault>>,
    /// The answers after which a stream ends.
    last_answers: Mutex<Option<Matches>>,
    to_server: AtomicU64,
    to_client: AtomicU64,
    connections: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("control", &*self.control.borrow()).finish_non_exhaustive()
    }
}

impl Shared {
    /// Takes the staged fault, if it is for this request.
    fn take_fault(&self, request: &[u8]) -> Option<Fault> {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.take_if(|fault| (fault.matches)(request))
    }

    /// Returns `true` if the stream of this answer ends after it.
    fn ends_stream(&self, answer: &[u8]) -> bool {
        let matches = self.last_answers.lock().unwrap_or_else(PoisonError::into_inner);
        matches.as_ref().is_some_and(|matches| framing::http2_data(answer).is_some_and(matches))
    }
}

impl FaultProxy {
    /// Starts a proxy for any TCP server. Bytes that arrive together count as one request.
    pub async fn start(upstream: SocketAddr) -> Self {
        Self::start_framed(upstream, Framing::Raw).await
    }

    /// Starts a proxy between two members of an ensemble. It waits some seconds for a member that does not listen yet. A member
    /// whose connection is refused tries again, but one whose connection ends begins another election, and may not find the
    /// leader before `initLimit`.
    pub(crate) async fn start_between_members(upstream: SocketAddr) -> Self {
        Self::start_with(upstream, Framing::Raw, Duration::from_secs(5)).await
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
