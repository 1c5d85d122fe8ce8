//! The `backoff` crate, and all that there is of it: it is no longer maintained (RUSTSEC-2025-0012), so no
//! other file may know it and no public signature may show it.

use std::time::Duration;

use tokio::time::Instant;

use ::backoff::backoff::Backoff;
use ::backoff::exponential::ExponentialBackoff;

/// A row of intervals, the limit of their growth, and the time after which there is no more.
#[derive(Debug)]
pub(super) struct Intervals(ExponentialBackoff<TokioClock>);

#[derive(Debug)]
struct TokioClock;

impl ::backoff::Clock for TokioClock {
    fn now(&self) -> std::time::Instant {
        tokio::time::Instant::now().into_std()
    }
}

impl Intervals {
    /// The same interval each time, until the next one would end after a time that began at an instant.
    pub(super) fn constant(interval: Duration, limit: Option<(Duration, Instant)>) -> Self {
        Self::new(interval, 1.0, interval, limit)
    }

    /// Twice the last interval each time, up to `max`.
    pub(super) fn doubling(first: Duration, max: Duration) -> Self {
        Self::new(first, 2.0, max, None)
    }

    fn new(first: Duration, multiplier: f64, max: Duration, limit: Option<(Duration, Instant)>) -> Self {
        let mut intervals = ExponentialBackoff {
            current_interval: first,
            initial_interval: first,
            // Its jitter cannot be seeded; ours is in the module above.
            randomization_factor: 0.0,
            multiplier,
            max_interval: max,
            max_elapsed_time: limit.map(|(max_elapsed, _)| max_elapsed),
            start_time: ::backoff::Clock::now(&TokioClock),
            clock: TokioClock,
        };
        intervals.reset();
        if let Some((_, began)) = limit {
            intervals.start_time = began.into_std();
        }
        Intervals(intervals)
    }

    pub(super) fn next(&mut self) -> Option<Duration> {
        // Read before it is asked: its answer goes through floating point and may be a nanosecond more.
        let interval = self.0.current_interval;
        self.0.next_backoff().map(|_| interval)
    }
}
