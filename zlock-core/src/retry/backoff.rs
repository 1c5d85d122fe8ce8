//! The only file that uses the `backoff` crate, which is no longer maintained (RUSTSEC-2025-0012). No other file may depend
//! on it, and no public signature may expose it.

use std::time::Duration;

use tokio::time::Instant;

use ::backoff::backoff::Backoff;
use ::backoff::exponential::ExponentialBackoff;

/// A sequence of intervals with a limit to their growth, and the time after which it ends.
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
    /// The same interval each time, until the next one would end later than a given time after a given instant.
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
            // Its jitter cannot be seeded. The parent module adds its own.
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
        // Read before the call, whose result goes through floating point and may be a nanosecond longer.
        let interval = self.0.current_interval;
        self.0.next_backoff().map(|_| interval)
    }
}
