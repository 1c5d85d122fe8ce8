//! The contract between recipes and stores.

use std::sync::Arc;

use async_trait::async_trait;

use crate::contract::background::Background;
use crate::contract::groups::Groups;
use crate::contract::history::StoreHistory;
use crate::contract::values::Values;
use crate::contract::watch::Watch;
use crate::error::{Error, ErrorKind, Result};
use crate::nodes::label::Label;
use crate::nodes::node::{FencingToken, Node, NodeData};
use crate::nodes::node_id::NodeId;
use crate::nodes::own_nodes::DeletionNotice;
use crate::nodes::path::LockPath;
use crate::nodes::queue::Queue;
use crate::observer::Observer;
use crate::session::events::SessionEvents;

/// The maximum size of the data of a node, a value or a member, in bytes. The rest of one request is well below what remains of
/// 1 MB, at which a ZooKeeper server breaks the connection.
pub const MAX_DATA: usize = 1_000_000;

/// A coordination store, seen through one session with it.
///
/// All recipes are written against this trait. They work on every implementation that passes the conformance suite, which
/// the crate `zlock-suite` has.
///
/// # Retries
/// An operation retries internally, by the backend's policy and within one time budget, and returns only the errors that
/// remain. A caller never repeats it. An operation that is called while there is no session waits for one within the same
/// budget. It [notes](crate::LastFailure::note) each failure that it retries, so that a caller that times out first can
/// report the cause.
///
/// # Requests
/// An operation does not wait for the answer of one particular other, so two of them may be polled in turn by one task. A limit on
/// requests in flight, a batch of writes, and a write of a value that was dropped are waited for by all. Operations may be called on any runtime and polled from any thread. All I/O is done on the
/// runtime that the backend was connected on, or by threads of the store's client library.
///
/// # Sessions
/// A backend has one session at a time. It keeps the session alive, and when the session is lost, it begins the next one as a
/// new *epoch* ([`Session`](crate::Session)). No operation reports success for a session that was over when the request was
/// sent. Before its first session begins, a backend behaves as if a session had been lost, in epoch 0.
///
/// A session is suspended from the moment at which no server is known to answer. It is connected again at the first response that
/// shows that the store answers, which may be a late one to any request. Only requests that keep the session alive are sent while it
/// is suspended, so they must not wait for it to be connected.
///
/// # Kinds of nodes
/// What is at a path is of one kind: a place in a queue, a value, a member of a group, or a parent of these. No operation overwrites,
/// replaces or removes what is of another kind, or takes it for its own kind, whatever its name and data are. It works beside that, or
/// is refused. Any node may be deleted by another client at any moment, even between its create and the listing that follows.
///
/// # Data
/// Up to [`MAX_DATA`] bytes of a node, a value or a member are accepted on every store, so that a lock can move from one store to
/// another.
///
/// # Watches
/// A watch fires at a change that it is about. It may also fire without one, since whatever it reports is only a reason to read again.
///
/// # Cancel safety
/// The future of an operation may be dropped at any time. Its request may still take effect. Only
/// [`create_ephemeral_sequential`](Self::create_ephemeral_sequential) may leave a node behind, which the caller removes with
/// [`delete`](Self::delete) by ID, and [`join`](Groups::join) a member, which the caller removes with [`leave`](Groups::leave).
///
/// # Errors
/// All operations fail with `Closed` at once after [`close`](Self::close), with `NotAuthorized` if the store refuses
/// access, and with `Unavailable` when the budget is used up. `Unavailable` is ambiguous for a write of unknown outcome.
/// Operations on a node whose session is over fail with `SessionLost`. A response that is not understood is `Unexpected`.
///
/// # Reports
/// A backend whose operations have a [`Budget`](crate::kit::Budget) reports each of them to the session's observer.
#[async_trait]
pub trait CoordinationBackend: Values + Groups {
    /// Appends a node to the queue of `parent`, owned by the current session, and returns it with what `needs` asks for.
    /// `id` must be new, from [`NodeIds`](crate::NodeIds).
    ///
    /// With [`Needs::Queue`] that is the queue at or after the create, or the statement that the node is alone there. For a label
    /// that excludes all others ([`Label::is_exclusive`]), the returned queue may be limited to the new node and the one directly
    /// before it.
    ///
    /// With [`Needs::Number`], a store whose numbers count every create under a parent may leave the queue out. On such a store,
    /// consecutive numbers prove that nothing was created between two nodes, as long as both exist. A
    /// [delete](Self::delete) of the older one that also finds the newer one proves that they do. Once the older one is deleted,
    /// its parent may have been removed and created again, and the numbers prove nothing.
    ///
    /// # Behavior
    /// - A node ID that is not a UUID is refused with `InvalidArgument`.
    /// - More than 1,000,000 bytes of data are refused with `InvalidArgument`.
    /// - The node is at the end of the queue, behind every node that any client has seen before.
    /// - The returned queue contains the node.
    /// - The label does not depend on the data.
    /// - A member at `parent` does not end with the node, nor the node with the member. Where members cannot have children, the error is
    ///   `InvalidArgument`.
    /// - A node that is returned as alone was the only one in its queue when it was created.
    /// - Missing parents are created, and may disappear on their own once they are empty.
    /// - A parent that disappears at any moment costs a retry and is not an error.
    /// - The node belongs to the session of the returned epoch, and is removed when that session ends.
    /// - Fencing tokens increase with each create under one parent, even if the parent is removed in between.
    /// - A lost response leaves exactly one node, which is the one returned.
    /// - A node that another client deletes while its session is live is reported through `deletion`.
    /// - Apart from the queue, the result does not depend on `needs`.
    /// - If the queue is left out and the number is one more than that of a node that still exists, nothing was created
    ///   under the parent between the two: no node, nothing nested, nothing without a number.
    /// - After an attempt of unknown outcome the queue is not left out.
    async fn create_ephemeral_sequential(
        &self,
        parent: &LockPath,
        label: Label,
        node_id: &NodeId,
        data: &[u8],
        needs: Needs,
    ) -> Result<Created>;

