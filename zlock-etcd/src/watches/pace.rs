//! How long waits take.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One iteration of the server's loop.
pub(crate) const LOOP: Duration = Duration::from_millis(100);

/// `true` if the last wait ended within two iterations of the server's loop. One may be due to the loop itself: with a shorter
/// limit, waits that the loop has delayed would count as long, and the loop would go on delaying them.
#[derive(Debug, Default)]
pub(crate) struct Pace(AtomicBool);

impl Pace {
    pub(crate) fn is_fast(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn waited(&self, time: Duration) {
        self.0.store(time < LOOP * 2, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_the_loop_may_have_delayed_is_short() {
        let pace = Pace::default();
        assert!(!pace.is_fast());
        pace.waited(LOOP + LOOP / 2);
        assert!(pace.is_fast());
        pace.waited(LOOP * 2);
        assert!(!pace.is_fast());
    }
}
