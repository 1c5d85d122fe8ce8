//! The contract between recipes and stores.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

use crate::background::Background;
use crate::error::Result;
use crate::label::Label;
use crate::node::{Node, NodeData, NodeId};
use crate::own_nodes::DeletionNotice;
use crate::path::LockPath;
use crate::queue::Queue;
use crate::session::SessionEvents;
use crate::watch::Watch;

/// A coordination store, seen through one session with it.
///
/// All recipes are written against this trait; implement it, run the `conformance` suite, and they work.
///
/// # Retries
/// An operation retries inside itself, by the backend's policy and within one budget of time, and returns
/// only what it could not mend. A caller never repeats it. An operation that is called while there is no
/// session waits for one, within the same budget. It [notes](crate::LastFailure::note) each failure that it
/// retries, so that a caller with less time can name the cause.
///
/// # Sessions
/// A backend is one session at a time. It keeps the session alive, and when it is lost begins the next one
/// by itself, as a new *epoch* ([`Session`](crate::Session)). No operation reports success for a session that
/// was over when it was sent.
///
/// # Cancel safety
/// The future of an operation may be dropped at any time. Its request may then still take effect; only
/// [`create_ephemeral_sequential`](Self::create_ephemeral_sequential) and [`create_unlisted`](Self::create_unlisted)
/// leave something behind, which the caller takes away with [`delete`](Self::delete) by ID.
///
/// # Errors
/// All operations: `Closed` after [`close`](Self::close), at once; `NotAuthorized`; `Unavailable` when the
/// budget is used up, ambiguous for a write whose outcome is not known; `SessionLost` where an operation is
/// about a node of a session that is over; `Unexpected`.
#[async_trait]
pub trait CoordinationBackend: Debug + Send + Sync + 'static {
    /// Appends a node to the queue of `parent`, tied to the current session, and returns it with the queue
    /// as it stood at or after the create. Of that, a lock that excludes all others ([`Label::Lock`] and [`Label::Write`])
    /// may get no more than the node right before its own, and its own. `id` must be new, from [`NodeIds`](crate::NodeIds).
    ///
    /// # Behavior
    /// - A node ID that is no UUID is refused with `InvalidArgument`.
    /// - The node is at the end of the queue, behind every node that any client had seen before.
    /// - The returned queue has the node.
    /// - Missing parents are made, and may vanish by themselves once they are empty.
    /// - A parent that vanishes at any moment costs a retry, not an error.
    /// - The node belongs to the session of the returned epoch and goes when that session ends.
    /// - Fencing tokens grow with each create under one parent, also when the parent was removed in between.
    /// - An answer that was lost leaves exactly one node, and it is the one that is returned.
    /// - A node that somebody else deletes while its session lives is reported through `deletion`.
    async fn create_ephemeral_sequential(
        &self,
        parent: &LockPath,
        label: Label,
        node_id: &NodeId,
        data: &[u8],
    ) -> Result<Created>;

    /// Appends a node as [`create_ephemeral_sequential`](Self::create_ephemeral_sequential) does, for a caller that may not
    /// need the queue. A store whose numbers count every create under a parent saves the listing: then
    /// [`Created::queue`] is `None`.
    ///
    /// Consecutive numbers of such a store say that nothing was created between two nodes, as long as both are there: a
    /// [`hand_over`](Self::hand_over) of the older one that is confirmed finds both. If the older one is gone, its parent may have
    /// been removed and made again, and the numbers say nothing.
    ///
    /// The provided method is `create_ephemeral_sequential`, and always brings the queue.
    ///
    /// # Behavior
    /// - Apart from the queue, the answer is that of `create_ephemeral_sequential`.
    /// - If the queue is left out and the number is one more than that of a node that is still there, nothing was created
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

    /// The queue of `parent`, first in line first.
    ///
    /// # Behavior
    /// - A missing parent is an empty queue.
    /// - Foreign and nested children are left out.
    /// - The order is right across the wrap of a store's numbers.
    /// - It has every node that this backend was told of before it was called, and none that it was told
    ///   is gone.
    async fn children(&self, parent: &LockPath) -> Result<Queue>;

    /// The own node `node` and the node right before it in the queue of `parent`, or more of that queue. A lock that excludes
    /// all others ([`Label::Lock`] and [`Label::Write`]) needs no more to be granted.
    ///
    /// Unlike [`children`](Self::children), the answer may be an older state of the queue, but never older than what this
    /// backend has seen, including the create of `node`. Nothing ever comes in before `node`, so an older state may show too
    /// many nodes before it, and never too few.
    ///
    /// The provided method is `children`. A store that can read less, or read it where it costs less, should do so.
    ///
    /// # Behavior
    /// - The node right before `node` is not left out.
    /// - It has no node that this backend knows to be gone.
    /// - `node` is missing only if it is gone.
    async fn children_up_to(&self, parent: &LockPath, node: &Node) -> Result<Queue> {
        let _ = node;
        self.children(parent).await
    }

    /// [`children`](Self::children), and a one-shot watch on any change of the queue: a node that comes, goes
    /// or is relabelled.
    ///
    /// # Behavior
    /// - No change between the answer and the watch is lost.
    /// - A dropped watch leaves none at the server.
    /// - It works on a missing parent.
    async fn children_with_watch(&self, parent: &LockPath) -> Result<(Queue, Watch)>;

    /// Whether the node `seen` in an earlier listing is still there with the same label; if so, with a
    /// one-shot watch on its deletion and on its getting another label.
    ///
    /// # Behavior
    /// - A node that is gone is `Deleted`, and no watch is left.
    /// - A node with another label than in `seen` is `Changed`, however it was relabelled in between.
    /// - No deletion or relabel between the answer and the watch is lost.
    /// - A relabel is never reported as `Deleted`.
    /// - The watch fires, with any event, when its session ends.
    /// - A dropped watch leaves none at the server.
    async fn exists_with_watch(&self, parent: &LockPath, seen: &Node) -> Result<Existence>;

    /// Atomically gives the own node another label at the same place in the queue, and fires its watches.
    /// Returns the node as it is now; its fencing token stays that of `node`.
    ///
    /// # Behavior
    /// - The place, the ID and the session stay.
    /// - Repeating it is harmless.
    /// - A node that is gone is the error `NodeDeleted`; of a session that is over, `SessionLost`.
    /// - Its own deletion notice stays silent.
    async fn relabel(&self, parent: &LockPath, node: &Node, label: Label) -> Result<Node>;

    /// Removes exactly the node with this ID, whatever its label is by now, and returns whether this call
    /// removed it.
    ///
    /// # Behavior
    /// - A node that is gone already is `Ok`, and so is a parent that is.
    /// - A node that somebody else deleted is `AlreadyDeleted`, whatever its label was.
    /// - A node that an earlier attempt of this call may have deleted, whose answer was lost, is `Deleted`.
    /// - A relabel of the node at the same time leaves nothing behind, whichever comes first.
    /// - After a create of unknown outcome, [`Target::Id`] finds and removes what it left, if anything;
    ///   a create whose future was dropped before this call cannot take effect after its `Ok`.
    /// - It never removes another node with the same number.
    async fn delete(&self, parent: &LockPath, target: &Target) -> Result<Deletion>;

    /// Removes the own node `node` as [`delete`](Self::delete) does, and confirms that each of `next`, own nodes in the
    /// same queue, was still there when `node` was gone. None of them has a label that may be changed.
    ///
    /// A recipe that knows `node` to have held the lock, and one of `next` to be right behind it, then knows that this one
    /// holds, and sends no request to find out.
    ///
    /// The provided method deletes, and confirms nothing: then who is next looks for itself. A store that deletes one node
    /// and checks others in one request confirms it.
    ///
    /// # Behavior
    /// - The node is removed whether or not this is confirmed.
    /// - A node of `next` that is gone is not confirmed.
    /// - A removal of a node that was gone already is not confirmed, nor is one in a later session than that of `node`.
    /// - An answer that was lost costs a retry, or the confirmation.
    async fn hand_over(&self, parent: &LockPath, node: &Node, next: &[Node]) -> Result<HandOver> {
        let _ = next;
        self.delete(parent, &Target::Node(node.clone())).await.map(HandOver::Unconfirmed)
    }

    /// The data of a node, whatever its label is by now; `None` if it is gone.
    ///
    /// # Behavior
    /// - The data is what was given to the create or to the last write, byte for byte.
    /// - Everybody is told the session that owns the node.
    /// - If the time of the create is told, it stays when the data is written.
    async fn data(&self, parent: &LockPath, node: &Node) -> Result<Option<NodeData>>;

    /// [`data`](Self::data), and a one-shot watch on its change. No watch if the node is gone.
    ///
    /// # Behavior
    /// - No write and no deletion between the answer and the watch is lost.
    /// - By a relabel the watch fires or follows, and is never told that the node was `Deleted`.
    /// - The watch fires, with any event, when its session ends.
    /// - A dropped watch leaves none at the server, and takes no other one along.
    async fn data_with_watch(&self, parent: &LockPath, node: &Node) -> Result<Option<(Vec<u8>, Watch)>>;

    /// Writes the data of a node, whatever its label is by now.
    ///
    /// # Behavior
    /// - Any session may.
    /// - The label, the place and the session stay, and the node's deletion notice stays silent.
    /// - A node that is gone is the error `NodeDeleted`, and nothing is made.
    /// - A write and a relabel at the same time both take effect.
    /// - A watch of `exists_with_watch` may fire, but not with `Deleted`.
    /// - Repeating it is harmless.
    async fn set_data(&self, parent: &LockPath, node: &Node, data: &[u8]) -> Result<()>;

    /// A view of the session, and of the ones after it. Local: no request.
    ///
    /// # Behavior
    /// - The deadline is never later than the moment at which the store ends the session.
    /// - There is a deadline from the answer of a create on until the delete of the session's last node begins.
    /// - An outage shorter than the session is `Suspended`, then `Connected` in the same epoch.
    /// - A session that ended is `Lost`, then `Connected` in the next epoch.
    fn session_events(&self) -> SessionEvents;

    /// The jobs that this backend runs in the background, on the runtime that it lives on. Local: no request.
    ///
    /// # Behavior
    /// - A job that is pushed from a thread without a runtime is run.
    /// - A job that is pushed from a runtime that then ends is run.
    /// - After `close` no job is run, and none is kept.
    fn background(&self) -> Background;

    /// Ends the session at the store, with its nodes, and wakes everybody with `Closed`. Dropping the last
    /// handle does it too. Waits for the store's answer, but not for long.
    ///
    /// # Behavior
    /// - Every operation that waits or comes later ends with `Closed`.
    /// - Where the store can be reached the session's nodes are gone when this returns, with [`Close::Ended`].
    /// - Where it cannot, or does not answer, this returns [`Close::Pending`], and the nodes go when the session
    ///   expires.
    /// - Repeating it is harmless; once it has returned `Ended` it always does.
    async fn close(&self) -> Result<Close>;
}

