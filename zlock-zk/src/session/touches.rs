//! The instant from which any leader certainly counts the timeout of a session.
//!
//! There are two ways in which a session may end too early, and the deadline has to be before both.
//!
//! *Another leader ends it.* A leader that lost its majority does not know it for `syncLimit` ticks. Until then it answers a
//! `sync`, and resumes sessions. The next leader gives each session one timeout from its own election. A committed write
//! proves that no other leader had been elected when the write was sent. So the deadline counts at most from the last
//! committed write of the session, on whichever connection: a create, a delete, a relabel, or a heartbeat that checks an own
//! node in a transaction.
//!
//! *The leader of this connection ends it.* It does not see what a client sends to a follower. With its answers to the
//! leader's pings, one every half tick, a follower reports the sessions from which it has received requests. All requests of
//! one connection go to one leader, because a follower that gets another one drops its clients. An answered request P is
//! reported for certain when a later request R has passed through the leader, under two conditions:
//!
//! - *A half tick of the leader's life lies between them*, in which it has sent a ping. A leader that stands still sends none,
//!   but it answers none either. So if it stood still once, that was between two of its answers, and the longest time between
//!   two of them, from the request of the first one to the second one, does not count as life.
//! - The requests have an order: what was reported before R on the way from the follower is handled before R.
//!
//! Then the leader counts from P, or from later. A gap that is longer than planned, because the process or the connection was
//! stalled, widens the margin by itself. The client library's pings are useless here, because it is not visible whether and
//! when they are sent.
//!
//! Not covered is a leader that stands still twice between P and R, or once while its messages to the follower are delayed,
//! if the follower then dies before its next report.
//!
//! For a new session and a resumed connection, R is not needed, because the leader itself takes part in them. When that
//! was is not known: at the earliest, when the connect began, or when the client last saw the connection before.
//!
//! `zlock-proof/src/model/proof.rs` checks these rules.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The number of requests that are kept. They are at least one heartbeat interval apart, and requests older than two thirds of
/// a session timeout are useless.
const KEPT: usize = 10;

/// What is known about a session, and the answered requests of one connection.
#[derive(Debug)]
pub(crate) struct Touches {
    half_tick: Duration,
    /// How long the leader keeps a session without a report of it, less a margin for clock drift.
    life: Duration,
    /// The leader had begun the session, or resumed it, at this instant or later.
    begun: Instant,
    /// When the last write was sent that is committed.
    written: Instant,
    answered: VecDeque<Answered>,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
struct Answered {
    sent: Instant,
    at: Instant,
}

impl Touches {
    /// Begins with a session whose creation, which is a write, was sent at this instant or later.
    pub(crate) fn new(timeout: Duration, half_tick: Duration, begun: Instant) -> Self {
        Touches { half_tick, life: life(timeout), begun, written: begun, answered: VecDeque::new() }
    }

    /// Records a new connection to a server, given when the one before was last seen, if it was. The leader took part in the
    /// new one after that. Nothing later is certain: the process may have stood still since.
    pub(crate) fn resume(&mut self, connected: Option<Instant>) {
        let last = self.answered.back().map(|last| last.sent).max(connected);
        self.begun = last.map_or(self.begun, |last| self.begun.max(last));
        self.answered.clear();
    }

    /// Records a request that the leader has just answered.
    pub(crate) fn answered(&mut self, sent: Instant) {
        if self.answered.len() == KEPT {
            self.answered.pop_front();
        }
        self.answered.push_back(Answered { sent, at: Instant::now() });
    }

    /// Records a write of this session that is committed.
    pub(crate) fn wrote(&mut self, sent: Instant) {
        self.written = self.written.max(sent);
    }

    /// Returns when the last write was sent that is committed.
    pub(crate) fn written(&self) -> Instant {
        self.written
    }

    /// Returns the deadline of a session that owns a node, given a request through the leader that was just answered.
    pub(crate) fn deadline(&self, sent: Instant) -> Instant {
        let request = Answered { sent, at: Instant::now() };
        self.counted_from(request).min(self.written) + self.life
    }

    /// Returns the deadline of a session that owns no node, given a request that was just answered. No hold may rely on it.
    pub(crate) fn deadline_at_rest(&self, sent: Instant) -> Instant {
        sent + self.life
    }

