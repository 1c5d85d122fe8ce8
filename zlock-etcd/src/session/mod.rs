//! The session as seen by operations: the owner of the nodes, and the way to send a request.
//!
//! `lease_requests.rs` requests the lease that a session is, `lease.rs` keeps and revokes it, and `keep.rs` is what the session loop
//! needs of them.

pub(crate) mod contents;
pub(crate) mod keep;
pub(crate) mod lease;
pub(crate) mod lease_requests;
pub(crate) mod renewal;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::KeyValue;
use tokio::runtime::Handle;
use tokio::time::Instant;
use zlock_core::kit::{Failure as _, Interrupted, OwnContents, Receipts, SessionKey, Sessions};
use zlock_core::{ErrorKind, Mutex, Node};

use crate::config::EtcdOptions;
use crate::connection::connect::{By, Endpoints};
use crate::error::Failure;
use crate::keys::key::{Keys, PlaceName};
use crate::keys::members::OwnMembers;
use crate::keys::names::Names;
use crate::requests::batch::Batches;
use crate::requests::fence::Fences;
use crate::session::contents::Contents;
use crate::session::renewal::Renewal;
use crate::watches::listings::Listings;
use crate::watches::pace::Pace;
use crate::watches::stream::Watches;

/// Returns the ID of a session in the form of the client library: that of its lease.
pub(crate) fn lease_id(lease: SessionKey) -> i64 {
    lease.id.get().cast_signed()
}

/// The state of the current session.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) fences: Fences,
    pub(crate) names: Mutex<Names>,
    pub(crate) members: Mutex<OwnMembers>,
    /// Of writes of values, each with its revision.
    pub(crate) receipts: Arc<Receipts<i64>>,
    /// As granted by the server.
    pub(crate) ttl: Duration,
    /// How long the lease certainly lives after a keep-alive was sent.
    pub(crate) life: Duration,
    /// The last keep-alive that was answered, if a create that is sent from now on may rely on it.
    pub(crate) renewal: Mutex<Option<Renewal>>,
}

impl Live {
    pub(crate) fn new(ttl: Duration, life: Duration) -> Self {
        let (fences, names) = (Fences::default(), Mutex::default());
        let (members, receipts, renewal) = Default::default();
        Live { fences, names, members, receipts, ttl, life, renewal }
    }
}

/// The state that the backend and its session loop share.
pub(crate) struct Shared {
    pub(crate) options: EtcdOptions,
    pub(crate) sessions: Sessions<Live>,
    /// For nodes whose label may change.
    pub(crate) contents: OwnContents<Contents>,
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) batches: Arc<Batches>,
    pub(crate) watches: Watches,
    pub(crate) listings: Listings,
    pub(crate) pace: Pace,
    /// Keys with the names of places that are none: the revisions at which they were created.
    pub(crate) ignored: Mutex<BTreeMap<String, i64>>,
    /// The runtime that the backend lives on.
    pub(crate) runtime: Handle,
}

/// The message of operations after the session loop has given up.
const REFUSED: &str = "the server refused the credentials, or a permission that the session needs";

impl Shared {
    pub(crate) fn new(options: EtcdOptions, runtime: Handle) -> Self {
        let endpoints = Arc::new(Endpoints::new(options.clone(), runtime.clone()));
        let sessions = Sessions::new(REFUSED);
        let batches = Batches::new(endpoints.clone(), &options, sessions.events());
        Shared {
            sessions,
            batches: Arc::new(batches),
            contents: OwnContents::default(),
            watches: Watches::new(endpoints.clone(), &options, runtime.clone()),
            listings: Listings::default(),
            pace: Pace::default(),
            ignored: Mutex::default(),
            endpoints,
            runtime,
            options,
        }
    }

    /// Returns the state of a session.
    pub(crate) fn live(&self, lease: SessionKey) -> Result<Arc<Live>, Failure> {
        self.sessions.get(lease).ok_or_else(|| self.sessions.interrupted().into())
    }

    /// Records that the session is over, according to an answer. The session loop does not know that yet.
    pub(crate) fn lost(&self, lease: SessionKey) -> Failure {
        self.sessions.lose(lease);
        Interrupted::SessionLost.into()
    }

    /// Parses a key as a place in the queue. `None` if it is not one.
    pub(crate) fn node(&self, lease: SessionKey, keys: &Keys, kv: &KeyValue) -> Option<Node> {
        let mut node = keys.node(kv)?;
        let is_ignored =
            |node: &Node| self.ignored.lock().get(&keys.of(&node.name)) == Some(&node.sequence.get());
        if node.session.is_none() && is_ignored(&node) {
            return None;
        }
        // The value of an own node, which names it, may have been overwritten.
        if node.id.as_str() == node.name.as_str()
            && let Some(place) = PlaceName::parse(node.name.as_str()).filter(|place| place.lease == lease.id)
            && let Some(live) = self.sessions.get(lease)
            && let Some(node_id) = live.names.lock().find(keys.prefix(), place.number, node.sequence.get())
        {
            node.id = node_id;
        }
        Some(node)
    }

    /// Sends the request of `answer` once the session is connected, and waits for it until the session has ended or the time
    /// has passed. `by` is what answers. An answer of the cluster shows that it is connected again, without waiting for the next
    /// keep-alive.
    ///
    /// # Cancel safety
    /// The request may still take effect, at any later time.
    pub(crate) async fn send<T>(
        &self,
        lease: SessionKey,
        until: Instant,
        by: By,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        self.sessions.connected(lease, until).await?;
        let answer = self.sessions.run_until_ended(lease, until, answer).await?;
        match &answer {
            Ok(_) if by == By::Cluster => {
                self.sessions.resume(lease);
            }
            // An operation may learn of the session's end before the session loop does. Nothing may retry in vain until the
            // loop runs.
            Err(failure) if failure.classify().kind == ErrorKind::SessionLost => {
                self.sessions.lose(lease);
            }
            _ => {}
        }
        answer
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("options", &self.options)
            .field("session", &self.sessions.session())
            .field("own", &self.sessions.own().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use zlock_core::{SessionId, SessionState};

    use super::*;

    /// A member that is cut off from the others still answers what it can answer alone.
    #[tokio::test]
    async fn only_an_answer_of_the_cluster_is_a_sign_of_connection() {
        let shared = Arc::new(Shared::new(EtcdOptions::new(["127.0.0.1:1"]), Handle::current()));
        let until = Instant::now() + Duration::from_secs(60);
        let (lease, _) = shared
            .sessions
            .begin(SessionId::new(7), until, |_| Live::new(Duration::ZERO, Duration::ZERO))
            .unwrap();
        for (by, state) in [(By::Member, SessionState::Suspended), (By::Cluster, SessionState::Connected)] {
            shared.sessions.resume(lease);
            let interrupted = shared.clone();
            let call = async move |_| {
                interrupted.sessions.suspend(lease);
                Ok(())
            };
            let asked = shared.endpoints.ask(by, shared.options.kit.answer_time(), call);
            shared.send(lease, until, by, asked).await.unwrap();
            assert_eq!(shared.sessions.session().state, state);
        }
    }
}