/// The outcome of [`CoordinationBackend::close`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Close {
    /// The store has ended the session: its nodes are gone, and its locks are free.
    Ended,
    /// The store could not be reached, or has not confirmed the end in time. If it did not end the session, it does so one
    /// session timeout after it last heard from this client. Only then are the locks free.
    Pending,
}

/// The answer of [`create_ephemeral_sequential`](CoordinationBackend::create_ephemeral_sequential), and of
/// [`create_unlisted`](CoordinationBackend::create_unlisted).
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Created {
    /// The node, with session and fencing token filled.
    pub node: Node,
    /// The queue at or after the create, or as much of it as the node's label needs; it has the node. `None` only from
    /// `create_unlisted`.
    pub queue: Option<Queue>,
    /// The epoch of the session that owns the node.
    pub epoch: u64,
    /// Completes when somebody else deletes the node while its session lives.
    pub deletion: DeletionNotice,
}

impl Created {
    /// Creates the answer. The fields say what the arguments are.
    #[must_use]
    pub fn new(node: Node, queue: Queue, epoch: u64, deletion: DeletionNotice) -> Self {
        Created { node, queue: Some(queue), epoch, deletion }
    }

    /// Creates the answer of a create that did not list the queue.
    #[must_use]
    pub fn unlisted(node: Node, epoch: u64, deletion: DeletionNotice) -> Self {
        Created { node, queue: None, epoch, deletion }
    }
}

/// The answer of [`exists_with_watch`](CoordinationBackend::exists_with_watch).
#[non_exhaustive]
#[derive(Debug)]
pub enum Existence {
    /// There is no such node, and no watch is left.
    Deleted,
    /// The node has another label than was seen. No watch.
    Changed(Node),
    /// The node is as it was seen; the watch tells when that ends.
    Watching(Watch),
}

/// The answer of [`delete`](CoordinationBackend::delete).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deletion {
    /// This call deleted the node, or most likely did: the answer to one of its requests was lost, and there is no
    /// such node now.
    Deleted,
    /// There was no such node, and this call cannot have deleted it.
    AlreadyDeleted,
}

/// The answer of [`hand_over`](CoordinationBackend::hand_over).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandOver {
    /// This call removed the node, and each of the nodes behind it was still there then.
    Confirmed,
    /// The node is gone, as by [`delete`](CoordinationBackend::delete) with this answer. Nothing is known of the others.
    Unconfirmed(Deletion),
}

/// What to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A known node.
    Node(Node),
    /// Whatever a create of unknown outcome with this ID left behind.
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

/// Methods that hand on the boxed future of the inner backend: `async` would box it once more.
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
                close<>() -> Close;
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