    /// Returns from when the leader of this connection counts at least.
    fn counted_from(&self, request: Answered) -> Instant {
        // The leader may have stood still for this time after a request in the list, and may have answered the one after that
        // at this instant.
        let (mut still, mut next) = (Duration::ZERO, request.sent);
        for one in self.answered.iter().rev() {
            let longest = still.max(next.saturating_duration_since(one.at));
            if request.sent.saturating_duration_since(one.at) >= longest + self.half_tick {
                return one.sent.max(self.begun);
            }
            still = still.max(next.saturating_duration_since(one.sent));
            next = one.at.min(request.sent);
        }
        self.begun
    }
}

fn life(timeout: Duration) -> Duration {
    timeout - timeout / 50
}

/// Returns the time from sending a heartbeat to the deadline that follows from its answer, as long as no heartbeat is late.
/// `unwritten` is the time until the next write.
pub(crate) fn usual_life(
    timeout: Duration,
    half_tick: Duration,
    interval: Duration,
    unwritten: Duration,
) -> Duration {
    let beats = half_tick.div_duration_f64(interval).ceil() + 1.0;
    life(timeout).saturating_sub(interval.mul_f64(beats).max(unwritten))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns touches that know these requests, all answered by the leader, and that a write was sent just now.
    fn touches(zero: Instant, half_tick: u32, begun: u32, answered: &[(u32, u32)]) -> Touches {
        let mut touches = Touches::new(10_000 * MS, half_tick * MS, zero + begun * MS);
        touches.wrote(zero + 10_000 * MS);
        let answered =
            answered.iter().map(|(sent, at)| Answered { sent: zero + *sent * MS, at: zero + *at * MS });
        touches.answered.extend(answered);
        touches
    }

    /// Returns how long before a request, which is sent after 10 s and takes 10 ms, the leader counts from at least.
    fn margin_of(zero: Instant, touches: &Touches) -> Duration {
        let sent = zero + 10_000 * MS;
        sent - touches.counted_from(Answered { sent, at: sent + 10 * MS })
    }

    fn margin(half_tick: u32, begun: u32, answered: &[(u32, u32)]) -> Duration {
        let zero = Instant::now();
        margin_of(zero, &touches(zero, half_tick, begun, answered))
    }

    #[test]
    fn the_leader_lived_for_half_a_tick_besides_the_longest_gap() {
        // A request every 1.5 s.
        let apart = [4000, 5500, 7000, 8500].map(|sent| (sent, sent + 10));
        assert_eq!(margin(1000, 0, &apart), 3000 * MS);
        assert_eq!(margin(1490, 0, &apart), 3000 * MS);
        // Not quite half a tick: a request takes 10 ms.
        assert_eq!(margin(1491, 0, &apart), 4500 * MS);
        assert_eq!(margin(2981, 0, &apart), 6000 * MS);
        // More requests, and smaller gaps.
        let dense: Vec<_> = (0..16).map(|n| (7600 + 150 * n, 7610 + 150 * n)).collect();
        assert_eq!(margin(1000, 0, &dense), 1200 * MS);
        // One was late: for that long, the leader may have stood still.
        let gap: Vec<_> = dense.iter().copied().filter(|(sent, _)| !(8600..9400).contains(sent)).collect();
        assert_eq!(margin(1000, 0, &gap), 1950 * MS);
    }

    #[test]
    fn a_process_that_stood_still_has_a_wide_margin() {
        assert_eq!(margin(1000, 0, &[(500, 510), (1500, 1510), (2600, 2610)]), 8500 * MS);
        // The answer may have arrived long ago without being read, or just now.
        assert_eq!(margin(1000, 0, &[(500, 510), (2000, 2010), (3500, 9990)]), 9500 * MS);
        // A request that waited at the server, and one that was sent before its answer.
        assert_eq!(margin(1000, 0, &[(1000, 1010), (2500, 6990), (6980, 7000)]), 9000 * MS);
        // What was answered only after this request was sent.
        assert_eq!(margin(1000, 0, &[(500, 510), (2000, 2010), (9000, 10_500)]), 9500 * MS);
    }

    #[test]
    fn a_new_connection_counts_from_its_beginning() {
        assert_eq!(margin(1000, 9990, &[]), 10 * MS);
        assert_eq!(margin(1000, 5000, &[]), 5000 * MS);
        assert_eq!(margin(1000, 8000, &[(8500, 8510)]), 2000 * MS);
        assert_eq!(margin(1000, 6000, &[(7000, 7010), (8500, 8510)]), 3000 * MS, "they are too far apart");
    }

    #[test]
    fn a_resumed_connection_counts_from_the_last_answer_before_it() {
        let zero = Instant::now();
        let mut touches = touches(zero, 1000, 0, &[(6000, 6010), (7000, 7010)]);
        touches.resume(Some(zero));
        assert_eq!(margin_of(zero, &touches), 3000 * MS);
        touches.resume(Some(zero + 6500 * MS));
        assert_eq!(margin_of(zero, &touches), 3000 * MS, "no request in between");
        touches.resume(Some(zero + 7500 * MS));
        assert_eq!(margin_of(zero, &touches), 2500 * MS, "it was seen later");
    }

    #[test]
    fn a_deadline_counts_at_most_from_the_last_write() {
        let zero = Instant::now();
        let mut touches = Touches::new(10_000 * MS, 1000 * MS, zero);
        for (sent, at) in [(2000, 2010), (4000, 4010)] {
            touches.answered.push_back(Answered { sent: zero + sent * MS, at: zero + at * MS });
        }
        let sent = zero + 6000 * MS;
        assert_eq!(touches.deadline(sent), zero + 9800 * MS);
        touches.wrote(zero + 1000 * MS);
        assert_eq!(touches.deadline(sent), zero + 10_800 * MS);
        touches.wrote(zero + 500 * MS);
        assert_eq!(touches.written(), zero + 1000 * MS);
        touches.wrote(zero + 5000 * MS);
        assert_eq!(touches.deadline(sent), zero + 11_800 * MS);
        assert_eq!(touches.deadline_at_rest(sent), zero + 15_800 * MS);
    }

    #[test]
    fn the_usual_life_of_a_session() {
        let usual = |half_tick| usual_life(10_000 * MS, half_tick * MS, 875 * MS, 2625 * MS);
        assert_eq!(usual(1000), 7175 * MS);
        assert_eq!(usual(2500), 6300 * MS);
        assert_eq!(usual(100), 7175 * MS);
        assert_eq!(usual(4800), 3675 * MS);
    }
}
