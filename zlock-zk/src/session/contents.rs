//! The known contents of own nodes, which a rename has to write again.

use std::sync::Arc;

/// A node's data at a version of the node.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    pub(crate) data: Arc<[u8]>,
    pub(crate) version: i32,
}

impl Contents {
    /// Creates the contents of a new node.
    pub(crate) fn new(data: impl Into<Arc<[u8]>>) -> Self {
        Contents { data: data.into(), version: 0 }
    }
}
