//! Computes the holders from the store's state. Written independently of the engine that it checks.

use std::time::Duration;

use zlock::backend::{Label, Node, NodeName};
use zlock::{LockPath, SessionId};

use super::world::World;

/// The mode of a node in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    Alone,
    Reader,
    Permits { weight: u32, max: u32 },
}

impl Mode {
    fn of(label: Label) -> Self {
        match label {
            Label::Read => Mode::Reader,
            Label::Permits { weight, max, .. } => Mode::Permits { weight, max },
            _ => Mode::Alone,
        }
    }

    /// Returns the maximum that it uses, if it is for permits.
    pub(crate) fn max(self) -> Option<u32> {
        if let Mode::Permits { max, .. } = self { Some(max) } else { None }
    }

    /// Returns `true` if the two may hold at the same time, given enough permits. Two that disagree about the maximum never may.
    pub(crate) fn shares_with(self, other: Mode) -> bool {
        match self {
            Mode::Alone => false,
            Mode::Reader => other == Mode::Reader,
            Mode::Permits { max, .. } => other.max() == Some(max),
        }
    }

    /// Returns `true` if it may hold while all of these do.
    pub(crate) fn fits(self, beside: &[Mode]) -> bool {
        let weight = |mode: Mode| if let Mode::Permits { weight, .. } = mode { weight } else { 0 };
        let taken = weight(self) + beside.iter().map(|mode| weight(*mode)).sum::<u32>();
        beside.iter().all(|mode| self.shares_with(*mode)) && taken <= self.max().unwrap_or_default()
    }
}

/// A node in the store.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) number: u64,
    pub(crate) name: NodeName,
    pub(crate) session: Option<SessionId>,
    pub(crate) mode: Mode,
    /// `true` if no earlier node excludes it.
    pub(crate) entitled: bool,
}

impl World {
    /// Returns the queue of a lock, in the order in which the nodes were created.
    pub(crate) fn places(&self, path: &LockPath) -> Vec<Place> {
        let number = |n: &Node| n.fencing_token.map_or(0, |token| token.number());
        let mut nodes = self.server.queue(path).into_vec();
        nodes.sort_by_key(number);
        let mut before = Vec::new();
        nodes
            .into_iter()
            .map(|node| {
                let mode = Mode::of(node.label);
                let entitled = mode.fits(&before);
                before.push(mode);
                Place { number: number(&node), name: node.name, session: node.session, mode, entitled }
            })
            .collect()
    }
}

/// The time for a client to recover from a fault: a missed heartbeat, the longest pause between two attempts, and messages.
pub(crate) fn recovery(session: Duration) -> Duration {
    session + Duration::from_secs(8)
}
