//! The contents of own nodes.

use std::collections::BTreeMap;

use crate::mutex::Mutex;
use crate::nodes::node_id::NodeId;
use crate::nodes::own_nodes::OwnNodes;

/// The known contents of own nodes, for a store on which a relabel writes them again.
///
/// Other clients may write a node's data, too. So `C` is the data with the version at which it was read or written, and
/// the relabel is conditional on that version.
#[derive(Debug)]
pub struct OwnContents<C>(Mutex<BTreeMap<NodeId, C>>);

impl<C: Clone> OwnContents<C> {
    /// Records the contents of a node.
    pub fn insert(&self, node_id: &NodeId, contents: C) {
        self.0.lock().insert(node_id.clone(), contents);
    }

    /// Returns the contents of a node, or `None` if they are not known.
    #[must_use]
    pub fn get(&self, node_id: &NodeId) -> Option<C> {
        self.0.lock().get(node_id).cloned()
    }

    /// Forgets the contents of a node.
    pub fn remove(&self, node_id: &NodeId) {
        self.0.lock().remove(node_id);
    }

    /// Forgets the contents of nodes that are no longer among `own`.
    pub fn retain(&self, own: &OwnNodes) {
        self.0.lock().retain(|node_id, _| own.contains(node_id));
    }
}

/// Creates an empty map.
impl<C> Default for OwnContents<C> {
    fn default() -> Self {
        OwnContents(Mutex::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_own_nodes_only() {
        let (own, contents) = (OwnNodes::default(), OwnContents::default());
        let [one, two, three] = ["one", "two", "three"].map(NodeId::new);
        let _notice = own.insert(&one);
        for (node_id, content) in [(&one, 1), (&two, 2), (&three, 3), (&one, 4)] {
            contents.insert(node_id, content);
        }
        contents.remove(&three);
        assert_eq!([&one, &two, &three].map(|node_id| contents.get(node_id)), [Some(4), Some(2), None]);
        contents.retain(&own);
        assert_eq!([&one, &two].map(|node_id| contents.get(node_id)), [Some(4), None]);
    }
}
