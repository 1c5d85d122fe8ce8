//! What own nodes contain, as far as we know: a relabel has to write it again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_client::KeyValue;
use zlock_core::{Label, NodeId, OwnNodes};

use crate::value;

/// A node's label and data at a revision of its key.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    pub(crate) label: Label,
    pub(crate) data: Arc<[u8]>,
    pub(crate) revision: i64,
}

impl Contents {
    pub(crate) fn of(kv: &KeyValue) -> Self {
        let value::Value { label, data } = value::read(kv.value());
        Contents { label, data: data.into(), revision: kv.mod_revision() }
    }
}

/// The contents of own nodes whose label may be changed.
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
