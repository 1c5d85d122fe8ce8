//! Computes the holders from the store's state. Written independently of the engine that it checks.

use std::time::Duration;

use zlock::backend::{Node, NodeName};
use zlock::{LockPath, SessionId};

use super::world::World;
use crate::kind::Kind;

/// A node in the store.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) number: u64,
    pub(crate) name: NodeName,
    pub(crate) session: Option<SessionId>,
    pub(crate) kind: Kind,
    /// `true` if no earlier node excludes it.
    pub(crate) entitled: bool,
}

impl World {
    /// Returns the queue of a lock, in the order in which the nodes were created.
    pub(crate) fn places(&self, path: &LockPath) -> Vec<Place> {
        let number = |n: &Node| n.fencing_token.map_or(0, |token| token.number());
        let mut nodes = self.store.queue(path);
        nodes.sort_by_key(number);
        let mut before = Vec::new();
        nodes
            .into_iter()
            .map(|node| {
                let kind = Kind::from(node.label);
                let entitled = kind.fits(before.iter().copied());
                before.push(kind);
                Place { number: number(&node), name: node.name, session: node.session, kind, entitled }
            })
            .collect()
    }
}

/// The time for a client to recover from a fault: a missed heartbeat, the longest pause between two attempts, and messages.
pub(crate) fn recovery(session: Duration) -> Duration {
    session + Duration::from_secs(8)
}
