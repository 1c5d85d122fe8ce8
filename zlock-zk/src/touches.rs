//! The instant from which the leader certainly counts the timeout of a session.
//!
//! The leader ends sessions, and does not see what a client sends to a follower. With its answers to the leader's pings, one
//! every half tick, a follower reports the sessions from which it has received requests. A request that passes through the
//! leader, a `sync` or a write, proves only that the leader had not ended the session by then. So the requests that count are
//! those *before* it that the follower must have reported by then. The answers to our own requests show when that was. The
//! client library's pings are useless here, because it is not visible whether and when they are sent.
//!
//! An answered request P is proved by a request R that passed through the leader:
//!
//! - If P was answered half a tick before R was sent, or earlier, P was reported before R reached the leader. The leader
//!   counts from P, or from later.
//! - If, from then on, no two requests arrived more than half a tick apart, each of the follower's answers reports one of
//!   them, and the leader counts at least from half a tick before R.
//!
//! If requests are further apart, the margin is therefore half a tick *and* the gap between two requests. A gap that is
//! longer than planned, because the process or the connection was stalled, widens the margin by itself.
//!
//! For a new session and a resumed connection, this is not needed, because the leader itself takes part in them.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The number of requests that are kept. They are at least one heartbeat interval apart, and requests older than half a
/// session timeout are useless.
const KEPT: usize = 8;

/// The answered requests of one connection.
#[derive(Debug)]
pub(crate) struct Touches {
    half_tick: Duration,
    /// How long the leader keeps a session without a report of it, less a margin for clock drift.
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

    /// Records a new connection to a server, in which the leader took part at this instant or later.
    pub(crate) fn resume(&mut self, begun: Instant) {
        self.begun = begun;
        self.answered.clear();
    }

    /// Returns when the last request that was answered over this connection was sent, or when the connection began.
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

    /// Returns the session's deadline, given a request through the leader that was just answered.
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

    /// Returns how long before a request, which is sent after 10 s and takes 10 ms, the leader counts from at least.
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
        // Requests that are more than half a tick apart: half a tick and the gap, at worst.
        let apart = |offset: u32| {
            [6500 + offset, 8000 + offset, 9500 + offset].map(|sent| (sent.min(9980), sent.min(9980) + 10))
        };
        assert_eq!(margin(1000, 0, &apart(0)), 2000 * MS);
        assert_eq!(margin(1000, 0, &apart(480)), 1520 * MS);
        // The last one that counts was answered exactly half a tick before.
        assert_eq!(margin(510, 0, &apart(0)), 2000 * MS);
        assert_eq!(margin(490, 0, &apart(0)), 500 * MS);
        // Each answer of the follower reports a request.
        let dense: Vec<_> = (0..12).map(|n| (8100 + 150 * n, 8110 + 150 * n)).collect();
        assert_eq!(margin(1000, 0, &dense), 1000 * MS);
        // Except one.
        let gap: Vec<_> = dense.iter().copied().filter(|(sent, _)| !(8800..9900).contains(sent)).collect();
        assert_eq!(margin(1000, 0, &gap), 1300 * MS);
    }

    #[test]
    fn a_process_that_stood_still_has_a_wide_margin() {
        assert_eq!(margin(1000, 0, &[(500, 510), (2000, 2010)]), 8000 * MS);
        // The answer may have arrived long ago without being read, or just now.
        assert_eq!(margin(1000, 0, &[(500, 510), (2000, 9990)]), 9500 * MS);
        // A request that waited at the server for that long.
        assert_eq!(margin(3000, 0, &[(1000, 1010), (2500, 6990), (6980, 9990)]), 7500 * MS);
    }

    #[test]
    fn a_new_connection_counts_from_its_beginning() {
        assert_eq!(margin(1000, 9990, &[]), 10 * MS);
        assert_eq!(margin(1000, 5000, &[]), 5000 * MS);
        assert_eq!(margin(1000, 9500, &[(9600, 9610)]), 500 * MS);
        assert_eq!(margin(1000, 8000, &[(8500, 8510)]), 1500 * MS);
        // Requests that were sent before the new connection do not count.
        let mut touches = Touches::new(10_000 * MS, 1000 * MS, Instant::now());
        touches.answered(Instant::now());
        let resumed = Instant::now() + 3000 * MS;
        touches.resume(resumed);
        assert_eq!(touches.deadline(resumed + 5000 * MS), resumed + 9800 * MS);
        assert_eq!(touches.last(), resumed);
    }
}
