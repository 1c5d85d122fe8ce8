//! One server in use, and the connections to it and to those that may be next.

use std::fmt;
use std::sync::Arc;

use etcd_client::Client;
use tokio::sync::{Mutex, OnceCell, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::Failure;

/// The server in use.
pub(crate) struct Endpoint {
    /// Counts the endpoints.
    pub(crate) number: u64,
    /// The servers. None before they are found in DNS.
    servers: Arc<[String]>,
    /// Which of them is in use.
    at: usize,
    /// One for each server.
    connections: Vec<Arc<Connection>>,
    /// When the request was sent that is the youngest of those that were answered.
    answered: watch::Sender<Option<Instant>>,
}

/// A connection to one of the servers, made when it is first needed.
///
/// An endpoint never reuses a connection that an earlier endpoint has used: what hung stays behind with it.
#[derive(Default)]
pub(crate) struct Connection {
    pub(crate) client: OnceCell<Arc<Client>>,
    pub(crate) attempt: Mutex<Option<Attempt>>,
}

/// An attempt to connect, which outlives the requests that wait for it, and their endpoint.
///
/// The server needs about a tenth of a second of CPU time to check a password, whether or not anybody still waits for
/// the answer. If every request that times out began a new attempt, the clients of a busy server would keep it busy.
pub(crate) struct Attempt {
    /// When it is given up.
    pub(crate) until: Instant,
    /// Its only task, which is aborted when this is dropped.
    pub(crate) task: JoinSet<Result<Client, Failure>>,
}

impl Endpoint {
    pub(crate) fn first(servers: Arc<[String]>) -> Self {
        let connections = servers.iter().map(|_| Arc::default()).collect();
        Endpoint { number: 0, servers, at: 0, connections, answered: watch::Sender::default() }
    }

    /// The next one, among the servers of now.
    pub(crate) fn next(&self, servers: Arc<[String]>) -> Self {
        // The next one of the order that was, if it still is; with other servers, the first.
        let at = if servers == self.servers { (self.at + 1) % servers.len().max(1) } else { 0 };
        let next = |server: &String| {
            let old = self.servers.iter().position(|old| old == server).map(|at| &self.connections[at]);
            old.filter(|old| old.is_pending()).cloned().unwrap_or_default()
        };
        let connections = servers.iter().map(next).collect();
        Endpoint { number: self.number + 1, servers, at, connections, answered: watch::Sender::default() }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connection().is_some_and(|connection| connection.client.get().is_some())
    }

    /// Records the response to a request that was sent at this instant.
    pub(crate) fn has_answered(&self, sent: Instant) {
        self.answered.send_if_modified(|youngest| {
            *youngest = (*youngest).max(Some(sent));
            false
        });
    }

    /// Whether a request was answered that was sent after this instant.
    pub(crate) fn is_answering_since(&self, sent: Instant) -> bool {
        *self.answered.borrow() > Some(sent)
    }

    pub(crate) fn server(&self) -> Option<&str> {
        self.servers.get(self.at).map(String::as_str)
    }

    pub(crate) fn connection(&self) -> Option<&Connection> {
        self.connections.get(self.at).map(|connection| &**connection)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endpoint").field(&self.number).finish()
    }
}

impl Connection {
    /// Returns `true` if there is an attempt whose outcome has not been taken yet.
    fn is_pending(&self) -> bool {
        // Whoever holds the lock is waiting for the attempt.
        self.client.get().is_none() && self.attempt.try_lock().map_or(true, |attempt| attempt.is_some())
    }
}
