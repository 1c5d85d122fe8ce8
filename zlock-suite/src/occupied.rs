//! A store on which another client holds some of the permits.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use zlock_core::{CoordinationBackend, Label, LockPath, Needs, NodeIds, NodeName, Result};

use crate::wrapped::Call;
use crate::wrapped::{Around, Wrapped};
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
                let (backend, data, needs) = (&this.backend, b"occupant", Needs::Queue);
                let create = backend.create_ephemeral_sequential(path, this.label, &node_id, data, needs);
                let name = create.await?.node.name;
                place.insert(name);
            }
            Ok(())
        });
        taking.await.expect("the occupant")
    }
}

/// Makes sure that a path is occupied before it is used.
impl Around for Arc<Occupant> {
    async fn around<T: Send>(
        &self,
        call: Call,
        path: &LockPath,
        inner: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        if matches!(call, Call::Create | Call::Children) {
            self.take(path).await?;
        }
        inner.await
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
        Connection { backend: Arc::new(Wrapped { inner: backend, around: occupant }), key }
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

impl std::fmt::Debug for Occupant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Occupant").finish_non_exhaustive()
    }
}
