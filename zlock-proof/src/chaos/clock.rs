//! The clock of all histories.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::history::Ns;

/// The machine's monotonic clock. It is one for all processes of a machine and does not stop for a process that is
/// stopped, so what different processes say of it can be compared. It is also the clock behind tokio's
/// [`Instant`], which does not show its number.
pub(crate) fn now() -> Ns {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// A duration as a number.
pub(crate) fn nanos(duration: Duration) -> Ns {
    Ns::try_from(duration.as_nanos()).unwrap_or(Ns::MAX)
}

/// Turns instants into numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    instant: Instant,
    number: Ns,
}

impl Clock {
    pub(crate) fn new() -> Self {
        // The number first: a deadline comes out early if anything, which makes no hold longer than it is.
        let number = now();
        Clock { instant: Instant::now(), number }
    }

    pub(crate) fn number(&self, instant: Instant) -> Ns {
        let later = nanos(instant.saturating_duration_since(self.instant));
        let earlier = nanos(self.instant.saturating_duration_since(instant));
        (self.number + later).saturating_sub(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_and_numbers_agree() {
        let clock = Clock::new();
        std::thread::sleep(Duration::from_millis(20));
        let (before, instant, after) = (now(), Instant::now(), now());
        let number = clock.number(instant);
        // The two readings at the beginning may be apart, too.
        assert!(number + 1_000_000 > before && number < after, "{before} {number} {after}");
    }
}
