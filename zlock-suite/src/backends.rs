//! What the cases of the contract do with backends.

use std::sync::Arc;

use zlock_core::{Created, CreatedQueue, Label, LockPath, Needs, Node, NodeId, Queue, Session, SessionState};

use crate::case::lock;
use crate::{Case, Connection};

impl Case<'_> {
    /// Connects a backend.
    pub async fn connect(&self) -> Connection {
        self.opened(self.store.connect().await)
    }

    /// Creates a backend without a session, see [`Links::connect_cut`](crate::Links::connect_cut).
    pub async fn connect_cut(&self) -> Connection {
        self.opened(self.links().connect_cut().await)
    }

    fn opened(&self, connection: Connection) -> Connection {
        lock(&self.backends).push(Arc::downgrade(&connection.backend));
        connection
    }

    /// Returns a new node ID.
    pub fn node_id(&self) -> NodeId {
        self.node_ids.next()
    }

    /// Appends a node.
    pub async fn create(&self, backend: &Connection, path: &LockPath, label: Label) -> Created {
        backend
            .create_ephemeral_sequential(path, label, &self.node_id(), b"data", Needs::Queue)
            .await
            .expect("create_ephemeral_sequential")
    }

    /// Returns the queue that a create shows, which `create_ephemeral_sequential` does in every case.
    pub fn queue(&self, created: &Created) -> Queue {
        match &created.queue {
            CreatedQueue::Listed(queue) => queue.clone(),
            CreatedQueue::Alone => Queue::linear(vec![created.node.clone()]),
            CreatedQueue::Unlisted => panic!("no queue: {created:?}"),
        }
    }

    /// Returns the data of a node, as read by this backend.
    pub async fn data(&self, backend: &Connection, path: &LockPath, node: &Node) -> Option<Vec<u8>> {
        backend.data(path, node).await.expect("data").map(|node| node.data)
    }

    /// Creates a child directly at the server. It is removed after the case.
    pub async fn put(&self, parent: &LockPath, name: &str) {
        lock(&self.by_hand).push((parent.clone(), name.into()));
        self.store.put(parent, name).await;
    }

    /// Returns the number of watches under this case's root.
    pub async fn watches(&self) -> usize {
        self.store.watches(self.root()).await.expect("the group `watches` needs Store::watches")
    }

    /// Returns `true` if the server has exactly these nodes under `path`.
    pub async fn has(&self, path: &LockPath, nodes: &[&Node]) -> bool {
        let mut names = self.store.names(path).await;
        names.sort_unstable();
        let mut expected: Vec<_> = nodes.iter().map(|n| n.name.as_str()).collect();
        expected.sort_unstable();
        names == expected
    }

    /// Waits until the server has exactly these nodes under `path`.
    pub async fn until_has(&self, path: &LockPath, nodes: &[&Node]) {
        self.until(&format!("the nodes {nodes:?} under {path}"), async || self.has(path, nodes).await).await;
    }

    /// Waits until the backend is connected, in an epoch not below this one.
    pub async fn connected(&self, backend: &Connection, epoch: u64) -> Session {
        let mut events = backend.session_events();
        loop {
            let session = events.current();
            if session.epoch >= epoch && session.state == SessionState::Connected {
                return session;
            }
            assert!(!matches!(session.state, SessionState::Closed(_)), "closed by itself: {session:?}");
            events.changed().await;
        }
    }
}
