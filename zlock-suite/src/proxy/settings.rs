//! What a proxy does to the connections through it.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::framing::{self, Framing};

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
pub struct Staged(pub(super) oneshot::Receiver<()>);

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
pub(super) enum Gate {
    Open,
    /// The system accepts connections, but nothing responds.
    Frozen,
    Refused,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

#[derive(Clone, Debug)]
pub(super) struct Control {
    pub(super) upstream: SocketAddr,
    pub(super) to_server: Flow,
    pub(super) to_client: Flow,
    pub(super) gate: Gate,
    /// The number of cuts of all connections, and the kind of the last one.
    pub(super) cuts: u64,
    pub(super) cut: Cut,
}

pub(super) type Matches = Box<dyn Fn(&[u8]) -> bool + Send>;

pub(super) struct Fault {
    pub(super) lose: Lose,
    pub(super) matches: Matches,
    pub(super) then: Cut,
    pub(super) done: oneshot::Sender<()>,
}

pub(super) struct Shared {
    pub(super) framing: Framing,
    /// How long a refused connection to the server is tried again.
    pub(super) patience: Duration,
    pub(super) control: watch::Sender<Control>,
    pub(super) fault: Mutex<Option<Fault>>,
    /// The answers after which a stream ends.
    pub(super) last_answers: Mutex<Option<Matches>>,
    pub(super) to_server: AtomicU64,
    pub(super) to_client: AtomicU64,
    pub(super) connections: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("control", &*self.control.borrow()).finish_non_exhaustive()
    }
}

impl Shared {
    /// Takes the staged fault, if it is for this request.
    pub(super) fn take_fault(&self, request: &[u8]) -> Option<Fault> {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.take_if(|fault| (fault.matches)(request))
    }

    /// Returns `true` if the stream of this answer ends after it.
    pub(super) fn ends_stream(&self, answer: &[u8]) -> bool {
        let matches = self.last_answers.lock().unwrap_or_else(PoisonError::into_inner);
        matches.as_ref().is_some_and(|matches| framing::http2_data(answer).is_some_and(matches))
    }
}