    /// Returns the queue of `parent`, beginning with its head.
    ///
    /// With an own node as `up_to`, the result may be limited to that node and the one directly before it. The decision about a
    /// label that excludes all others ([`Label::is_exclusive`]) needs no more. The result may then be an older state of the
    /// queue, but never one older than this backend has seen, including the create of the node. No node is ever inserted before
    /// another one, so an older state may show too many nodes before it and never too few.
    ///
    /// # Behavior
    /// - A missing parent is returned as an empty queue.
    /// - Foreign and nested children are left out.
    /// - Values and members are left out, whatever their names and data are.
    /// - The order is correct across the wrap of a store's numbers.
    /// - The queue contains every node that this backend knew before the call, and none that it knew to be deleted.
    /// - The node directly before `up_to` is included.
    /// - Up to a node, no node is included that this backend knows to be deleted.
    /// - The node `up_to` is missing only if it was deleted.
    async fn children(&self, parent: &LockPath, up_to: Option<&Node>) -> Result<Queue>;

    /// Returns what [`children`](Self::children) does, with a one-shot watch on any change of the queue: a node that is
    /// created, deleted or relabelled.
    ///
    /// # Behavior
    /// - No change between the response and the watch is lost.
    /// - A dropped watch is removed from the server.
    /// - A missing parent can be watched.
    async fn children_with_watch(&self, parent: &LockPath) -> Result<(Queue, Watch)>;

    /// Looks up the node `seen` in an earlier listing. If it still exists with the same label, sets a one-shot watch on
    /// its deletion and relabelling.
    ///
    /// # Behavior
    /// - A node that no longer exists is `Deleted`, and no watch is left.
    /// - A node whose label differs from that in `seen` is `Changed`, however often it was relabelled in between.
    /// - No deletion or relabel between the response and the watch is lost.
    /// - A relabel is never reported as `Deleted`.
    /// - The watch fires, with any event, when its session ends.
    /// - A dropped watch is removed from the server.
    async fn exists_with_watch(&self, parent: &LockPath, seen: &Node) -> Result<Existence>;

    /// Atomically gives the own node another label at the same place in the queue, and fires its watches. Returns the
    /// changed node, which keeps the fencing token of `node`.
    ///
    /// # Behavior
    /// - The place, the ID and the session do not change.
    /// - Calling it again is harmless.
    /// - The error is `NodeDeleted` if the node no longer exists, and `SessionLost` if its session is over.
    /// - The node's own deletion notice does not fire.
    async fn relabel(&self, parent: &LockPath, node: &Node, label: Label) -> Result<Node>;

