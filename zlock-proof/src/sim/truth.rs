//! Who holds by the store's own account: written apart from the engine, which it judges.

use std::time::Duration;

use zlock::backend::{Label, Node, NodeName};
use zlock::{LockPath, SessionId};

use super::world::World;

/// What a place in a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Alone,
    Reader,
    Permits { weight: u64, max: u64 },
}

impl Mode {
    fn of(label: Label) -> Self {
        match label {
            Label::Read => Mode::Reader,
            Label::Permits { weight, max, .. } => Mode::Permits { weight: weight.into(), max: max.into() },
            _ => Mode::Alone,
        }
    }

    /// Whether one can hold while all these do.
    pub(crate) fn fits(self, beside: &[Mode]) -> bool {
        match self {
            Mode::Alone => beside.is_empty(),
            Mode::Reader => beside.iter().all(|m| *m == Mode::Reader),
            Mode::Permits { weight, max } => {
                let taken = beside.iter().map(|m| match m {
                    Mode::Permits { weight, .. } => *weight,
                    _ => max,
                });
                taken.sum::<u64>() + weight <= max
            }
        }
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
        let number = |n: &Node| n.fencing_token.map_or(0, |token| token.get());
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
