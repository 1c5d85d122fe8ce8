//! The last listing of each queue, which shows whether a new watch has missed an event.

use std::collections::BTreeMap;

use zlock_core::{Label, Mutex, Node, NodeName, Queue, Sequence};

use crate::keys::key::Keys;

/// The maximum length of a queue that is remembered. Waiters in longer queues have time to send a request.
const MAX_NODES: usize = 64;

/// The maximum number of queues that are remembered.
const MAX_QUEUES: usize = 1000;

/// The last listing of each queue with waiters.
#[derive(Debug, Default)]
pub(crate) struct Listings(Mutex<BTreeMap<String, Listing>>);

#[derive(Debug)]
struct Listing {
    revision: i64,
    /// `true` if the first of the nodes is the head of the queue.
    is_whole: bool,
    nodes: Vec<(NodeName, Sequence, Label)>,
}

/// A node in the last listing of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// The revision of the listing, in which the node existed with this label.
    pub(crate) revision: i64,
    /// `true` if the node is the head of the queue, which may be removed at any moment.
    pub(crate) is_first: bool,
}

impl Listings {
    /// Remembers a listing, of the whole queue or of its end.
    pub(crate) fn note(&self, keys: &Keys, queue: &Queue, is_whole: bool, revision: i64) {
        let mut listings = self.0.lock();
        let key = keys.range().start;
        if !(2..=MAX_NODES).contains(&queue.len()) {
            listings.remove(&key);
            return;
        }
        let nodes = queue.iter().map(|node| (node.name.clone(), node.sequence, node.label)).collect();
        listings.insert(key, Listing { revision, is_whole, nodes });
        if listings.len() > MAX_QUEUES {
            listings.pop_first();
        }
    }

    /// Finds a node in its last seen state.
    pub(crate) fn find(&self, keys: &Keys, seen: &Node) -> Option<Listed> {
        let listings = self.0.lock();
        let Listing { revision, is_whole, nodes } = listings.get(&keys.range().start)?;
        let is_it = |(name, sequence, label): &(NodeName, Sequence, Label)| {
            *name == seen.name && *sequence == seen.sequence && *label == seen.label
        };
        let place = nodes.iter().position(is_it)?;
        Some(Listed { revision: *revision, is_first: *is_whole && place == 0 })
    }
}

#[cfg(test)]
mod tests {
    use zlock_core::{LockPath, NodeId};

    use super::*;
    use crate::config::EtcdOptions;

    fn queue(labels: &[Label]) -> Queue {
        let node = |(n, &label): (usize, &Label)| {
            let name = NodeName::new(n.to_string());
            Node::new(name, NodeId::new(n.to_string()), label, Sequence::new(n as i64))
        };
        Queue::linear(labels.iter().enumerate().map(node).collect())
    }

    #[test]
    fn only_what_was_listed_as_it_was_seen_is_found() {
        let options = EtcdOptions::new(["h"]);
        let keys = |path: &str| Keys::new(options.prefix(), &LockPath::new(path).unwrap());
        let (listings, a, b) = (Listings::default(), keys("/a"), keys("/b"));
        let pair = queue(&[Label::Write, Label::Lock]);
        listings.note(&a, &pair, false, 7);
        assert_eq!(listings.find(&a, &pair[0]), Some(Listed { revision: 7, is_first: false }));
        listings.note(&a, &pair, true, 7);
        assert_eq!(listings.find(&a, &pair[0]), Some(Listed { revision: 7, is_first: true }));
        assert_eq!(listings.find(&a, &pair[1]), Some(Listed { revision: 7, is_first: false }));
        assert_eq!(listings.find(&b, &pair[0]), None);
        let relabelled = pair[0].clone().relabelled(pair[0].name.clone(), Label::Read);
        assert_eq!(listings.find(&a, &relabelled), None);
        let mut another = pair[0].clone();
        another.sequence = Sequence::new(9);
        assert_eq!(listings.find(&a, &another), None);
        listings.note(&a, &queue(&[Label::Lock]), true, 8);
        assert_eq!(listings.find(&a, &pair[0]), None, "nobody waits there any more");
        listings.note(&a, &queue(&[Label::Lock; MAX_NODES + 1]), true, 9);
        assert_eq!(listings.find(&a, &pair[0]), None);
    }

    #[test]
    fn the_number_of_queues_is_bounded() {
        let (options, listings) = (EtcdOptions::new(["h"]), Listings::default());
        for n in 0..2 * MAX_QUEUES {
            let keys = Keys::new(options.prefix(), &LockPath::new(format!("/{n}")).unwrap());
            listings.note(&keys, &queue(&[Label::Lock; 2]), true, 1);
        }
        assert_eq!(listings.0.lock().len(), MAX_QUEUES);
    }
}