    /// Removes exactly the node with this ID, whatever its current label, and returns whether this call removed it.
    ///
    /// With `next`, another own node in the same queue whose label cannot change, the result may be
    /// [`HandedOver`](Deletion::HandedOver). If the removed node held the lock and `next` is directly behind it, that proves that
    /// `next` now holds the lock, and no further request is needed. A store that cannot delete one node and check another in one
    /// request ignores `next`.
    ///
    /// # Behavior
    /// - A node or a parent that no longer exists is not an error.
    /// - A node that another client deleted is `AlreadyDeleted`, whatever its label was.
    /// - A node that an earlier attempt of this call may have deleted is `Deleted` if the response of that attempt was
    ///   lost.
    /// - A concurrent relabel of the node leaves nothing behind, whichever takes effect first.
    /// - After a create of unknown outcome, [`Target::Id`] finds and removes the node, if there is one. A create whose
    ///   future was dropped before this call cannot take effect after this call returned `Ok`.
    /// - Another node with the same number is never removed.
    /// - The node is removed whether or not `next` exists.
    /// - The result is not `HandedOver` if `next` no longer exists.
    /// - The result is not `HandedOver` if the node had been deleted before, or if its session is over.
    /// - A lost response costs a retry, or the statement about `next`.
    async fn delete(&self, parent: &LockPath, target: &Target, next: Option<&Node>) -> Result<Deletion>;

    /// Returns the data of a node, whatever its current label, or `None` if the node no longer exists.
    ///
    /// # Behavior
    /// - The data is that of the create or of the last write, byte for byte.
    /// - Every client gets the session that owns the node.
    /// - If the store reports the time of the create, writing the data does not change it.
    async fn data(&self, parent: &LockPath, node: &Node) -> Result<Option<NodeData>>;

    /// Returns what [`data`](Self::data) does, with a one-shot watch on its change. There is no watch if the node no
    /// longer exists.
    ///
    /// # Behavior
    /// - No write and no deletion between the response and the watch is lost.
    /// - On a relabel, the watch fires or follows the node. It never reports the node as `Deleted`.
    /// - The watch fires, with any event, when its session ends.
    /// - A dropped watch is removed from the server, and no other watch is removed with it.
    async fn data_with_watch(&self, parent: &LockPath, node: &Node) -> Result<Option<(Vec<u8>, Watch)>>;

    /// Writes the data of a node, whatever its current label. With `expected`, only if the data has been written exactly this
    /// often since the node's create. That is for a candidate's node ([`Label::Candidate`]) as a create returned it.
    ///
    /// # Behavior
    /// - More than 1,000,000 bytes of data are refused with `InvalidArgument`.
    /// - Any session may write.
    /// - The label, the place and the session do not change, and the node's deletion notice does not fire.
    /// - If the node no longer exists, the error is `NodeDeleted` and nothing is created.
    /// - A concurrent write and relabel both take effect.
    /// - A watch of `exists_with_watch` may fire, but not with `Deleted`.
    /// - Calling it again is harmless.
    /// - Each write that expects a number has the number after the last one, and the node stays as it is otherwise.
    /// - If the data was written another number of times than expected, nothing is written, and the result is that number.
    /// - A later node of the same name is another node.
    /// - A lost response does not change the result.
    /// - A write that expects a number and was dropped does not undo a later one.
    async fn write_data(
        &self,
        parent: &LockPath,
        node: &Node,
        expected: Option<u64>,
        data: &[u8],
    ) -> Result<DataWrite>;

