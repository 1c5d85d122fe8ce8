//! Clients that disagree about the maximum of a semaphore: that of who stands first counts, and the others
//! are told so.

use std::collections::BTreeMap;

use tokio::time::Instant;
use zlock::{Error, LockPath};

use super::lock::Kind;
use super::world::World;

/// Which maximum stood first on a path, and when it did so last.
#[derive(Debug, Default)]
pub(crate) struct Firsts(BTreeMap<(usize, u32), Instant>);

impl World {
    /// Looks at who stands first, right before a request for this path takes effect.
    pub(crate) fn note_first(&self, path: &LockPath) {
        let Some(at) = self.paths.iter().position(|p| p == path) else { return };
        if !self.plan.paths[at].is_disputed() {
            return;
        }
        if let Some(max) = self.places(path).iter().find_map(|place| place.mode.max()) {
            self.lock().firsts.0.insert((at, max), Instant::now());
        }
    }

    /// Somebody was told that his maximum is not that of the first: so it was, since he asked.
    pub(crate) fn check_mismatch(&self, locks: &[(usize, Kind)], asked: Instant, error: &Error) {
        let is_true = locks.iter().any(|(path, kind)| {
            let Kind::Permits { max: mine, .. } = kind else { return false };
            let state = self.lock();
            let mut firsts = state.firsts.0.iter();
            Some(self.paths[*path].as_str()) == error.path()
                && firsts.any(|((at, max), when)| at == path && max != mine && *when >= asked)
        });
        self.lock().counts.refusals += 1;
        if !is_true {
            self.fail("needless error", || format!("{locks:?}: {error}"));
        }
    }
}
