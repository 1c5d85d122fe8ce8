//! What own nodes contain, as far as we know: a rename has to write it again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zlock_core::{NodeId, OwnNodes};

/// A node's data at a version of the node.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    pub(crate) data: Arc<[u8]>,
    pub(crate) version: i32,
}

impl Contents {
    /// Those of a node just made.
    pub(crate) fn new(data: impl Into<Arc<[u8]>>) -> Self {
        Contents { data: data.into(), version: 0 }
    }
}

/// The contents of own nodes whose label may be changed, by their [`own_id`](crate::session::own_id).
#[derive(Debug, Default)]
pub(crate) struct OwnContents(Mutex<BTreeMap<NodeId, Contents>>);

impl OwnContents {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Contents>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, id: &NodeId, contents: Contents) {
        self.lock().insert(id.clone(), contents);
    }

    pub(crate) fn get(&self, id: &NodeId) -> Option<Contents> {
        self.lock().get(id).cloned()
    }

    pub(crate) fn remove(&self, id: &NodeId) {
        self.lock().remove(id);
    }

    /// Forgets those of nodes that nobody answers for any more.
    pub(crate) fn retain(&self, own: &OwnNodes) {
        self.lock().retain(|id, _| own.contains(id));
    }
}