    /// Returns the head of the queue of `parent` with its data and fencing token, and a one-shot watch that fires when the
    /// queue has another head, or the head other data. An empty queue has no head, and the watch fires at the first create.
    ///
    /// Unlike [`children`](Self::children), this may return an older state, but never one older than this backend has seen.
    ///
    /// The provided method calls `children`, and then reads the head. It is for a store whose listing has fencing tokens, and fails
    /// with `Unexpected` without them. A store that can do both in one request should override it.
    ///
    /// # Behavior
    /// - The head is the first node of the queue, with its data byte for byte.
    /// - No change of the head or its data between the response and the watch is lost.
    /// - A missing parent has no head, and can be watched.
    /// - A node that is created behind the head does not fire the watch.
    /// - The watch fires, with any event, when its session ends.
    /// - A dropped watch is removed from the server.
    async fn head_with_watch(&self, parent: &LockPath) -> Result<(Option<Head>, Watch)> {
        loop {
            let queue = self.children(parent, None).await?;
            let Some(node) = queue.first() else {
                let (queue, watch) = self.children_with_watch(parent).await?;
                if queue.is_empty() {
                    return Ok((None, watch));
                }
                continue;
            };
            let token = node.fencing_token.ok_or_else(|| {
                let message = "the backend returned no fencing token";
                Error::new(ErrorKind::Unexpected, "head_with_watch").with_path(parent).with_message(message)
            })?;
            // A head that was deleted since the listing has a successor, or the queue is empty.
            if let Some((data, watch)) = self.data_with_watch(parent, node).await? {
                return Ok((Some(Head::new(node.clone(), data, token)), watch));
            }
        }
    }

    /// Returns the history of the store, if it is one that grants nothing for a while after it may have lost commits. The provided method
    /// returns `None`.
    fn history(&self) -> Option<&dyn StoreHistory> {
        None
    }

    /// Returns a view of the current session and of those that follow it. Performs no I/O.
    ///
    /// # Behavior
    /// - The deadline is never later than the instant at which the store ends the session.
    /// - There is a deadline from the response to a create until the delete of the session's last node begins.
    /// - An outage shorter than the session is `Suspended`, then `Connected` in the same epoch.
    /// - A session that ended is `Lost`, then `Connected` in the next epoch.
    /// - Before the first session it is `Lost` in epoch 0, and operations wait for the session within their budget.
    fn session_events(&self) -> SessionEvents;

    /// Returns the jobs that this backend runs in the background, on the runtime that it lives on. Performs no I/O.
    ///
    /// # Behavior
    /// - A job that is pushed from a thread without a runtime is run.
    /// - A job that is pushed from a runtime is run even if that runtime then ends.
    /// - After `close` no job is run, and none is kept.
    fn background(&self) -> Background;

    /// Ends the session and its nodes at the store, and wakes all callers with `Closed`. Waits up to two seconds for the
    /// store's response. Dropping the last handle has the same effect but waits for nothing.
    ///
    /// # Behavior
    /// - Every operation that is waiting or called later fails with `Closed`.
    /// - If the store can be reached, the session's nodes are deleted when this returns [`Close::Ended`].
    /// - If the store cannot be reached or does not answer within two seconds, this returns [`Close::Pending`], and the nodes are
    ///   deleted when the session expires.
    /// - Calling it again is harmless. Once it has returned `Ended`, it always does.
    async fn close(&self) -> Result<Close>;
}

/// The outcome of [`CoordinationBackend::close`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Close {
    /// The store has ended the session: its nodes are gone, and its locks are free. Also returned if there never was a
    /// session.
    Ended,
    /// The store could not be reached, or has not confirmed the end in time. Unless it did end the session, it does so one
    /// session timeout after it last received a request from this client; on PostgreSQL, another client does. Only then are the
    /// locks free.
    Pending,
}

/// What the caller of [`create_ephemeral_sequential`](CoordinationBackend::create_ephemeral_sequential) needs to know of the
/// node's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// The queue, or that the node is alone in it.
    Queue,
    /// The node's number if that shows whether anything is directly before it, otherwise the queue.
    Number,
}

/// The result of [`create_ephemeral_sequential`](CoordinationBackend::create_ephemeral_sequential).
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Created {
    /// The node, with session and fencing token filled.
    pub node: Node,
    /// What the create shows of the queue.
    pub queue: CreatedQueue,
    /// The epoch of the session that owns the node.
    pub epoch: u64,
    /// Fires when another client deletes the node while its session is live.
    pub deletion: DeletionNotice,
}

/// What a create shows of the queue.
#[derive(Clone, Debug)]
pub enum CreatedQueue {
    /// The queue at or after the create, or as much of it as the node's label needs. It contains the node.
    Listed(Queue),
    /// The node was the only one in its queue when it was created. The store proved that without a listing. The node
    /// therefore holds the lock.
    Alone,
    /// Nothing. Only for [`Needs::Number`].
    Unlisted,
}

impl CreatedQueue {
    /// Returns the queue if it was listed.
    #[must_use]
    pub fn listed(self) -> Option<Queue> {
        match self {
            CreatedQueue::Listed(queue) => Some(queue),
            CreatedQueue::Alone | CreatedQueue::Unlisted => None,
        }
    }
}

