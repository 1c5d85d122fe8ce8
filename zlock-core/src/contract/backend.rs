//! The contract between recipes and stores.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

use crate::contract::background::Background;
use crate::contract::groups::Groups;
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
/// # Sessions
/// A backend has one session at a time. It keeps the session alive, and when the session is lost, it begins the next one as a
/// new *epoch* ([`Session`](crate::Session)). No operation reports success for a session that was over when the request was
/// sent. Before its first session begins, a backend behaves as if a session had been lost, in epoch 0.
///
/// # Kinds of nodes
/// What is at a path is of one kind: a place in a queue, a value, a member of a group, or a parent of these. No operation overwrites,
/// replaces or removes what is of another kind, or takes it for its own kind, whatever its name and data are. It works beside that, or
/// is refused.
///
/// # Cancel safety
/// The future of an operation may be dropped at any time. Its request may still take effect. Only
/// [`create_ephemeral_sequential`](Self::create_ephemeral_sequential) and [`create_unlisted`](Self::create_unlisted)
/// may leave a node behind, which the caller removes with [`delete`](Self::delete) by ID.
///
/// # Errors
/// All operations fail with `Closed` at once after [`close`](Self::close), with `NotAuthorized` if the store refuses
/// access, and with `Unavailable` when the budget is used up. `Unavailable` is ambiguous for a write of unknown outcome.
/// Operations on a node whose session is over fail with `SessionLost`. A response that is not understood is `Unexpected`.
#[async_trait]
pub trait CoordinationBackend: Debug + Send + Sync + 'static {
    /// Appends a node to the queue of `parent`, owned by the current session, and returns it with the queue at or after
    /// the create, or with the statement that the node is alone there. For a label that excludes all others
    /// ([`Label::is_exclusive`]), the returned queue may be limited to the new node and the one directly before it. `id` must be new, from [`NodeIds`](crate::NodeIds).
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
    async fn create_ephemeral_sequential(
        &self,
        parent: &LockPath,
        label: Label,
        node_id: &NodeId,
        data: &[u8],
    ) -> Result<Created>;

    /// Appends a node as [`create_ephemeral_sequential`](Self::create_ephemeral_sequential) does, for a caller that may
    /// not need the queue. A store whose numbers count every create under a parent may skip the listing and return
    /// [`CreatedQueue::Unlisted`].
    ///
    /// On such a store, consecutive numbers prove that nothing was created between two nodes, as long as both exist. A
    /// confirmed [`hand_over`](Self::hand_over) of the older one proves that they do. Once the older one is deleted,
    /// its parent may have been removed and created again, and the numbers prove nothing.
    ///
    /// The provided method calls `create_ephemeral_sequential` and always returns the queue.
    ///
    /// # Behavior
    /// - Apart from the queue, the result is that of `create_ephemeral_sequential`.
    /// - If the queue is left out and the number is one more than that of a node that still exists, nothing was created
    ///   under the parent between the two: no node, nothing nested, nothing without a number.
    /// - After an attempt of unknown outcome the queue is not left out.
    async fn create_unlisted(
        &self,
        parent: &LockPath,
        label: Label,
        node_id: &NodeId,
        data: &[u8],
    ) -> Result<Created> {
        self.create_ephemeral_sequential(parent, label, node_id, data).await
    }

    /// Returns the queue of `parent`, beginning with its head.
    ///
    /// # Behavior
    /// - A missing parent is returned as an empty queue.
    /// - Foreign and nested children are left out.
    /// - Values and members are left out, whatever their names and data are.
    /// - The order is correct across the wrap of a store's numbers.
    /// - The queue contains every node that this backend knew before the call, and none that it knew to be deleted.
    async fn children(&self, parent: &LockPath) -> Result<Queue>;

    /// Returns the own node `node` and the node directly before it in the queue of `parent`, or more of that queue. The
    /// decision about a label that excludes all others ([`Label::is_exclusive`]) needs no more.
    ///
    /// Unlike [`children`](Self::children), this may return an older state of the queue, but never one older than this
    /// backend has seen, including the create of `node`. No node is ever inserted before `node`, so an older state may
    /// show too many nodes before it and never too few.
    ///
    /// The provided method calls `children`. A store that can read less, or read it at a lower cost, should override
    /// it.
    ///
    /// # Behavior
    /// - The node directly before `node` is included.
    /// - No node is included that this backend knows to be deleted.
    /// - `node` is missing only if it was deleted.
    async fn children_up_to(&self, parent: &LockPath, node: &Node) -> Result<Queue> {
        let _ = node;
        self.children(parent).await
    }

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
    /// # Behavior
    /// - A node or a parent that no longer exists is not an error.
    /// - A node that another client deleted is `AlreadyDeleted`, whatever its label was.
    /// - A node that an earlier attempt of this call may have deleted is `Deleted` if the response of that attempt was
    ///   lost.
    /// - A concurrent relabel of the node leaves nothing behind, whichever takes effect first.
    /// - After a create of unknown outcome, [`Target::Id`] finds and removes the node, if there is one. A create whose
    ///   future was dropped before this call cannot take effect after this call returned `Ok`.
    /// - Another node with the same number is never removed.
    async fn delete(&self, parent: &LockPath, target: &Target) -> Result<Deletion>;

    /// Removes the own node `node` as [`delete`](Self::delete) does, and confirms that each of `next`, own nodes in the
    /// same queue, still existed when `node` was removed. None of them has a label that can change.
    ///
    /// If `node` held the lock and a node of `next` is directly behind it, a confirmed removal proves that the latter
    /// now holds the lock. No further request is needed.
    ///
    /// The provided method deletes and confirms nothing, so the next waiter lists the queue itself. A store that can
    /// delete one node and check others in a single request should override it.
    ///
    /// # Behavior
    /// - The node is removed whether or not this is confirmed.
    /// - The removal is not confirmed if a node of `next` no longer exists.
    /// - The removal is not confirmed if `node` had been deleted before, or if its session is over.
    /// - A lost response costs a retry, or the confirmation.
    async fn hand_over(&self, parent: &LockPath, node: &Node, next: &[Node]) -> Result<HandOver> {
        let _ = next;
        self.delete(parent, &Target::Node(node.clone())).await.map(HandOver::Unconfirmed)
    }

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

    /// Writes the data of a node, whatever its current label.
    ///
    /// # Behavior
    /// - More than 1,000,000 bytes of data are refused with `InvalidArgument`.
    /// - Any session may write.
    /// - The label, the place and the session do not change, and the node's deletion notice does not fire.
    /// - If the node no longer exists, the error is `NodeDeleted` and nothing is created.
    /// - A concurrent write and relabel both take effect.
    /// - A watch of `exists_with_watch` may fire, but not with `Deleted`.
    /// - Calling it again is harmless.
    async fn set_data(&self, parent: &LockPath, node: &Node, data: &[u8]) -> Result<()>;

    /// Writes the data of a candidate's node ([`Label::Candidate`]) if it has been written exactly `writes` times since the
    /// node's create. `node` must be as a create returned it.
    ///
    /// The provided method fails with `InvalidArgument`: without this operation, a leader cannot change its value.
    ///
    /// # Behavior
    /// - More than 1,000,000 bytes of data are refused with `InvalidArgument`.
    /// - Each write has the number after the last one, and the node stays as it is otherwise.
    /// - If the data was written another number of times, nothing is written, and the result is that number.
    /// - If the node no longer exists, the error is `NodeDeleted` and nothing is created.
    /// - A later node of the same name is another node.
    /// - A lost response does not change the result.
    /// - A write that was dropped does not undo a later one.
    async fn replace_data(
        &self,
        parent: &LockPath,
        node: &Node,
        writes: u64,
        data: &[u8],
    ) -> Result<Replaced> {
        let _ = (node, writes, data);
        let message = "the backend cannot replace the data of a node";
        Err(Error::new(ErrorKind::InvalidArgument, "replace_data").with_path(parent).with_message(message))
    }

    /// Returns the head of the queue of `parent` with its data and fencing token, and a one-shot watch that fires when the
    /// queue has another head, or the head other data. An empty queue has no head, and the watch fires at the first create.
    ///
    /// Unlike [`children`](Self::children), this may return an older state, but never one older than this backend has seen.
    ///
    /// The provided method calls `children`, and then reads the head. It fails with `Unexpected` if neither `children` nor `data`
    /// reports the head's fencing token. A store that can do both in one request should override it.
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
            let queue = self.children(parent).await?;
            let Some(node) = queue.first() else {
                let (queue, watch) = self.children_with_watch(parent).await?;
                if queue.is_empty() {
                    return Ok((None, watch));
                }
                continue;
            };
            // A head that was deleted since the listing has a successor, or the queue is empty.
            let Some((data, watch)) = self.data_with_watch(parent, node).await? else { continue };
            let token = match node.fencing_token {
                None => {
                    let Some(told) = self.data(parent, node).await? else { continue };
                    told.fencing_token
                }
                known => known,
            };
            let token = token.ok_or_else(|| {
                let message = "the backend returned no fencing token";
                Error::new(ErrorKind::Unexpected, "head_with_watch").with_path(parent).with_message(message)
            })?;
            return Ok((Some(Head::new(node.clone(), data, token)), watch));
        }
    }

    /// Returns the values of the store, or `None` if the backend has none. Performs no I/O.
    ///
    /// The provided method returns `None`.
    fn values(&self) -> Option<&dyn Values> {
        None
    }

    /// Returns the groups of the store, or `None` if the backend has none. Performs no I/O.
    ///
    /// The provided method returns `None`.
    fn groups(&self) -> Option<&dyn Groups> {
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

/// The result of [`create_ephemeral_sequential`](CoordinationBackend::create_ephemeral_sequential) and
/// [`create_unlisted`](CoordinationBackend::create_unlisted).
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
    /// Nothing. Only from `create_unlisted`.
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
}

