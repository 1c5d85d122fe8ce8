//! The clock of all histories.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::history::Ns;

/// Reads the machine's monotonic clock. All processes of a machine share this clock, and it also runs while a process is
/// stopped, so the times of different processes can be compared. It is also the clock behind tokio's [`Instant`], which hides
/// its value.
pub(crate) fn now() -> Ns {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Converts a duration to nanoseconds.
pub(crate) fn nanos(duration: Duration) -> Ns {
    Ns::try_from(duration.as_nanos()).unwrap_or(Ns::MAX)
}

/// Converts instants to nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    instant: Instant,
    number: Ns,
}

impl Clock {
    pub(crate) fn new() -> Self {
        // The number is read first, so a deadline may be too early but never too late, and no hold appears too long.
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
        // The two clock readings at the beginning differ slightly, too.
        assert!(number + 1_000_000 > before && number < after, "{before} {number} {after}");
    }
}
