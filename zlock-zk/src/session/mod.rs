//! The session as seen by operations: the owner of the nodes.
//!
//! `connect.rs` makes sessions, `keep.rs` keeps one alive by the requests of `heartbeat.rs`, and `touches.rs`
//! says what its deadline is.

pub(crate) mod connect;
pub(crate) mod contents;
pub(crate) mod heartbeat;
pub(crate) mod home;
pub(crate) mod in_flight;
pub(crate) mod keep;
pub(crate) mod pages;
pub(crate) mod states;
pub(crate) mod touches;
pub(crate) mod witness;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;
use tokio::time::Instant;
use zlock_core::kit::{Failure as _, OwnContents, Receipts, SessionKey, Sessions};
use zlock_core::{CloseReason, Consistency, DeletionNotice, ErrorKind, Mutex, Node, NodeId, NodeName};
use zookeeper_client as zk;
use zookeeper_client::Client;

use crate::config::ZkOptions;
use crate::error::Failure;
use crate::queues::alone::Alone;
use crate::queues::listings::Listings;
use crate::session::contents::Contents;
use crate::session::in_flight::InFlight;
use crate::session::states::Changes;
use crate::session::touches::Touches;
use crate::session::witness::Witness;
use crate::watches::gate::Gate;
use crate::watches::staleness::Staleness;
use crate::watches::watchers::Watchers;

/// The version that turns a version check in a transaction into a check of existence.
pub(crate) const ANY_VERSION: i32 = -1;

/// A live session and the client that represents it.
///
/// Only the session loop and requests in flight own the client: the session ends when the last owner drops it. So between its
/// requests, an operation keeps a [`SessionKey`] and never this.
pub(crate) struct Live {
    pub(crate) session: SessionKey,
    pub(crate) client: Client,
    pub(crate) staleness: Arc<Staleness>,
    pub(crate) watchers: Arc<Watchers>,
    /// Of writes of values.
    pub(crate) receipts: Arc<Receipts<Option<Witness>>>,
    /// The [`own_id`] up to which the last heartbeat listed the own nodes.
    pub(crate) listed_up_to: Mutex<Option<NodeId>>,
    /// `false` once a server has refused to list the own nodes.
    can_list: AtomicBool,
    /// The [`own_id`] that the last write of a heartbeat checked.
    checked: Mutex<Option<NodeId>>,
    /// Whether a heartbeat has checked a node since the last search.
    pub(crate) was_checked: AtomicBool,
    /// Locked before the session's own nodes and its deadline, which depend on each other.
    pub(crate) touches: Mutex<Touches>,
    pub(crate) changes: Mutex<Changes>,
}

/// Returns the ID of an own node: the beginning of the node's path at the server, which no relabel changes. So the order of
/// the IDs is that of the paths.
pub(crate) fn own_id(parent: &str, node_id: &NodeId) -> NodeId {
    NodeId::new([parent, "/_c_", node_id.as_str()].concat())
}

impl Live {
    pub(crate) fn new(
        session: SessionKey,
        client: Client,
        watchers: Arc<Watchers>,
        touches: Touches,
    ) -> Self {
        let changes = Mutex::new(Changes::new(client.state_watcher()));
        Live {
            session,
            client,
            staleness: Arc::new(Staleness::new(session.epoch == 1)),
            watchers,
            receipts: Arc::new(Receipts::per_path()),
            listed_up_to: Mutex::default(),
            can_list: AtomicBool::new(true),
            checked: Mutex::default(),
            was_checked: AtomicBool::new(true),
            touches: Mutex::new(touches),
            changes,
        }
    }

    /// Returns which of the own nodes, of which there is at least one, the next write checks. They take turns.
    pub(crate) fn next_to_check(&self, ids: &[NodeId]) -> Option<NodeId> {
        let mut checked = self.checked.lock();
        let next = checked.as_ref().map_or(0, |last| ids.partition_point(|id| id <= last));
        *checked = ids.get(next).or(ids.first()).cloned();
        checked.clone()
    }

    pub(crate) fn can_list(&self) -> bool {
        self.can_list.load(Ordering::Relaxed)
    }

    /// Records that the server cannot list the own nodes. It closes the connection at each attempt, so there is no other in
    /// this session.
    pub(crate) fn cannot_list(&self) {
        self.can_list.store(false, Ordering::Relaxed);
    }
}

