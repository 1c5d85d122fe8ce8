//! The three designs on the in-memory server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use zlock::backend::{CoordinationBackend, Existence, Label, Needs, Node, NodeIds, Target};
use zlock::mem::{MemBackend, MemServer};
use zlock::{Client, LockPath};

use super::{Contender, Counts, Design, Mutex, Result, Store};

pub(crate) struct Mem {
    server: MemServer,
    /// Requests that are made by hand, and that the server does not count.
    by_hand: Arc<AtomicU64>,
    tokens: Arc<NodeIds>,
}

impl Mem {
    pub(crate) fn new() -> Result<Self> {
        Ok(Mem { server: MemServer::new(), by_hand: Arc::default(), tokens: Arc::new(NodeIds::random()) })
    }
}

#[async_trait]
impl Store for Mem {
    async fn contender(&self, design: Design) -> Result<Box<dyn Contender>> {
        let backend = self.server.connect();
        Ok(match design {
            Design::OneName => Box::new(OneName {
                server: self.server.clone(),
                by_hand: self.by_hand.clone(),
                backend,
                path: LockPath::new("/one-name")?,
            }),
            Design::WatchParent => Box::new(WatchParent {
                backend,
                tokens: self.tokens.clone(),
                path: LockPath::new("/watch-parent")?,
                node: None,
            }),
            Design::WatchPredecessor => Box::new(Mutex::new(&Client::new(backend))?),
        })
    }

    async fn counts(&self) -> Result<Counts> {
        let requests = self.server.request_counts().values().sum::<u64>();
        Ok(Counts {
            notifications: self.server.fired_watches(),
            requests: requests + self.by_hand.load(Ordering::Relaxed),
            watches: self.server.watches() as u64,
        })
    }
}

/// All create the same node. The tree itself takes it: a queue would give each a node of its own.
struct OneName {
    server: MemServer,
    by_hand: Arc<AtomicU64>,
    backend: MemBackend,
    path: LockPath,
}

impl OneName {
    const NAME: &str = "lock-0000000000";

    /// One request: makes the node unless it is there.
    fn create(&self) -> bool {
        self.by_hand.fetch_add(1, Ordering::Relaxed);
        let free = self.server.names(&self.path).is_empty();
        if free {
            self.server.put(&self.path, Self::NAME, b"");
        }
        free
    }
}

#[async_trait]
impl Contender for OneName {
    async fn acquire(&mut self) -> Result {
        let node = Node::listed(Self::NAME).ok_or("no name of a node")?;
        while !self.create() {
            if let Existence::Watching(watch) = self.backend.exists_with_watch(&self.path, &node).await? {
                watch.await;
            }
        }
        Ok(())
    }

    async fn release(&mut self) -> Result {
        self.by_hand.fetch_add(1, Ordering::Relaxed);
        self.server.remove(&self.path, Self::NAME);
        Ok(())
    }
}

/// A node each; everybody watches the queue.
struct WatchParent {
    backend: MemBackend,
    tokens: Arc<NodeIds>,
    path: LockPath,
    node: Option<Node>,
}

#[async_trait]
impl Contender for WatchParent {
    async fn acquire(&mut self) -> Result {
        let token = self.tokens.next();
        let created = self
            .backend
            .create_ephemeral_sequential(&self.path, Label::Lock, &token, b"", Needs::Queue)
            .await?;
        self.node = Some(created.node);
        loop {
            let (queue, watch) = self.backend.children_with_watch(&self.path).await?;
            if queue.first().is_some_and(|node| node.id == token) {
                return Ok(());
            }
            watch.await;
        }
    }

    async fn release(&mut self) -> Result {
        let node = self.node.take().ok_or("not held")?;
        self.backend.delete(&self.path, &Target::Node(node), None).await?;
        Ok(())
    }
}
