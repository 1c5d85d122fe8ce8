//! Queues: the nodes of one lock, in order.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::nodes::name::NodeName;
use crate::nodes::node::Node;
use crate::nodes::node_id::NodeId;
use crate::nodes::sequence::{Sequence, rotate_to_oldest};

/// The nodes of one lock, beginning with the head of the queue. Names that are not places are left out.
///
/// It dereferences to a slice of nodes. A queue of listed names ([`Queue::listed`]) parses them only on that access.
/// Most acquisitions need just the node before their own, which [`predecessor`](Queue::predecessor) finds without
/// parsing all names.
#[derive(Clone, Default)]
pub struct Queue {
    /// Empty if the nodes were passed in parsed form.
    names: Option<Arc<dyn Names>>,
    /// An own node, of which more than the name is known.
    own: Option<Box<Node>>,
    nodes: OnceLock<Vec<Node>>,
}

/// Names as a store lists them, in any order, including names that are not places.
trait Names: Send + Sync {
    fn count(&self) -> usize;

    fn at(&self, i: usize) -> &str;
}

impl<S: AsRef<str> + Send + Sync> Names for Vec<S> {
    fn count(&self) -> usize {
        self.len()
    }

    fn at(&self, i: usize) -> &str {
        self[i].as_ref()
    }
}

/// The predecessor of a node in its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// The node is not in the queue.
    NotQueued,
    /// None: the node is the head of the queue.
    Head {
        /// `true` if there is a node behind it.
        followed: bool,
    },
    /// This node.
    Node(Node),
}

impl Queue {
    /// Creates a queue of nodes whose sequences never wrap (etcd's revisions).
    #[must_use]
    pub fn linear(mut nodes: Vec<Node>) -> Self {
        nodes.sort_unstable_by(|a, b| (a.sequence, &a.name).cmp(&(b.sequence, &b.name)));
        Queue { names: None, own: None, nodes: nodes.into() }
    }

    /// Creates a queue of nodes whose sequences are signed 32-bit and wrap (ZooKeeper's, mem's).
    #[must_use]
    pub fn wrapping(nodes: Vec<Node>) -> Self {
        let mut nodes = Queue::linear(nodes).into_vec();
        rotate_to_oldest(&mut nodes, |n| n.sequence);
        Queue { names: None, own: None, nodes: nodes.into() }
    }

    /// Creates a queue of names as a store lists them, ordered as by [`Queue::wrapping`]. The names are parsed on
    /// demand.
    #[must_use]
    pub fn listed<S: AsRef<str> + Send + Sync + 'static>(names: Vec<S>) -> Self {
        Queue { names: Some(Arc::new(names)), own: None, nodes: OnceLock::new() }
    }

    /// Parses these names and orders them as [`Queue::wrapping`] does.
    #[must_use]
    pub fn of_names<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Self {
        Queue::wrapping(names.into_iter().filter_map(|n| Node::listed(n.as_ref())).collect())
    }

    /// Replaces the listed node with the same name by an own node, which contains more.
    #[must_use]
    pub fn with_own(mut self, node: Node) -> Self {
        match self.nodes.get_mut() {
            None => self.own = Some(Box::new(node)),
            Some(nodes) => {
                if let Some(listed) = nodes.iter_mut().find(|listed| listed.name == node.name) {
                    *listed = node;
                }
            }
        }
        self
    }

    /// Returns `true` if the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self.unparsed() {
            Some(names) => !all(names).any(NodeName::is_place),
            None => self.nodes().is_empty(),
        }
    }

    /// Returns the position of the node with this ID.
    #[must_use]
    pub fn position(&self, node_id: &NodeId) -> Option<usize> {
        self.nodes().iter().position(|n| n.id == *node_id)
    }

    /// Returns the node with this ID.
    #[must_use]
    pub fn find(&self, node_id: &NodeId) -> Option<&Node> {
        self.nodes().iter().find(|n| n.id == *node_id)
    }

    /// Returns the names of all nodes with this ID, which must be a UUID: more than one if a create of unknown
    /// outcome took effect twice.
    #[must_use]
    pub fn names_of(&self, node_id: &NodeId) -> Vec<NodeName> {
        match self.unparsed() {
            Some(names) => all(names)
                .filter(|name| is_of(name, node_id) && NodeName::is_place(name))
                .map(NodeName::new)
                .collect(),
            None => self.nodes().iter().filter(|n| n.id == *node_id).map(|n| n.name.clone()).collect(),
        }
    }

    /// Returns the predecessor of the node with this ID.
    #[must_use]
    pub fn predecessor(&self, node_id: &NodeId) -> Predecessor {
        if let Some(predecessor) = self.unparsed().and_then(|names| among(names, node_id)) {
            return predecessor;
        }
        let nodes = self.nodes();
        match self.position(node_id) {
            None => Predecessor::NotQueued,
            Some(0) => Predecessor::Head { followed: nodes.len() > 1 },
            Some(place) => Predecessor::Node(nodes[place - 1].clone()),
        }
    }

    /// Returns the nodes as a vector, in order.
    #[must_use]
    pub fn into_vec(mut self) -> Vec<Node> {
        self.nodes();
        self.nodes.take().unwrap_or_default()
    }

    /// Returns the names unless they are already parsed.
    fn unparsed(&self) -> Option<&dyn Names> {
        if self.nodes.get().is_some() { None } else { self.names.as_deref() }
    }

    fn nodes(&self) -> &[Node] {
        self.nodes.get_or_init(|| {
            let names = self.names.as_deref();
            let nodes = names.into_iter().flat_map(all).filter_map(Node::listed);
            let own = self.own.as_deref();
            let known = |node: Node| own.filter(|own| own.name == node.name).cloned().unwrap_or(node);
            Queue::wrapping(nodes.map(known).collect()).into_vec()
        })
    }
}

