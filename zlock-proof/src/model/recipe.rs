//! The requests of the clients of a run, and the real nodes for them.

use std::fmt;

use zlock_core::{Label, Node, NodeId, NodeName, Queue, Sequence};

use super::state::Place;

/// The recipe that all clients of a run use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recipe {
    Mutex,
    /// Each client reads or writes, and a writer may downgrade.
    ReadWrite,
    /// Each client acquires some of the permits.
    Semaphore {
        max: u32,
    },
}

impl Recipe {
    /// Returns the labels that one client may request.
    fn choices(self) -> Vec<Label> {
        match self {
            Recipe::Mutex => vec![Label::Lock],
            Recipe::ReadWrite => vec![Label::Read, Label::Write],
            Recipe::Semaphore { max } => {
                (1..=max).map(|weight| Label::Permits { weight, max, granted: false }).collect()
            }
        }
    }

    /// Returns all combinations of labels for this number of clients, in the order of their places.
    pub(crate) fn assignments(self, clients: u8) -> Vec<Vec<Label>> {
        let mut all = vec![Vec::new()];
        for _ in 0..clients {
            all = all
                .iter()
                .flat_map(|before| self.choices().into_iter().map(|l| [before.as_slice(), &[l]].concat()))
                .collect();
        }
        all
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Recipe::Mutex => f.write_str("mutex"),
            Recipe::ReadWrite => f.write_str("read/write"),
            Recipe::Semaphore { max } => write!(f, "semaphore of {max}"),
        }
    }
}

/// Returns the label that notifies the next node that this one was granted.
pub(crate) fn promoted(label: Label) -> Label {
    match label {
        Label::Permits { weight, max, .. } => Label::Permits { weight, max, granted: true },
        other => other,
    }
}

/// All possible nodes, created once. A client's number is its ID and its sequence number.
#[derive(Debug)]
pub(crate) struct Nodes(Vec<Vec<Node>>);

impl Nodes {
    pub(crate) fn new(recipe: Recipe, clients: u8) -> Self {
        let labels = recipe.choices().into_iter().flat_map(|label| [label, promoted(label)]);
        let node = |client: u8, label| {
            let id = NodeId::new(format!("{client:08}-0000-0000-0000-000000000000"));
            let sequence = Sequence::new(client.into());
            let name = NodeName::of(&id, label, sequence);
            Node::new(name, id, label, sequence)
        };
        Nodes((0..clients).map(|c| labels.clone().map(|label| node(c, label)).collect()).collect())
    }

    pub(crate) fn node(&self, place: Place) -> Node {
        let mut known = self.0[usize::from(place.client)].iter();
        known.find(|n| n.label == place.label).expect("every label of the recipe has a node").clone()
    }

    pub(crate) fn token(&self, client: u8) -> NodeId {
        self.0[usize::from(client)][0].id.clone()
    }

    pub(crate) fn queue(&self, places: &[Place]) -> Queue {
        Queue::linear(places.iter().map(|&p| self.node(p)).collect())
    }

    pub(crate) fn place(&self, node: &Node) -> Place {
        Place { client: node.sequence.get() as u8, label: node.label }
    }
}
