//! A session's own nodes, and the notice that one of them was deleted.
//!
//! A deletion is detected by comparing the nodes with a listing that a heartbeat makes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::mutex::Mutex;
use crate::nodes::node_id::NodeId;
use crate::signal::Flag;

/// Notifies the creator of a node that another client deleted it: the node no longer exists although its session is
/// live. Level-triggered. Performs no I/O.
#[derive(Clone, Debug)]
pub struct DeletionNotice(Arc<Flag>);

impl DeletionNotice {
    /// Returns `true` if the node was reported as deleted.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.0.is_raised()
    }

    /// Waits until the node is reported as deleted, or forever if it never is.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn deleted(&mut self) {
        self.0.raised().await;
    }
}

/// The nodes of a session whose deletion by another client must be reported. The listing of a heartbeat is compared by
/// ID with the nodes that were known when the heartbeat was *sent*, except for those that were being relabelled or
/// deleted at any time since.
#[derive(Debug, Default)]
pub struct OwnNodes(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    nodes: BTreeMap<NodeId, Own>,
    /// Nodes whose notices were dropped. They exist until they are deleted, and the session still owns them.
    unobserved: BTreeSet<NodeId>,
    /// Incremented by each change after which an older listing proves nothing about a node.
    clock: u64,
}

#[derive(Debug)]
struct Own {
    notice: Arc<Flag>,
    /// The value of the clock when the node was added, which is unique even among nodes of the same ID.
    made: u64,
    /// The value of the clock when the node was added or last relabelled.
    since: u64,
    /// The number of relabels in progress: one for each [`Hidden`].
    busy: u32,
}

impl Own {
    fn is_missing(&self, node_id: &NodeId, mark: u64, present: &BTreeSet<NodeId>) -> bool {
        self.busy == 0 && self.since <= mark && !present.contains(node_id)
    }
}

impl OwnNodes {
    /// Adds a node, by its ID, or a member, by its path. Call it when the response to its create has arrived.
    #[must_use = "the notice belongs into `Created`"]
    pub fn insert(&self, node_id: &NodeId) -> DeletionNotice {
        let mut state = self.0.lock();
        state.clock += 1;
        let since = state.clock;
        let notice = Arc::<Flag>::default();
        state.unobserved.remove(node_id);
        state.nodes.insert(node_id.clone(), Own { notice: notice.clone(), made: since, since, busy: 0 });
        DeletionNotice(notice)
    }

    /// Forgets a node. Call it before the node's delete is sent. The notice does not fire from then on.
    pub fn remove(&self, node_id: &NodeId) {
        let mut state = self.0.lock();
        state.nodes.remove(node_id);
        state.unobserved.remove(node_id);
    }

    /// Excludes a node from every comparison until the returned guard is dropped. Hold the guard while the node is
    /// relabelled. A node that is inserted with the same ID in the meantime is not hidden.
    #[must_use = "the node is hidden only as long as this lives"]
    pub fn hide(&self, node_id: &NodeId) -> Hidden<'_> {
        let made = self.0.lock().nodes.get_mut(node_id).map(|own| {
            own.busy += 1;
            own.made
        });
        Hidden { nodes: self, id: node_id.clone(), made }
    }

    /// Returns a mark, to be taken before the request that lists the session's nodes is sent. Also drops nodes whose
    /// notices have been dropped.
    #[must_use = "compare the listing with it"]
    pub fn mark(&self) -> u64 {
        let mut state = self.0.lock();
        let State { nodes, unobserved, clock } = &mut *state;
        nodes.retain(|node_id, own| {
            let is_observed = Arc::strong_count(&own.notice) > 1;
            if !is_observed {
                unobserved.insert(node_id.clone());
            }
            is_observed
        });
        *clock
    }

    /// Returns a mark to be taken before the request that looks up one of the session's nodes is sent, for
    /// [`report_missing`](Self::report_missing). Its cost does not depend on how many nodes there are.
    #[must_use = "compare the answer with it"]
    pub fn mark_of_look(&self) -> u64 {
        self.0.lock().clock
    }

    /// Compares a listing that was requested after `mark`, and reports nodes that were known by then and are missing as
    /// deleted.
    pub fn compare(&self, mark: u64, present: &BTreeSet<NodeId>) {
        self.compare_part(mark, present, |_| true);
    }

    /// Compares a listing of some of the session's nodes. Only a node that `listed` accepts can be reported as deleted.
    pub fn compare_part(&self, mark: u64, present: &BTreeSet<NodeId>, listed: impl Fn(&NodeId) -> bool) {
        self.0.lock().nodes.retain(|node_id, own| {
            let gone = listed(node_id) && own.is_missing(node_id, mark, present);
            if gone {
                own.notice.raise();
            }
            !gone
        });
    }

    /// Returns the nodes that [`compare`](OwnNodes::compare) would report. For a store whose listing may be stale: each
    /// of them must be looked up once more before it is [reported](OwnNodes::report_deleted).
    #[must_use]
    pub fn missing(&self, mark: u64, present: &BTreeSet<NodeId>) -> Vec<NodeId> {
        let state = self.0.lock();
        let missing = state.nodes.iter().filter(|(node_id, own)| own.is_missing(node_id, mark, present));
        missing.map(|(node_id, _)| node_id.clone()).collect()
    }

    /// Reports one of the [missing](OwnNodes::missing) nodes as deleted, unless it was added again since that `mark`.
    pub fn report_missing(&self, mark: u64, node_id: &NodeId) {
        let state = &mut *self.0.lock();
        if state.nodes.get(node_id).is_some_and(|own| own.since <= mark)
            && let Some(own) = state.nodes.remove(node_id)
        {
            own.notice.raise();
        }
    }

    /// Reports one node as deleted, for a backend that has learned of the deletion in another way.
    pub fn report_deleted(&self, node_id: &NodeId) {
        if let Some(own) = self.0.lock().nodes.remove(node_id) {
            own.notice.raise();
        }
    }

    /// Forgets every node. The end of their session is reported elsewhere.
    pub fn clear(&self) {
        let mut state = self.0.lock();
        state.nodes.clear();
        state.unobserved.clear();
    }

    /// Returns `true` if the session may own a node. That includes nodes whose notices were dropped, until they are
    /// [removed](Self::remove).
    pub(crate) fn owns_any(&self) -> bool {
        let state = self.0.lock();
        !state.nodes.is_empty() || !state.unobserved.is_empty()
    }

    /// Returns `true` if the node is in the list.
    #[must_use]
    pub fn contains(&self, node_id: &NodeId) -> bool {
        self.0.lock().nodes.contains_key(node_id)
    }

    /// Returns the IDs of all nodes in the list, in order.
    #[must_use]
    pub fn node_ids(&self) -> Vec<NodeId> {
        self.0.lock().nodes.keys().cloned().collect()
    }

    /// Returns the number of nodes in the list.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().nodes.len()
    }

    /// Returns `true` if there is no node in the list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Excludes a node from the comparisons with the session's nodes until it is dropped. Returned by [`OwnNodes::hide`].
