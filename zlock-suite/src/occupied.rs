//! A store on which another client holds some of the permits.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use zlock_core::{
    Background, Close, CoordinationBackend, Created, Deletion, Existence, Groups, HandOver, Head, Label,
    LockPath, Node, NodeData, NodeId, NodeIds, NodeName, Queue, Replaced, Result, SessionEvents, Target,
    Values, Watch,
};

use crate::{Connection, Links, Store};

/// A store on which a separate client takes some permits on each path before any other client uses it. [`Store::names`] hides
/// its nodes, so that a semaphore with the remaining permits can be checked as if it had no others.
pub struct Occupied<S> {
    store: S,
    occupant: Arc<Occupant>,
}

struct Occupant {
    backend: Arc<dyn CoordinationBackend>,
    label: Label,
    node_ids: NodeIds,
    taken: Mutex<BTreeMap<LockPath, NodeName>>,
}

impl Occupant {
    /// Takes the permits of this path once.
    async fn take(self: &Arc<Self>, path: &LockPath) -> Result<()> {
        let (this, path) = (self.clone(), path.clone());
        // In a separate task, because the caller may be dropped.
        let taking = tokio::spawn(async move {
            let mut taken = this.taken.lock().await;
            if let Entry::Vacant(place) = taken.entry(path) {
                let (path, node_id) = (place.key(), this.node_ids.next());
                let create =
                    this.backend.create_ephemeral_sequential(path, this.label, &node_id, b"occupant");
                let name = create.await?.node.name;
                place.insert(name);
            }
            Ok(())
        });
        taking.await.expect("the occupant")
    }
}

impl<S: Store> Occupied<S> {
    /// Takes `weight` of `max` permits on every path on which permits are acquired.
    pub async fn new(store: S, weight: u32, max: u32) -> Self {
        let backend = store.connect().await.backend;
        let label = Label::Permits { weight, max, granted: true };
        let occupant = Occupant { backend, label, node_ids: NodeIds::random(), taken: Mutex::default() };
        Occupied { store, occupant: Arc::new(occupant) }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for Occupied<S> {
    async fn connect(&self) -> Connection {
        let Connection { backend, key } = self.store.connect().await;
        let occupant = self.occupant.clone();
        Connection { backend: Arc::new(Occupying { backend, occupant }), key }
    }

    fn root(&self) -> LockPath {
        self.store.root()
    }

    fn session_timeout(&self) -> Duration {
        self.store.session_timeout()
    }

    async fn names(&self, parent: &LockPath) -> Vec<String> {
        let mut names = self.store.names(parent).await;
        if let Some(occupant) = self.occupant.taken.lock().await.get(parent) {
            names.retain(|name| name != occupant.as_str());
        }
        names
    }

    async fn put(&self, parent: &LockPath, name: &str) {
        self.store.put(parent, name).await;
    }

    async fn remove(&self, parent: &LockPath, name: &str) {
        self.store.remove(parent, name).await;
    }

    async fn remove_parent(&self, parent: &LockPath) {
        self.store.remove_parent(parent).await;
    }

    async fn expire(&self, connection: &Connection) {
        self.store.expire(connection).await;
    }

    async fn watches(&self, parent: &LockPath) -> Option<usize> {
        self.store.watches(parent).await
    }

    fn most_watches(&self, processes: usize) -> usize {
        self.store.most_watches(processes)
    }

    fn watches_by_request(&self) -> bool {
        self.store.watches_by_request()
    }

    fn links(&self) -> Option<&dyn Links> {
        self.store.links()
    }
}

impl<S> std::fmt::Debug for Occupied<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Occupied").field("by", &self.occupant.label).finish_non_exhaustive()
    }
}

/// A backend that makes sure that a path is occupied before it uses the path.
#[derive(Debug)]
struct Occupying {
    backend: Arc<dyn CoordinationBackend>,
    occupant: Arc<Occupant>,
}

impl std::fmt::Debug for Occupant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Occupant").finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CoordinationBackend for Occupying {
    async fn create_ephemeral_sequential(
        &self,
        parent: &LockPath,
        label: Label,
        node_id: &NodeId,
        data: &[u8],
    ) -> Result<Created> {
        self.occupant.take(parent).await?;
        self.backend.create_ephemeral_sequential(parent, label, node_id, data).await
    }

    async fn create_unlisted(
        &self,
        parent: &LockPath,
        label: Label,
        node_id: &NodeId,
        data: &[u8],
    ) -> Result<Created> {
        self.occupant.take(parent).await?;
        self.backend.create_unlisted(parent, label, node_id, data).await
    }

    async fn children(&self, parent: &LockPath) -> Result<Queue> {
        self.occupant.take(parent).await?;
        self.backend.children(parent).await
    }

    async fn children_up_to(&self, parent: &LockPath, node: &Node) -> Result<Queue> {
        self.backend.children_up_to(parent, node).await
    }

    async fn children_with_watch(&self, parent: &LockPath) -> Result<(Queue, Watch)> {
        self.backend.children_with_watch(parent).await
    }

    async fn exists_with_watch(&self, parent: &LockPath, seen: &Node) -> Result<Existence> {
        self.backend.exists_with_watch(parent, seen).await
    }

    async fn relabel(&self, parent: &LockPath, node: &Node, label: Label) -> Result<Node> {
        self.backend.relabel(parent, node, label).await
    }

    async fn delete(&self, parent: &LockPath, target: &Target) -> Result<Deletion> {
        self.backend.delete(parent, target).await
    }

    async fn hand_over(&self, parent: &LockPath, node: &Node, next: &[Node]) -> Result<HandOver> {
        self.backend.hand_over(parent, node, next).await
    }

    async fn data(&self, parent: &LockPath, node: &Node) -> Result<Option<NodeData>> {
        self.backend.data(parent, node).await
    }

    async fn data_with_watch(&self, parent: &LockPath, node: &Node) -> Result<Option<(Vec<u8>, Watch)>> {
        self.backend.data_with_watch(parent, node).await
    }

    async fn replace_data(
        &self,
        parent: &LockPath,
        node: &Node,
        writes: u64,
        data: &[u8],
    ) -> Result<Replaced> {
        self.backend.replace_data(parent, node, writes, data).await
    }

    async fn head_with_watch(&self, parent: &LockPath) -> Result<(Option<Head>, Watch)> {
        self.backend.head_with_watch(parent).await
    }

    async fn set_data(&self, parent: &LockPath, node: &Node, data: &[u8]) -> Result<()> {
        self.backend.set_data(parent, node, data).await
    }

    fn values(&self) -> Option<&dyn Values> {
        self.backend.values()
    }

    fn groups(&self) -> Option<&dyn Groups> {
        self.backend.groups()
    }

    fn session_events(&self) -> SessionEvents {
        self.backend.session_events()
    }

    fn background(&self) -> Background {
        self.backend.background()
    }

    async fn close(&self) -> Result<Close> {
        self.backend.close().await
    }
}
