//! Requests of clients, and the server's responses.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::oneshot;
use zlock_core::{
    GuardNode, LockPath, NodeData, NodeId, SessionId, Value, Version, WatchEvent, WriteOutcome,
};

use crate::tree::{Child, split};

/// A kind of request, as the server counts it. Requests are divided as on ZooKeeper, so that what costs three requests
/// here costs three there.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Opens a session, or resumes one on a new connection.
    Connect,
    /// Keeps a session alive and lists its nodes.
    Heartbeat,
    /// Ends a session.
    Close,
    /// Creates missing parents. Sent after a create has found none.
    CreateParents,
    /// Appends a node.
    Create,
    /// Lists a queue, with or without a watch.
    List,
    /// Looks up one node and watches it.
    Watch,
    /// Changes the label of a node.
    Relabel,
    /// Deletes a node. A hand-over does so only while the nodes behind it exist.
    Delete,
    /// Reads a node's data, with or without a watch.
    Data,
    /// Writes a node's data.
    SetData,
    /// Reads a value, with or without a watch.
    Value,
    /// Writes a value.
    WriteValue,
    /// Makes a session the owner of a member of a group.
    Join,
    /// Removes a member of a group.
    Leave,
    /// Removes a watch that has not fired.
    RemoveWatch,
}

/// A watch as requested by its client: the number that the client has given it, and the receiver of the event.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) id: u64,
    pub(crate) to: oneshot::Sender<WatchEvent>,
}

/// A write of a value.
#[derive(Debug)]
pub(crate) struct ValueWrite {
    pub(crate) path: LockPath,
    pub(crate) expected: Option<Version>,
    pub(crate) data: Vec<u8>,
    pub(crate) guard: Option<GuardNode>,
    /// The number of the receipt, and the ID of the write.
    pub(crate) receipt: (u32, u64),
}

#[derive(Debug)]
pub(crate) enum Request {
    /// Opens a session. The client's previous session is closed first if it still lives.
    Connect {
        timeout: Duration,
    },
    Resume,
    Heartbeat,
    Close,
    CreateParents {
        parent: LockPath,
    },
    Create {
        parent: LockPath,
        prefix: String,
        data: Vec<u8>,
    },
    List {
        parent: LockPath,
        watcher: Option<Watcher>,
    },
    Watch {
        parent: LockPath,
        name: String,
        watcher: Watcher,
    },
    Relabel {
        parent: LockPath,
        from: String,
        to: String,
    },
    /// A no-op if the node or `next` does not exist.
    Delete {
        parent: LockPath,
        name: String,
        next: Option<String>,
    },
    Data {
        parent: LockPath,
        name: String,
        watcher: Option<Watcher>,
    },
    SetData {
        parent: LockPath,
        name: String,
        data: Vec<u8>,
        /// How often the data must have been written.
        writes: Option<u64>,
    },
    Value {
        path: LockPath,
        watcher: Option<Watcher>,
    },
    WriteValue(Box<ValueWrite>),
    Join {
        member: LockPath,
        data: Vec<u8>,
        /// Whether the member of another session is replaced.
        replaces: bool,
    },
    /// A no-op if another session owns the member.
    Leave {
        member: LockPath,
    },
}

impl Request {
    pub(crate) fn operation(&self) -> Operation {
        match self {
            Request::Connect { .. } | Request::Resume => Operation::Connect,
            Request::Heartbeat => Operation::Heartbeat,
            Request::Close => Operation::Close,
            Request::CreateParents { .. } => Operation::CreateParents,
            Request::Create { .. } => Operation::Create,
            Request::List { .. } => Operation::List,
            Request::Watch { .. } => Operation::Watch,
            Request::Relabel { .. } => Operation::Relabel,
            Request::Delete { .. } => Operation::Delete,
            Request::Data { .. } => Operation::Data,
            Request::SetData { .. } => Operation::SetData,
            Request::Value { .. } => Operation::Value,
            Request::WriteValue(_) => Operation::WriteValue,
            Request::Join { .. } => Operation::Join,
            Request::Leave { .. } => Operation::Leave,
        }
    }

    /// Returns the path below which it creates a node.
    pub(crate) fn creates_below(&self) -> Option<&str> {
        match self {
            Request::CreateParents { parent } | Request::Create { parent, .. } => Some(parent.as_str()),
            Request::Join { member: path, .. } => Some(split(path.as_str()).0),
            Request::WriteValue(write) => Some(split(write.path.as_str()).0),
            _ => None,
        }
    }

    pub(crate) fn parent(&self) -> Option<&LockPath> {
        match self {
            Request::Connect { .. } | Request::Resume | Request::Heartbeat | Request::Close => None,
            Request::CreateParents { parent }
            | Request::Create { parent, .. }
            | Request::List { parent, .. }
            | Request::Watch { parent, .. }
            | Request::Relabel { parent, .. }
            | Request::Delete { parent, .. }
            | Request::Data { parent, .. }
            | Request::SetData { parent, .. } => Some(parent),
            Request::Value { path, .. } => Some(path),
            Request::Join { member, .. } | Request::Leave { member } => Some(member),
            Request::WriteValue(write) => Some(&write.path),
        }
    }

    /// Returns `true` if it opens a connection.
    pub(crate) fn connects(&self) -> bool {
        self.operation() == Operation::Connect
    }

    /// Returns `true` if a lost answer leaves the state of a node unknown.
    pub(crate) fn writes(&self) -> bool {
        matches!(
            self.operation(),
            Operation::Create
                | Operation::Relabel
                | Operation::Delete
                | Operation::SetData
                | Operation::WriteValue
                | Operation::Join
                | Operation::Leave
        )
    }
}

#[derive(Debug)]
pub(crate) enum Answer {
    Session(SessionId),
    SessionOver,
    Done,
    NoNode,
    Created {
        name: String,
        transaction: u64,
    },
    Children(Vec<Child>),
    NodeIds(BTreeSet<NodeId>),
    Data(NodeData),
    /// The data has been written another number of times.
    Written {
        writes: u64,
        data: Vec<u8>,
    },
    Value(Option<Value>),
    /// The node is not a value.
    NoValue,
    /// The path is below the node of a session, which cannot have children.
    NoChildren,
    WroteValue(WriteOutcome),
    /// The session owns the member, which this transaction created.
    Joined(u64),
    /// This session owns the member.
    Taken(Option<SessionId>),
}

/// A request in flight, and the receiver of its answer. Dropping it reports that the connection broke.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) session: Option<SessionId>,
    pub(crate) request: Request,
    pub(crate) to: oneshot::Sender<Answer>,
}
