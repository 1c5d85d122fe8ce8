//! Nodes: places in a lock's queue.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use crate::label::Label;
use crate::name::{NodeName, is_uuid};
use crate::sequence::{Sequence, rotate_to_oldest};
use crate::session::SessionId;

/// Who made a node. Ours are UUIDs, made new for each create; equal tokens mean the same place in the queue,
/// whatever its label is by now.
///
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(Arc<str>);

impl Token {
    /// A token read from a store.
    #[must_use]
    pub fn new(token: impl Into<Arc<str>>) -> Self {
        Token(token.into())
    }

    /// The token as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a UUID: only such a token can be read back from the name of a node that is made with it.
    #[must_use]
    pub fn is_uuid(&self) -> bool {
        is_uuid(&self.0)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A number that grows with every acquisition over the life of the store, also when the lock's path is
/// removed and made again: ZooKeeper's `czxid`, etcd's create revision, the mem server's transaction number.
///
/// Hand it to the storage that the lock protects, and let the storage refuse a number below the highest it
/// has seen: that is what makes a holder harmless that does not know yet that it has lost the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FencingToken(u64);

impl FencingToken {
    /// A token of this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        FencingToken(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One place in a lock's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name under the lock's path (on etcd: the last part of its key).
    pub name: NodeName,
    /// Who made it.
    pub token: Token,
    /// What it asks for.
    pub label: Label,
    /// Its place.
    pub sequence: Sequence,
    /// The session that owns it. Filled for own nodes; for others where a listing tells it at no cost.
    pub session: Option<SessionId>,
    /// Its fencing token. Filled as `session` is.
    pub fencing_token: Option<FencingToken>,
}

impl Node {
    /// Reads a listed name; `None` for a foreign one. Owner and fencing token are left open.
    #[must_use]
    pub fn listed(name: &str) -> Option<Node> {
        let parsed = NodeName::parse(name)?;
        Some(Node {
            name: NodeName::new(name),
            token: parsed.token,
            label: parsed.label,
            sequence: parsed.sequence,
            session: None,
            fencing_token: None,
        })
    }
}

/// What a store tells of a node when its data is read.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeData {
    /// The bytes that were written last.
    pub data: Vec<u8>,
    /// The session that owns the node; none if it is no session's.
    pub session: Option<SessionId>,
    /// When the node was made, if the store tells: by the clock of a server, which is not ours. To be shown, and
    /// nothing to decide by.
    pub created: Option<SystemTime>,
}

impl NodeData {
    /// Data of a node of this session, on a store that does not tell when the node was made.
    #[must_use]
    pub fn new(data: Vec<u8>, session: Option<SessionId>) -> Self {
        NodeData { data, session, created: None }
    }

    /// The same, made at this time.
    #[must_use]
    pub fn with_created(mut self, created: SystemTime) -> Self {
        self.created = Some(created);
        self
    }
}

/// The nodes of one lock, first in line first. Foreign names are not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue(Vec<Node>);

impl Queue {
    /// Orders nodes whose sequences never wrap (etcd's revisions).
    #[must_use]
    pub fn linear(mut nodes: Vec<Node>) -> Self {
        nodes.sort_unstable_by(|a, b| (a.sequence, &a.name).cmp(&(b.sequence, &b.name)));
        Queue(nodes)
    }

    /// Orders nodes whose sequences are signed 32-bit and wrap (ZooKeeper's, mem's).
    #[must_use]
    pub fn wrapping(nodes: Vec<Node>) -> Self {
        let Queue(mut nodes) = Queue::linear(nodes);
        rotate_to_oldest(&mut nodes, |n| n.sequence);
        Queue(nodes)
    }

    /// Reads listed names and orders them with [`Queue::wrapping`]; foreign names are left out.
    #[must_use]
    pub fn of_names<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Self {
        Queue::wrapping(names.into_iter().filter_map(|n| Node::listed(n.as_ref())).collect())
    }

    /// The place of the node with this token.
    #[must_use]
    pub fn position(&self, token: &Token) -> Option<usize> {
        self.0.iter().position(|n| n.token == *token)
    }

    /// The node with this token.
    #[must_use]
    pub fn find(&self, token: &Token) -> Option<&Node> {
        self.0.iter().find(|n| n.token == *token)
    }

    /// The nodes as a vector, in order.
    #[must_use]
    pub fn into_vec(self) -> Vec<Node> {
        self.0
    }
}

impl std::ops::Deref for Queue {
    type Target = [Node];

    fn deref(&self) -> &[Node] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_in_order_and_leaves_foreign_names_out() {
        let queue = Queue::of_names(["lock--2147483648", "db", "lock-2147483647", "lock-2147483646"]);
        let names: Vec<_> = queue.iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names, ["lock-2147483646", "lock-2147483647", "lock--2147483648"]);
        assert_eq!(queue.position(&Token::new("lock--2147483648")), Some(2));
        assert_eq!(queue.find(&Token::new("db")), None);
    }
}
