//! Watched time: how long something in the store has been as it is, by the clocks of those who look at it.
//!
//! A row of the store has the time that clients have added. A *span* begins when an answer arrives that shows the row, and ends when the
//! client sends what adds it, which takes effect only if the row still has the time that was seen. Then the client's next span begins where
//! this one ended; otherwise, with the next answer. So spans that took effect are disjoint, and their sum is never more than the time that
//! has passed.

use std::time::Duration;

use tokio::time::Instant;

/// What one client knows of a row with watched time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Watched {
    /// The time that the row had when it was last seen.
    seen: Duration,
    /// When the current span began.
    from: Instant,
    /// When a span was sent, of which it is unknown whether it took effect.
    sent: Option<Instant>,
}

impl Watched {
    /// Begins with an answer that was received at `received` and showed that the row has this time.
    #[must_use]
    pub fn new(seen: Duration, received: Instant) -> Self {
        Watched { seen, from: received, sent: None }
    }

    /// Records a later answer, and whether the span that was sent with the request took effect. That cannot be told from the time that
    /// the row has: another client may have added a later span of the same length.
    pub fn saw(&mut self, seen: Duration, received: Instant, took_effect: bool) {
        match self.sent.take() {
            Some(sent) if took_effect => self.from = sent,
            None if seen == self.seen => {}
            _ => self.from = received,
        }
        self.seen = seen;
    }

    /// Returns the span that is to be added by a request sent at `now`, in whole milliseconds, with the time that the row must have.
    /// `None` if it is too short, or if it is unknown whether the last one took effect.
    pub fn send(&mut self, now: Instant) -> Option<(Duration, Duration)> {
        let span = floor(now.saturating_duration_since(self.from));
        if span.is_zero() || self.sent.is_some() {
            return None;
        }
        self.sent = Some(now);
        Some((self.seen, span))
    }

    /// Returns the time that has certainly been watched at `now`, by all clients and in the current span of this one.
    #[must_use]
    pub fn total(&self, now: Instant) -> Duration {
        self.seen + now.saturating_duration_since(self.from)
    }
}

/// Rounds down to milliseconds.
fn floor(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn spans_are_disjoint_and_lie_between_an_answer_and_a_request() {
        let now = Instant::now();
        let mut watched = Watched::new(Duration::ZERO, now);
        assert_eq!(watched.send(now + Duration::from_micros(900)), None, "rounded down");
        assert_eq!(watched.send(now + 2 * SECOND), Some((Duration::ZERO, 2 * SECOND)));
        assert_eq!(watched.send(now + 3 * SECOND), None, "the outcome is unknown");
        watched.saw(2 * SECOND, now + 4 * SECOND, true);
        assert_eq!(
            watched.total(now + 5 * SECOND),
            5 * SECOND,
            "the next span begins where the last one ended"
        );
        assert_eq!(watched.send(now + 5 * SECOND), Some((2 * SECOND, 3 * SECOND)));
        // Another client was first.
        watched.saw(5 * SECOND, now + 6 * SECOND, false);
        assert_eq!(watched.total(now + 7 * SECOND), 6 * SECOND, "the next span begins with the answer");
        // Another client has added something.
        watched.saw(9 * SECOND, now + 8 * SECOND, false);
        assert_eq!(watched.total(now + 8 * SECOND), 9 * SECOND);
        // Nothing has changed.
        watched.saw(9 * SECOND, now + 10 * SECOND, false);
        assert_eq!(watched.total(now + 11 * SECOND), 12 * SECOND);
    }

    #[test]
    fn a_span_that_did_not_take_effect_is_not_counted_again() {
        let now = Instant::now();
        let mut watched = Watched::new(SECOND, now);
        watched.send(now + 2 * SECOND);
        watched.saw(SECOND, now + 3 * SECOND, false);
        assert_eq!(watched.total(now + 4 * SECOND), 2 * SECOND);
    }
}
