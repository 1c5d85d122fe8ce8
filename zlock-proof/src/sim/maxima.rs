//! Clients that disagree about the maximum of a semaphore. The maximum of the head of the queue at the time of their request
//! counts, and the others get an error.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;
use zlock::{Error, LockPath};

use super::lock::Kind;
use super::world::World;

/// The history of the heads of the queue.
#[derive(Debug, Default)]
pub(crate) struct Firsts {
    /// The maxima of heads of the queue by path, and when each was last seen.
    last: BTreeMap<(usize, u32), Instant>,
    /// The nodes that have seen their own maximum at the head. They may stay, whatever the head is later.
    agreed: BTreeSet<u64>,
}

impl Firsts {
    /// Returns `true` if the head has had the maximum of this node at some time since the node was created.
    pub(crate) fn agreed(&self, number: u64) -> bool {
        self.agreed.contains(&number)
    }
}

impl World {
    /// Reads the head of the queue right before a request for this path takes effect.
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

    /// Checks an error about a maximum that differs from that of the head: it must have been true at some time since the
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
