//! The attempts at a new session.

use std::time::Duration;

use tokio::time::sleep;

use crate::retry::{Retry, RetryPolicy};

/// The first attempts after a loss are spread over this time, because an outage ends the sessions of all clients at once.
const SPREAD: Duration = Duration::from_secs(1);

/// The pauses between two attempts.
const PAUSES: RetryPolicy =
    RetryPolicy::bounded_exponential(Duration::from_millis(50), Duration::from_secs(1), u32::MAX);

/// The attempts at one session: the pause before each, and the time that it gets.
///
/// A server under load answers late, and makes the session of an attempt that was given up all the same. So the pauses grow
/// and are random, and each attempt that follows one without an answer gets twice its time.
#[derive(Debug)]
pub struct Attempts {
    pause: Duration,
    pauses: Retry,
    silent: u32,
}

impl Attempts {
    /// Creates the attempts at the first session, which begin at once.
    #[must_use]
    pub fn first() -> Self {
        Attempts { pause: Duration::ZERO, pauses: PAUSES.start(), silent: 0 }
    }

    /// Creates the attempts at a session that follows one that was lost. The first one begins within a second, at a random
    /// instant.
    #[must_use]
    pub fn after_loss() -> Self {
        Attempts { pause: SPREAD.mul_f64(fastrand::f64()), ..Attempts::first() }
    }

    /// Waits for what is left of the pause before the next attempt.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    pub async fn pause(&mut self) {
        if !self.pause.is_zero() {
            sleep(self.pause).await;
            self.pause = Duration::ZERO;
        }
    }

    /// Records that an attempt has failed, and whether its time passed without an answer.
    pub fn failed(&mut self, was_silent: bool) {
        self.silent = self.silent.saturating_add(u32::from(was_silent));
        self.pause = self.pauses.next_delay().unwrap_or(SPREAD);
    }

    /// Returns the time of the next attempt: `first`, doubled for each attempt without an answer, and at most `longest`.
    #[must_use]
    pub fn time(&self, first: Duration, longest: Duration) -> Duration {
        first.saturating_mul(1 << self.silent.min(16)).min(longest)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn silence_doubles_the_time() {
        let mut attempts = Attempts::first();
        let mut times = Vec::new();
        for was_silent in [false, true, true, true, false] {
            times.push(attempts.time(2 * SECOND, 15 * SECOND).as_secs());
            attempts.failed(was_silent);
        }
        assert_eq!(times, [2, 2, 4, 8, 15]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_attempts_after_a_loss_are_spread() {
        let began = Instant::now();
        let mut first = Attempts::first();
        first.pause().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        first.failed(false);
        first.pause().await;
        assert!(began.elapsed() >= PAUSES.start().next_delay().unwrap().min(SECOND / 20));
        let mut pauses: Vec<_> = (0..100).map(|_| Attempts::after_loss().pause).collect();
        pauses.sort();
        assert!(pauses[0] < SECOND / 4 && pauses[99] > SECOND * 3 / 4 && pauses[99] <= SECOND, "{pauses:?}");
    }
}
