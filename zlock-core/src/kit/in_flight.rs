//! Group commit: which requests are in flight, and whether a further one waits for them.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// The number of requests in flight up to which a further one waits for none.
const MAX_IN_FLIGHT: usize = 2;

/// The time that an answer is assumed to take before there was one.
const FIRST_GUESS: Duration = Duration::from_millis(10);

/// The least time that an answer is assumed to take.
const MIN_USUAL: Duration = Duration::from_millis(1);

/// The requests in flight, and whether a further one has to wait for them: group commit.
///
/// A request is sent at once while fewer than two are in flight. Otherwise it waits, and all requests that have waited can be sent
/// together as one. A request that takes twice as long as an answer usually does is no longer waited for, because its server may be
/// silent, or its caller may not poll.
///
/// These are the decisions alone, without any I/O or clock.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// By number: when each was sent.
    sent: BTreeMap<u64, Instant>,
    next_number: u64,
    /// The time that an answer usually takes.
    usual: Duration,
}

impl InFlight {
    /// Creates the state of a backend that has sent nothing yet.
    #[must_use]
    pub fn new() -> Self {
        InFlight { sent: BTreeMap::new(), next_number: 0, usual: FIRST_GUESS }
    }

    /// Returns the instant until which a request has to wait at `now`, unless another one [ends](Self::end) before. `None` if it need
    /// not wait.
    #[must_use]
    pub fn full_until(&self, now: Instant) -> Option<Instant> {
        let overdue = self.sent.values().map(|sent| *sent + self.usual * 2);
        let counts = overdue.filter(|overdue| *overdue > now);
        if counts.clone().count() < MAX_IN_FLIGHT { None } else { counts.min() }
    }

    /// Records that a request is sent at `now`. Returns its number, which [`end`](Self::end) needs.
    #[must_use]
    pub fn begin(&mut self, now: Instant) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.sent.insert(number, now);
        number
    }

    /// Records that a request is no longer in flight. `is_answered` is `true` if an answer arrived by `now` that shows how long one
    /// takes; otherwise `now` does not matter.
    ///
    /// A no-op if the request has ended before.
    pub fn end(&mut self, number: u64, now: Instant, is_answered: bool) {
        if let Some(sent) = self.sent.remove(&number)
            && is_answered
        {
            // A single outlier, such as that of a caller that did not poll, has little weight.
            let time = now.saturating_duration_since(sent).min(self.usual * 2);
            self.usual = ((self.usual * 7 + time) / 8).max(MIN_USUAL);
        }
    }
}

impl Default for InFlight {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_waited_for_no_longer_than_twice_a_usual_answer() {
        let (mut in_flight, now) = (InFlight::new(), Instant::now());
        let one = in_flight.begin(now);
        assert_eq!(in_flight.full_until(now), None);
        let two = in_flight.begin(now);
        assert_eq!(in_flight.full_until(now), Some(now + FIRST_GUESS * 2));
        in_flight.end(one, now, false);
        assert_eq!(in_flight.full_until(now), None);
        let three = in_flight.begin(now);
        assert_eq!(in_flight.full_until(now + FIRST_GUESS * 2), None, "both are late");
        // A caller that polls late does not make later requests wait for minutes.
        let later = now + Duration::from_secs(3600);
        in_flight.end(two, later, true);
        in_flight.end(three, later, false);
        let _both = [in_flight.begin(later), in_flight.begin(later)];
        assert_eq!(in_flight.full_until(later), Some(later + FIRST_GUESS * 2 * 9 / 8));
    }

    #[test]
    fn the_usual_time_is_that_of_the_answers() {
        let (mut in_flight, now) = (InFlight::new(), Instant::now());
        let mut wait_after = |answer: Duration| {
            for _ in 0..100 {
                let number = in_flight.begin(now);
                in_flight.end(number, now + answer, true);
                // A no-op, since it has ended.
                in_flight.end(number, now + answer * 100, true);
            }
            let both = [in_flight.begin(now), in_flight.begin(now)];
            let until = in_flight.full_until(now);
            both.into_iter().for_each(|number| in_flight.end(number, now, false));
            until.map(|until| (until - now).as_millis())
        };
        assert_eq!(wait_after(Duration::from_millis(100)), Some(199));
        assert_eq!(wait_after(Duration::ZERO), Some(MIN_USUAL.as_millis() * 2));
    }

    #[test]
    fn the_wait_ends_when_the_first_of_two_is_late() {
        let (mut in_flight, now) = (InFlight::new(), Instant::now());
        let later = now + FIRST_GUESS;
        let _both = [in_flight.begin(now), in_flight.begin(later)];
        assert_eq!(in_flight.full_until(later), Some(now + FIRST_GUESS * 2));
    }
}
