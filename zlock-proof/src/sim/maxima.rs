//! Clients that disagree about the maximum of a semaphore: that of who stands first when they come counts, and the
//! others are told so.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;
use zlock::{Error, LockPath};

use super::lock::Kind;
use super::world::World;

/// Who stood first.
#[derive(Debug, Default)]
pub(crate) struct Firsts {
    /// Which maximum did on a path, and when it did so last.
    last: BTreeMap<(usize, u32), Instant>,
    /// The nodes that have seen their own maximum first: they may stay, whoever is first later.
    agreed: BTreeSet<u64>,
}

impl Firsts {
    /// Whether the first has had the maximum of this node at some time since it was made.
    pub(crate) fn agreed(&self, number: u64) -> bool {
        self.agreed.contains(&number)
    }
}

impl World {
    /// Looks at who stands first, right before a request for this path takes effect.
    pub(crate) fn note_first(&self, path: &LockPath) {
        let Some(at) = self.paths.iter().position(|p| p == path) else { return };
        if !self.plan.paths[at].is_disputed() {
            return;
        }
        let places = self.places(path);
        if let Some(max) = places.iter().find_map(|place| place.mode.max()) {
            let firsts = &mut self.lock().firsts;
            firsts.last.insert((at, max), Instant::now());
            let agree = places.iter().filter(|place| place.mode.max() == Some(max));
            firsts.agreed.extend(agree.map(|place| place.number));
        }
    }

    /// A client got the error that its maximum is not that of the head of the queue: that must have been true since its
    /// request.
    pub(crate) fn check_mismatch(&self, locks: &[(usize, Kind)], asked: Instant, error: &Error) {
        let is_true = locks.iter().any(|(path, kind)| {
            let Kind::Permits { max: mine, .. } = kind else { return false };
            let state = self.lock();
            let mut firsts = state.firsts.last.iter();
            Some(self.paths[*path].as_str()) == error.path()
                && firsts.any(|((at, max), when)| at == path && max != mine && *when >= asked)
        });
        self.lock().counts.refusals += 1;
        if !is_true {
            self.fail("needless error", || format!("{locks:?}: {error}"));
        }
    }
}