#[derive(Debug)]
pub struct Hidden<'a> {
    nodes: &'a OwnNodes,
    id: NodeId,
    /// Which node of this ID is hidden; `None` if there was none.
    made: Option<u64>,
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        let mut state = self.nodes.0.lock();
        state.clock += 1;
        let since = state.clock;
        if let Some(own) = state.nodes.get_mut(&self.id)
            && self.made == Some(own.made)
        {
            own.busy -= 1;
            own.since = since;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_known_when_the_listing_was_sent_can_be_gone() {
        let own = OwnNodes::default();
        let (old, new) = (NodeId::new("old"), NodeId::new("new"));
        let old_notice = own.insert(&old);
        let mark = own.mark();
        let new_notice = own.insert(&new);
        own.compare(mark, &BTreeSet::new());
        assert!(old_notice.is_deleted());
        assert!(!new_notice.is_deleted());
        own.compare(own.mark(), &BTreeSet::from([new.clone()]));
        assert!(!new_notice.is_deleted());
        own.compare(own.mark(), &BTreeSet::new());
        assert!(new_notice.is_deleted());
    }

    #[test]
    fn a_relabel_under_way_or_since_hides_a_node() {
        let own = OwnNodes::default();
        let node_id = NodeId::new("t");
        let notice = own.insert(&node_id);
        let before = own.mark();
        let (hidden, also) = (own.hide(&node_id), own.hide(&node_id));
        own.compare(own.mark(), &BTreeSet::new());
        drop(hidden);
        own.compare(own.mark(), &BTreeSet::new());
        drop(also);
        own.compare(before, &BTreeSet::new());
        assert!(!notice.is_deleted());
        own.compare(own.mark(), &BTreeSet::new());
        assert!(notice.is_deleted());
    }

    #[test]
    fn a_node_that_is_inserted_while_an_earlier_one_of_its_token_is_hidden_is_not_hidden() {
        let own = OwnNodes::default();
        let node_id = NodeId::new("t");
        let nothing = own.hide(&node_id);
        let earlier = own.insert(&node_id);
        let hidden = own.hide(&node_id);
        let later = own.insert(&node_id);
        drop((nothing, hidden));
        own.compare(own.mark(), &BTreeSet::new());
        assert!(later.is_deleted() && !earlier.is_deleted());
        // And hidden in its turn.
        let again = own.insert(&node_id);
        let hidden = own.hide(&node_id);
        own.remove(&node_id);
        drop(hidden);
        assert!(own.is_empty() && !again.is_deleted());
    }

    #[test]
    fn a_listing_of_a_part_says_nothing_of_the_rest() {
        let own = OwnNodes::default();
        let notices = ["a/1", "a/2", "b/1"].map(|node_id| own.insert(&NodeId::new(node_id)));
        own.compare_part(own.mark(), &BTreeSet::from([NodeId::new("a/1")]), |t| t.as_str().starts_with("a/"));
        assert_eq!(notices.map(|notice| notice.is_deleted()), [false, true, false]);
        assert_eq!(own.node_ids(), ["a/1", "b/1"].map(NodeId::new));
    }

    #[test]
    fn missing_nodes_are_not_reported_yet() {
        let own = OwnNodes::default();
        let (here, gone) = (NodeId::new("here"), NodeId::new("gone"));
        let notices = [own.insert(&here), own.insert(&gone)];
        let mark = own.mark();
        let _new = own.insert(&NodeId::new("new"));
        assert_eq!(own.missing(mark, &BTreeSet::from([here])), std::slice::from_ref(&gone));
        assert!(notices.iter().all(|notice| !notice.is_deleted()));
        own.report_deleted(&gone);
        assert!(notices[1].is_deleted());
    }

    #[test]
    fn deleted_and_forgotten_nodes_leave_nothing() {
        let own = OwnNodes::default();
        let notice = own.insert(&NodeId::new("a"));
        own.remove(&NodeId::new("a"));
        own.compare(own.mark(), &BTreeSet::new());
        assert!(!notice.is_deleted());
        drop(own.insert(&NodeId::new("b")));
        assert!(own.contains(&NodeId::new("b")));
        let _ = own.mark();
        assert!(own.is_empty());
        // But the session still has it.
        assert!(own.owns_any());
        own.remove(&NodeId::new("b"));
        assert!(!own.owns_any());
    }
}