/// The state that the backend and its session loop share.
pub(crate) struct Shared {
    pub(crate) options: ZkOptions,
    /// The runtime of the client library's tasks, and of ours.
    pub(crate) runtime: Handle,
    pub(crate) gate: Arc<Gate>,
    pub(crate) sessions: Sessions<Live>,
    /// By [`own_id`], for nodes whose label may change.
    pub(crate) contents: OwnContents<Contents>,
    /// The current names of own nodes, by [`own_id`]. That of a node which is being relabelled is not known.
    pub(crate) names: OwnContents<NodeName>,
    /// For deletes of nodes whose names are unknown.
    pub(crate) listings: Listings,
    pub(crate) alone: Alone,
    /// The servers that were found last, in groups.
    pub(crate) servers: Mutex<Arc<[Vec<String>]>>,
    pub(crate) in_flight: InFlight,
}

impl Shared {
    pub(crate) fn new(options: ZkOptions, runtime: Handle) -> Self {
        Shared {
            options,
            runtime,
            gate: Arc::default(),
            sessions: Sessions::new("the server refused the credentials"),
            contents: OwnContents::default(),
            names: OwnContents::default(),
            listings: Listings::default(),
            alone: Alone::default(),
            servers: Mutex::default(),
            in_flight: InFlight::default(),
        }
    }

    /// Ends a session for operations.
    pub(crate) fn end(&self, session: SessionKey) {
        self.clean_up(session.epoch, self.sessions.end(session));
    }

    /// Ends the backend, as far as that is possible without I/O.
    pub(crate) fn close(&self, reason: CloseReason) {
        let ended = self.sessions.close(reason);
        self.clean_up(u64::MAX, ended);
    }

    /// Cleans up after `epoch` and all epochs before it, which are over.
    fn clean_up(&self, epoch: u64, ended: Option<Arc<Live>>) {
        self.in_flight.cancel_all();
        self.alone.end(epoch);
        if let Some(ended) = ended {
            ended.watchers.close();
        }
        self.contents.retain(self.sessions.own());
        self.names.retain(self.sessions.own());
    }

    /// Returns the watches of this session.
    pub(crate) fn watchers(&self, session: SessionKey) -> Result<Arc<Watchers>, Failure> {
        let live = self.sessions.get(session);
        Ok(live.map(|live| live.watchers.clone()).ok_or_else(|| self.sessions.interrupted())?)
    }

    /// Returns `true` if the session's server may lag behind what this client has already seen, as after each answer of a watch
    /// connection.
    pub(crate) fn may_be_behind(&self, session: SessionKey) -> bool {
        self.sessions.get(session).is_some_and(|live| live.staleness.is_suspected())
    }

    /// Adds a node. Its create, or the request that found it, passed through the leader. It was sent at this instant and is
    /// answered, and a write was committed since.
    ///
    /// The deadline of a session that owned none counts on what nothing proves. So this sets it.
    pub(crate) fn insert_own(
        &self,
        session: SessionKey,
        parent: &str,
        node: &Node,
        sent: Instant,
    ) -> Result<DeletionNotice, Failure> {
        self.insert_own_as(session, &own_id(parent, &node.id), &node.name, sent)
    }

    /// Does the same for a member of a group, whose ID is its path at the server.
    pub(crate) fn insert_own_as(
        &self,
        session: SessionKey,
        id: &NodeId,
        name: &NodeName,
        sent: Instant,
    ) -> Result<DeletionNotice, Failure> {
        let live = self.sessions.get(session).ok_or_else(|| self.sessions.interrupted())?;
        let touches = live.touches.lock();
        let (deadline, is_first) = (touches.deadline(sent), self.sessions.own().is_empty());
        let notice = self.sessions.insert_own(session, id, deadline)?;
        if is_first && !self.sessions.limit(session, deadline) {
            return Err(self.sessions.interrupted().into());
        }
        self.names.insert(id, name.clone());
        Ok(notice)
    }

    /// Returns what an error means for a request in this session. If it means that the session is over, that is published at
    /// once, so that nothing retries in vain until the session loop runs.
    pub(crate) fn to_failure(&self, session: SessionKey, error: impl Into<Failure>) -> Failure {
        // An error that the library returns when its runtime ends is no answer.
        if let Some(closed) = self.sessions.closed() {
            return closed.into();
        }
        let failure = error.into();
        if failure.classify().kind == ErrorKind::SessionLost {
            self.sessions.lose(session);
        }
        failure
    }
}

/// Brings the connected server up to date if needed. A server can be behind what this client has seen only after the connection was
/// interrupted, or after another server answered. The request is sent at once: call this right before a read and await
/// both together, which costs one more message and no round trip.
pub(crate) fn catch_up(
    live: &Live,
    consistency: Consistency,
) -> impl Future<Output = Result<(), zk::Error>> + Send + '_ {
    let suspicions = live.staleness.suspicions();
    let syncs = consistency == Consistency::Latest || live.staleness.is_suspected();
    let sync = syncs.then(|| live.client.sync("/"));
    async move {
        if let Some(sync) = sync {
            sync.await?;
            live.staleness.synced(suspicions);
        }
        Ok(())
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
