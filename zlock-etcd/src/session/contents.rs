//! The known contents of own nodes, which a relabel has to write again.

use std::sync::Arc;

use etcd_client::KeyValue;
use zlock_core::Label;

use crate::keys::value;

/// A node's label and data at a revision of its key.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    pub(crate) label: Label,
    pub(crate) data: Arc<[u8]>,
    pub(crate) revision: i64,
}

impl Contents {
    /// Returns the contents of a node's key.
    pub(crate) fn of(kv: &KeyValue) -> Self {
        let value::Value { label, data, .. } = value::read(kv.value());
        Contents { label, data: data.into(), revision: kv.mod_revision() }
    }
}
