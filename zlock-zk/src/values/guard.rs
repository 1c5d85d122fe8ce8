//! The node of a lock that a write releases.

use std::sync::Arc;

use zlock_core::kit::SessionKey;
use zlock_core::{GuardNode, Node, NodeId};

use crate::session::{Shared, own_id};

/// The guard of a write that deletes it.
pub(super) struct DeletedGuard {
    /// The ID by which the session knows the node.
    pub(super) own_id: NodeId,
    /// The lock's path at the server.
    parent: Arc<str>,
    node: Node,
}

impl DeletedGuard {
    pub(super) fn new(shared: &Shared, guard: &GuardNode, node: &Node) -> Self {
        let parent = shared.options.server_path(&guard.parent);
        DeletedGuard { own_id: own_id(&parent, &node.id), parent, node: node.clone() }
    }

    /// Records that the write was answered, and has deleted the node.
    pub(super) fn deleted(&self, shared: &Shared, session: SessionKey) {
        shared.sessions.own().remove(&self.own_id);
        shared.contents.remove(&self.own_id);
        shared.names.remove(&self.own_id);
        shared.alone.removed(&self.parent, session, &self.node);
    }
}