fn all(names: &dyn Names) -> impl Iterator<Item = &str> {
    (0..names.count()).map(|i| names.at(i))
}

/// Returns `true` if a node with this name was created with this ID. The result means nothing for other names.
fn is_of(name: &str, node_id: &NodeId) -> bool {
    NodeName::from_id_on(name)
        .and_then(|rest| rest.strip_prefix(node_id.as_str()))
        .is_some_and(|rest| rest.starts_with('-'))
}

/// Finds the predecessor without parsing more than a few names. Returns `None` if that needs the whole order: if the
/// numbers span half of the ring, if the ID occurs twice, or if the name ahead is not that of a place.
fn among(names: &dyn Names, node_id: &NodeId) -> Option<Predecessor> {
    let mut numbers: Vec<(Sequence, &str)> = Vec::with_capacity(names.count());
    numbers.extend(all(names).filter_map(|name| Some((Sequence::split(name)?.1, name))));
    let mut own = None;
    let (mut first, mut last) = (i64::MAX, i64::MIN);
    for &(sequence, name) in &numbers {
        (first, last) = (first.min(sequence.get()), last.max(sequence.get()));
        if is_of(name, node_id) && NodeName::is_place(name) {
            if own.is_some() {
                return None;
            }
            own = Some((sequence, name));
        }
    }
    if last.saturating_sub(first) >= 1 << 31 {
        return None;
    }
    let own = own?;
    let before = numbers.iter().filter(|place| **place < own).max();
    let followed = numbers.iter().any(|place| *place > own && NodeName::is_place(place.1));
    Some(match before {
        None => Predecessor::Head { followed },
        Some((_, name)) => Predecessor::Node(Node::listed(*name)?),
    })
}

impl Deref for Queue {
    type Target = [Node];

    fn deref(&self) -> &[Node] {
        self.nodes()
    }
}

impl PartialEq for Queue {
    fn eq(&self, other: &Self) -> bool {
        self.nodes() == other.nodes()
    }
}

impl Eq for Queue {}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.nodes()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_in_order_and_leaves_foreign_names_out() {
        let queue = Queue::of_names(["lock--2147483648", "db", "lock-2147483647", "lock-2147483646"]);
        let names: Vec<_> = queue.iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names, ["lock-2147483646", "lock-2147483647", "lock--2147483648"]);
        assert_eq!(queue.position(&NodeId::new("lock--2147483648")), Some(2));
        assert_eq!(queue.find(&NodeId::new("db")), None);
    }

    #[test]
    fn a_listing_says_the_same_parsed_and_unparsed() {
        let node_id = |n: u32| format!("{n:08x}-0000-0000-0000-000000000000");
        let numbers: [&[i64]; 8] = [
            &[],
            &[7],
            &[7, 9],
            &[9, 7, 8, 12],
            &[-3, 0, 2, -1],
            &[i32::MAX.into(), i32::MIN.into(), -2_147_483_647, 2_147_483_646],
            &[1, 1_073_741_824, -1_073_741_824],
            &[5, 5, 6],
        ];
        let foreign =
            ["db", "lock-12", "x0000000008", "_c_no-lock-0000000008", "ffffffffffffffff__lock__0000000008"];
        for numbers in numbers {
            let own = numbers.iter().zip(1..).map(|(n, i)| {
                let label = [crate::Label::Lock, crate::Label::Read][usize::from(i % 2 == 0)];
                NodeName::of(&NodeId::new(node_id(i)), label, Sequence::new(*n)).to_string()
            });
            let mut names: Vec<_> = own.chain(foreign.map(str::to_owned)).collect();
            names.push("lock-0000000008".to_owned());
            let parsed = Queue::of_names(&names);
            for i in 0..=numbers.len() {
                let me = NodeId::new(node_id(u32::try_from(i).unwrap()));
                let listed = || Queue::listed(names.clone());
                assert_eq!(listed().predecessor(&me), parsed.predecessor(&me), "{me} in {parsed:?}");
                assert_eq!(listed().names_of(&me), parsed.names_of(&me));
                assert_eq!((listed(), listed().is_empty()), (parsed.clone(), parsed.is_empty()));
            }
        }
        assert!(Queue::listed(foreign.to_vec()).is_empty());
    }

    #[test]
    fn a_token_at_two_places_has_its_first_one() {
        let node_id = "0123abcd-4567-89ab-cdef-0123456789ab";
        let names = [3, 5].map(|n| format!("_c_{node_id}-lock-{n:010}"));
        let queue = Queue::listed(vec![names[1].clone(), "lock-0000000004".to_owned(), names[0].clone()]);
        let me = NodeId::new(node_id);
        assert_eq!(queue.names_of(&me).len(), 2);
        assert_eq!(queue.predecessor(&me), Predecessor::Head { followed: true });
    }

    #[test]
    fn an_own_node_is_known_in_the_listing() {
        let node_id = "0123abcd-4567-89ab-cdef-0123456789ab";
        let name = format!("_c_{node_id}-lock-0000000003");
        let own = Node { session: Some(crate::SessionId::new(7)), ..Node::listed(name.as_str()).unwrap() };
        for queue in [Queue::listed(vec![name.clone()]), Queue::of_names([&name])] {
            assert_eq!(queue.with_own(own.clone()).find(&own.id), Some(&own));
        }
    }
}
