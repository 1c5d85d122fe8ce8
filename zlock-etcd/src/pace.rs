//! How long waits take.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One iteration of the server's loop.
pub(crate) const LOOP: Duration = Duration::from_millis(100);

/// `true` if the last wait ended within half an iteration of the server's loop.
#[derive(Debug, Default)]
pub(crate) struct Pace(AtomicBool);

impl Pace {
    pub(crate) fn is_fast(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn waited(&self, time: Duration) {
        self.0.store(time < LOOP / 2, Ordering::Relaxed);
    }
}
