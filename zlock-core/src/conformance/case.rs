//! Runs one case, and checks what it leaves behind.

use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::conformance::{Connection, Links, Store};
use crate::contract::backend::{CoordinationBackend, Created, CreatedQueue};
use crate::nodes::label::Label;
use crate::nodes::node::Node;
use crate::nodes::node_id::NodeId;
use crate::nodes::node_id::NodeIds;
use crate::nodes::path::LockPath;
use crate::nodes::queue::Queue;
use crate::session::{Session, SessionState};

/// Long enough for a request to a server that answers, and short compared with a session timeout.
pub(crate) const MOMENT: Duration = Duration::from_millis(200);

/// Runs a case on a store, under a timeout, and checks that it left nothing behind. `None` is an unavailable store: the case
/// is skipped, and the caller must have reported that to the user.
pub async fn run<S: Store>(store: Option<S>, name: &str, case: impl AsyncFnOnce(&Case<'_>)) {
    let Some(store) = store else { return };
    let limit = Duration::from_secs(60) + 10 * store.session_timeout();
    let ended = timeout(limit, async {
        let run = Case::new(&store);
        case(&run).await;
        run.look_behind().await;
    });
    assert!(ended.await.is_ok(), "{name} hangs: not done after {limit:?}");
}

/// The environment of a case: a store, its own root, and the backends that it opened.
pub struct Case<'a> {
    /// The store under test.
    pub store: &'a dyn Store,
    root: LockPath,
    node_ids: NodeIds,
    opened: Mutex<Vec<Weak<dyn CoordinationBackend>>>,
    paths: Mutex<Vec<LockPath>>,
    by_hand: Mutex<Vec<(LockPath, String)>>,
}

impl<'a> Case<'a> {
    fn new(store: &'a dyn Store) -> Self {
        Case {
            store,
            root: store.root(),
            node_ids: NodeIds::random(),
            opened: Mutex::default(),
            paths: Mutex::default(),
            by_hand: Mutex::default(),
        }
    }

    /// Connects a backend.
    pub async fn connect(&self) -> Connection {
        self.opened(self.store.connect().await)
    }

    /// Creates a backend without a session, see [`Links::connect_cut`].
    pub async fn connect_cut(&self) -> Connection {
        self.opened(self.links().connect_cut().await)
    }

    fn opened(&self, connection: Connection) -> Connection {
        lock(&self.opened).push(std::sync::Arc::downgrade(&connection.backend));
        connection
    }

    /// Returns the path of a lock under this case's root.
    pub fn path(&self, name: &str) -> LockPath {
        let path = self.root.join(name).expect("a case's path");
        lock(&self.paths).push(path.clone());
        path
    }

    /// Returns a new node ID.
    pub fn node_id(&self) -> NodeId {
        self.node_ids.next()
    }

    /// Appends a node.
    pub async fn create(&self, backend: &Connection, path: &LockPath, label: Label) -> Created {
        backend
            .create_ephemeral_sequential(path, label, &self.node_id(), b"data")
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

    /// Returns the store's links.
    pub fn links(&self) -> &'a dyn Links {
        self.store.links().expect("the group `links` needs Store::links")
    }

    /// Returns the number of watches under this case's root.
    pub async fn watches(&self) -> usize {
        self.store.watches(&self.root).await.expect("the group `watches` needs Store::watches")
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

    /// Waits for a condition that must become true within a session timeout and some time for slow machines.
    pub async fn until(&self, what: &str, mut is: impl AsyncFnMut() -> bool) {
        let limit = 2 * self.store.session_timeout() + Duration::from_secs(10);
        let found = timeout(limit, async {
            while !is().await {
                sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(found.await.is_ok(), "not after {limit:?}: {what}");
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

    async fn look_behind(&self) {
        self.until("no watch left", async || matches!(self.store.watches(&self.root).await, None | Some(0)))
            .await;
        let opened: Vec<_> = lock(&self.opened).iter().filter_map(Weak::upgrade).collect();
        for backend in opened {
            backend.close().await.expect("close");
        }
        let by_hand = std::mem::take(&mut *lock(&self.by_hand));
        for (parent, name) in by_hand {
            self.store.remove(&parent, &name).await;
        }
        let paths = std::mem::take(&mut *lock(&self.paths));
        for path in paths {
            self.until(&format!("no node left under {path}"), async || {
                self.store.names(&path).await.is_empty()
            })
            .await;
        }
    }
}

impl std::fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("root", &self.root).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