impl Created {
    /// Creates the result of a create that listed the queue.
    #[must_use]
    pub fn new(node: Node, queue: Queue, epoch: u64, deletion: DeletionNotice) -> Self {
        Created { node, queue: CreatedQueue::Listed(queue), epoch, deletion }
    }

    /// Creates the result of a create whose node is proved to be alone in its queue.
    #[must_use]
    pub fn alone(node: Node, epoch: u64, deletion: DeletionNotice) -> Self {
        Created { node, queue: CreatedQueue::Alone, epoch, deletion }
    }

    /// Creates the result of a create that did not list the queue.
    #[must_use]
    pub fn unlisted(node: Node, epoch: u64, deletion: DeletionNotice) -> Self {
        Created { node, queue: CreatedQueue::Unlisted, epoch, deletion }
    }
}

/// The result of [`exists_with_watch`](CoordinationBackend::exists_with_watch).
#[non_exhaustive]
#[derive(Debug)]
pub enum Existence {
    /// The node no longer exists. No watch is set.
    Deleted,
    /// The node's label has changed. No watch is set.
    Changed(Node),
    /// The node is unchanged. The watch fires when it no longer is.
    Watching(Watch),
}

/// The result of [`delete`](CoordinationBackend::delete).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deletion {
    /// This call deleted the node, or most likely did: the response to one of its requests was lost, and the node no
    /// longer exists.
    Deleted,
    /// The node did not exist, and this call cannot have deleted it.
    AlreadyDeleted,
    /// This call deleted the node, and the node `next` existed at that moment.
    HandedOver,
}

/// The result of [`write_data`](CoordinationBackend::write_data).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataWrite {
    /// The data was written.
    Written,
    /// The data has been written this often. Nothing was written, unless a response was lost and another client has written
    /// since.
    Conflict(u64),
}

/// The head of a queue, from [`head_with_watch`](CoordinationBackend::head_with_watch).
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The node.
    pub node: Node,
    /// The data of the last write.
    pub data: Vec<u8>,
    /// The fencing token of a holder with this node.
    pub fencing_token: FencingToken,
}

impl Head {
    /// Creates a head from its parts.
    #[must_use]
    pub fn new(node: Node, data: Vec<u8>, fencing_token: FencingToken) -> Self {
        Head { node, data, fencing_token }
    }
}

/// The node to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A known node.
    Node(Node),
    /// The node, if any, that a create of unknown outcome with this ID left behind.
    Id(NodeId),
}

impl Target {
    /// Returns the ID of the node to delete.
    #[must_use]
    pub fn id(&self) -> &NodeId {
        match self {
            Target::Node(node) => &node.id,
            Target::Id(id) => id,
        }
    }
}

/// What makes a client: a backend, or one that is shared with other clients or with code that uses it directly.
pub trait IntoBackend {
    /// Returns the backend.
    fn into_backend(self) -> Arc<dyn CoordinationBackend>;
}

impl<B: CoordinationBackend> IntoBackend for B {
    fn into_backend(self) -> Arc<dyn CoordinationBackend> {
        Arc::new(self)
    }
}

impl<B: CoordinationBackend> IntoBackend for Arc<B> {
    fn into_backend(self) -> Arc<dyn CoordinationBackend> {
        self
    }
}

impl IntoBackend for Arc<dyn CoordinationBackend> {
    fn into_backend(self) -> Arc<dyn CoordinationBackend> {
        self
    }
}

impl dyn CoordinationBackend {
    /// Sets the observer of the backend's session for the lifetime of the backend. Returns `false` if there already is one,
    /// which is kept: the first one among the clients that share the backend.
    ///
    /// For clients, which own their backends. It is not a method of [`SessionEvents`], so that those who only look at a
    /// client's session cannot take the measurements from the client's observer. The observer must not panic.
    ///
    /// ```compile_fail,E0599
    /// # async fn f(client: zlock::Client, observer: std::sync::Arc<dyn zlock::observer::Observer>) {
    /// client.session_events().observe(observer);
    /// # }
    /// ```
    pub fn observe(&self, observer: Arc<dyn Observer>) -> bool {
        self.session_events().observer().set(observer)
    }
}
