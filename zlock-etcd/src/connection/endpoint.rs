//! The server in use, and the connections to it and to possible next servers.

use std::fmt;
use std::sync::Arc;

use etcd_client::Client;
use tokio::sync::{Mutex, OnceCell, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::Failure;

/// The server in use.
pub(crate) struct Endpoint {
    /// The position of this endpoint among all endpoints.
    pub(crate) number: u64,
    /// The servers. Empty before they are found in DNS.
    servers: Arc<[String]>,
    /// The index of the server in use.
    at: usize,
    /// One for each server.
    connections: Vec<Arc<Connection>>,
    /// The time at which the latest request that was answered was sent.
    answered: watch::Sender<Option<Instant>>,
}

/// A connection to one of the servers, made when it is first needed.
///
/// An endpoint never reuses a connection of an earlier endpoint, because that connection may hang.
#[derive(Default)]
pub(crate) struct Connection {
    pub(crate) client: OnceCell<Arc<Client>>,
    pub(crate) attempt: Mutex<Option<Attempt>>,
}

/// An attempt to connect, which outlives the requests that wait for it, and their endpoint.
///
/// The server needs about a tenth of a second of CPU time to check a password, even if nothing waits for the answer any more.
/// If every request that times out began a new attempt, the clients of a busy server would keep it busy.
pub(crate) struct Attempt {
    /// The instant at which the attempt is abandoned.
    pub(crate) until: Instant,
    /// Contains only the task of the attempt, which is aborted when this is dropped.
    pub(crate) task: JoinSet<Result<Client, Failure>>,
}

impl Endpoint {
    pub(crate) fn first(servers: Arc<[String]>) -> Self {
        let connections = servers.iter().map(|_| Arc::default()).collect();
        Endpoint { number: 0, servers, at: 0, connections, answered: watch::Sender::default() }
    }

    /// Returns the next endpoint, among the current servers.
    pub(crate) fn next(&self, servers: Arc<[String]>) -> Self {
        // The next server in the same order. If the servers are different, the first one.
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

    /// Returns `true` if a request that was sent after this instant was answered.
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
        // If the mutex is locked, its owner is waiting for the attempt.
        self.client.get().is_none() && self.attempt.try_lock().map_or(true, |attempt| attempt.is_some())
    }
}
