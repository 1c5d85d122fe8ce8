//! Since when the leader certainly counts the time of a session.
//!
//! The leader ends sessions, and it does not see what a client sends to a follower: a follower reports the sessions that it
//! has heard from with its answers to the leader's pings, one every half tick. A request that passes through the leader,
//! a `sync` or a write, proves only that the leader had not ended the session by then. So what counts are the requests
//! *before* it that the follower must have reported by then. The answers to our own requests say when that was; the client
//! library's pings are of no use, since nobody sees whether and when they are sent.
//!
//! An answered request P is proved by a request R that passed through the leader:
//!
//! - If P was answered half a tick before R was sent, or earlier, P was reported before R reached the leader. The leader
//!   counts from P, or from later.
//! - If from then on no two requests arrived more than half a tick apart, each of the follower's answers reports one of
//!   them, and the leader counts at least from half a tick before R.
//!
//! Between requests that are further apart the margin is therefore half a tick *and* the gap between two requests. A gap that is
//! longer than planned, since the process or the link stood still, widens it by itself.
//!
//! A new session and a connection that is resumed are different: the leader itself takes part in them.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// How many requests are kept. They are at least an interval of heartbeats apart, and older ones than half a session timeout
/// are of no use.
const KEPT: usize = 8;

/// The answered requests of one connection.
#[derive(Debug)]
pub(crate) struct Touches {
    half_tick: Duration,
    /// How long the leader keeps a session without hearing of it, less a margin for clocks that drift.
    life: Duration,
    /// The leader had begun the session, or resumed it, at this instant or later.
    begun: Instant,
    answered: VecDeque<Answered>,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
struct Answered {
    sent: Instant,
    at: Instant,
}

impl Touches {
    pub(crate) fn new(timeout: Duration, half_tick: Duration, begun: Instant) -> Self {
        Touches { half_tick, life: timeout - timeout / 50, begun, answered: VecDeque::new() }
    }

    /// There is a new connection to a server, which the leader has taken part in at this instant or later.
    pub(crate) fn resume(&mut self, begun: Instant) {
        self.begun = begun;
        self.answered.clear();
    }

    /// When the last request was sent that was answered over this connection, or when that began.
    pub(crate) fn last(&self) -> Instant {
        self.answered.back().map_or(self.begun, |last| last.sent.max(self.begun))
    }

    /// Records a request that was just answered.
    pub(crate) fn answered(&mut self, sent: Instant) {
        if self.answered.len() == KEPT {
            self.answered.pop_front();
        }
        self.answered.push_back(Answered { sent, at: Instant::now() });
    }

    /// The session's deadline, by a request through the leader that was just answered.
    pub(crate) fn deadline(&self, sent: Instant) -> Instant {
        self.counted_from(Answered { sent, at: Instant::now() }) + self.life
    }

    fn counted_from(&self, request: Answered) -> Instant {
        let Some(by) = request.sent.checked_sub(self.half_tick) else { return self.begun };
        let Some(last) = self.answered.iter().rposition(|answered| answered.at <= by) else {
            return self.begun;
        };
        let from = self.answered.range(last..);
        let after = self.answered.range(last + 1..).chain([&request]);
        let is_dense = from.zip(after).all(|(one, next)| next.at - one.sent <= self.half_tick);
        let reported = if is_dense { by } else { self.answered[last].sent };
        reported.max(self.begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// How long before a request, which is sent after 10 s and takes 10 ms, the leader counts from at least.
    fn margin(half_tick: u32, begun: u32, answered: &[(u32, u32)]) -> Duration {
        let zero = Instant::now();
        let mut touches = Touches::new(10_000 * MS, half_tick * MS, zero + begun * MS);
        let answered =
            answered.iter().map(|(sent, at)| Answered { sent: zero + *sent * MS, at: zero + *at * MS });
        touches.answered.extend(answered);
        let sent = zero + 10_000 * MS;
        sent - touches.counted_from(Answered { sent, at: sent + 10 * MS })
    }

    #[test]
    fn what_is_not_reported_yet_does_not_count() {
        // Requests further apart than half a tick: half a tick and the gap, at worst.
        let apart = |offset: u32| {
            [6500 + offset, 8000 + offset, 9500 + offset].map(|sent| (sent.min(9980), sent.min(9980) + 10))
        };
        assert_eq!(margin(1000, 0, &apart(0)), 2000 * MS);
        assert_eq!(margin(1000, 0, &apart(480)), 1520 * MS);
        // The last one that counts was answered exactly half a tick before.
        assert_eq!(margin(510, 0, &apart(0)), 2000 * MS);
        assert_eq!(margin(490, 0, &apart(0)), 500 * MS);
        // Each answer of the follower reports something.
        let dense: Vec<_> = (0..12).map(|n| (8100 + 150 * n, 8110 + 150 * n)).collect();
        assert_eq!(margin(1000, 0, &dense), 1000 * MS);
        // But for one.
        let gap: Vec<_> = dense.iter().copied().filter(|(sent, _)| !(8800..9900).contains(sent)).collect();
        assert_eq!(margin(1000, 0, &gap), 1300 * MS);
    }

    #[test]
    fn a_process_that_stood_still_has_a_wide_margin() {
        assert_eq!(margin(1000, 0, &[(500, 510), (2000, 2010)]), 8000 * MS);
        // The answer was there for long, and nobody looked: it may have come as late.
        assert_eq!(margin(1000, 0, &[(500, 510), (2000, 9990)]), 9500 * MS);
        // A request that stood in front of the server for that long.
        assert_eq!(margin(3000, 0, &[(1000, 1010), (2500, 6990), (6980, 9990)]), 7500 * MS);
    }

    #[test]
    fn a_new_connection_counts_from_its_beginning() {
        assert_eq!(margin(1000, 9990, &[]), 10 * MS);
        assert_eq!(margin(1000, 5000, &[]), 5000 * MS);
        assert_eq!(margin(1000, 9500, &[(9600, 9610)]), 500 * MS);
        assert_eq!(margin(1000, 8000, &[(8500, 8510)]), 1500 * MS);
        // Nothing that was sent before it is of any worth.
        let mut touches = Touches::new(10_000 * MS, 1000 * MS, Instant::now());
        touches.answered(Instant::now());
        let resumed = Instant::now() + 3000 * MS;
        touches.resume(resumed);
        assert_eq!(touches.deadline(resumed + 5000 * MS), resumed + 9800 * MS);
        assert_eq!(touches.last(), resumed);
    }
}
