//! Clients that disagree about the maximum of a semaphore. The maximum of the head of the queue at the time of their request
//! counts, and the others get an error.

use tokio::time::Instant;
use zlock::{Error, LockPath};

use super::world::World;
use crate::kind::Kind;
use crate::locks::Wanted;

impl World {
    /// Reads the head of the queue right before a request for this path takes effect.
    pub(crate) fn note_first(&self, path: &LockPath) {
        let Some(at) = self.paths.iter().position(|p| p == path) else { return };
        if !self.plan.paths[at].is_disputed() {
            return;
        }
        let places = self.places(path);
        if self.plan.ledger.is_some() {
            // Requests take effect after they arrive, so any of these may be the first when this one does.
            let firsts = &mut self.lock().firsts;
            let maxima = places.iter().filter_map(|place| place.kind.max());
            firsts.last.extend(maxima.map(|max| ((at, max), Instant::now())));
        } else if let Some(max) = places.iter().find_map(|place| place.kind.max()) {
            let firsts = &mut self.lock().firsts;
            firsts.last.insert((at, max), Instant::now());
            let agree = places.iter().filter(|place| place.kind.max() == Some(max));
            firsts.agreed.extend(agree.map(|place| place.number));
        }
    }

    /// Reads the heads of all queues, before something else than a request changes them.
    pub(crate) fn note_firsts(&self) {
        if self.plan.ledger.is_some() {
            self.paths.iter().for_each(|path| self.note_first(path));
        }
    }

    /// Checks an error about a maximum that differs from that of the head: it must have been true at some time since the
    /// request.
    pub(crate) fn check_mismatch(&self, locks: &[(usize, Wanted)], asked: Instant, error: &Error) {
        self.note_firsts();
        let is_true = locks.iter().any(|(path, lock)| {
            let Kind::Permits { max: mine, .. } = lock.kind else { return false };
            let state = self.lock();
            let mut firsts = state.firsts.last.iter();
            Some(self.paths[*path].as_str()) == error.path()
                && firsts.any(|((at, max), when)| at == path && *max != mine && *when >= asked)
        });
        self.lock().counts.refusals += 1;
        if !is_true {
            self.fail("needless error", || format!("{locks:?}: {error}"));
        }
    }
}