/// The result of [`hand_over`](CoordinationBackend::hand_over).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandOver {
    /// This call removed the node, and each of the nodes behind it still existed then.
    Confirmed,
    /// The node no longer exists, with this result of [`delete`](CoordinationBackend::delete). The other nodes may or may not
    /// exist.
    Unconfirmed(Deletion),
}

/// The result of [`replace_data`](CoordinationBackend::replace_data).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replaced {
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

/// Methods that return the boxed future of the inner backend, because `async` would box it once more.
macro_rules! hand_on {
    ($($name:ident<$($life:lifetime),*>($($arg:ident: $type:ty),*) -> $output:ty;)*) => {$(
        fn $name<'me, $($life,)* 'future>(
            &'me self,
            $($arg: $type,)*
        ) -> Pin<Box<dyn Future<Output = Result<$output>> + Send + 'future>>
        where
            'me: 'future,
            $($life: 'future,)*
            Self: 'future,
        {
            (**self).$name($($arg),*)
        }
    )*};
}

macro_rules! forward {
    ($($wrapper:ident),*) => {$(
        #[deny(clippy::missing_trait_methods)]
        impl<B: CoordinationBackend + ?Sized> CoordinationBackend for $wrapper<B> {
            hand_on! {
                create_ephemeral_sequential<'a, 'b, 'c>(
                    parent: &'a LockPath,
                    label: Label,
                    node_id: &'b NodeId,
                    data: &'c [u8]
                ) -> Created;
                create_unlisted<'a, 'b, 'c>(
                    parent: &'a LockPath,
                    label: Label,
                    node_id: &'b NodeId,
                    data: &'c [u8]
                ) -> Created;
                children<'a>(parent: &'a LockPath) -> Queue;
                children_up_to<'a, 'b>(parent: &'a LockPath, node: &'b Node) -> Queue;
                children_with_watch<'a>(parent: &'a LockPath) -> (Queue, Watch);
                exists_with_watch<'a, 'b>(parent: &'a LockPath, seen: &'b Node) -> Existence;
                relabel<'a, 'b>(parent: &'a LockPath, node: &'b Node, label: Label) -> Node;
                delete<'a, 'b>(parent: &'a LockPath, target: &'b Target) -> Deletion;
                hand_over<'a, 'b, 'c>(parent: &'a LockPath, node: &'b Node, next: &'c [Node]) -> HandOver;
                data<'a, 'b>(parent: &'a LockPath, node: &'b Node) -> Option<NodeData>;
                data_with_watch<'a, 'b>(parent: &'a LockPath, node: &'b Node) -> Option<(Vec<u8>, Watch)>;
                set_data<'a, 'b, 'c>(parent: &'a LockPath, node: &'b Node, data: &'c [u8]) -> ();
                replace_data<'a, 'b, 'c>(parent: &'a LockPath, node: &'b Node, writes: u64, data: &'c [u8])
                    -> Replaced;
                head_with_watch<'a>(parent: &'a LockPath) -> (Option<Head>, Watch);
                close<>() -> Close;
            }

            fn values(&self) -> Option<&dyn Values> {
                (**self).values()
            }

            fn groups(&self) -> Option<&dyn Groups> {
                (**self).groups()
            }

            fn session_events(&self) -> SessionEvents {
                (**self).session_events()
            }

            fn background(&self) -> Background {
                (**self).background()
            }
        }
    )*};
}

forward!(Arc, Box);
