//! Who holds by the store's own account: written apart from the engine, which it judges.

use std::time::Duration;

use zlock::backend::{Label, Node, NodeName};
use zlock::{LockPath, SessionId};

use super::world::World;

/// What a place in a queue is for.
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

    /// How many permits it believes that there are, if it is about permits.
    pub(crate) fn max(self) -> Option<u32> {
        if let Mode::Permits { max, .. } = self { Some(max) } else { None }
    }

    /// Whether the two may hold at the same time, if there are enough permits. Two who disagree about how
    /// many there are never do.
    pub(crate) fn shares_with(self, other: Mode) -> bool {
        match self {
            Mode::Alone => false,
            Mode::Reader => other == Mode::Reader,
            Mode::Permits { max, .. } => other.max() == Some(max),
        }
    }

    /// Whether one can hold while all these do.
    pub(crate) fn fits(self, beside: &[Mode]) -> bool {
        let weight = |mode: Mode| if let Mode::Permits { weight, .. } = mode { weight } else { 0 };
        let taken = weight(self) + beside.iter().map(|mode| weight(*mode)).sum::<u32>();
        beside.iter().all(|mode| self.shares_with(*mode)) && taken <= self.max().unwrap_or_default()
    }
}

/// A node as the store has it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) number: u64,
    pub(crate) name: NodeName,
    pub(crate) session: Option<SessionId>,
    pub(crate) mode: Mode,
    /// Whether all in front of it let it hold.
    pub(crate) entitled: bool,
}

impl World {
    /// The queue of a lock, in the order in which the nodes were made.
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

/// The time in which a client with which something was wrong gets over it: a heartbeat that is missed, the
/// longest pause between two tries, and the messages.
pub(crate) fn recovery(session: Duration) -> Duration {
    session + Duration::from_secs(8)
}
