//! The deaths of other sessions, by the clock of this process: the decisions, without any I/O.
//!
//! A session is over when nobody has seen another heartbeat of it for its timeout, counted from the receipt of the first answer that
//! showed its last one to the sending of the request that ends it. That request names the heartbeat.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use zlock_core::SessionId;

use crate::ledger::{End, Seen};
use crate::watched::Watched;

/// The number of sessions directly ahead that are looked at each time. The ones further ahead are looked at until they are seen to beat:
/// those behind them look at them, unless all of these are dead.
const NEAR: usize = 4;

/// The number of sessions that are remembered.
const MAX: usize = 10_000;

/// The sessions that this client has a reason to look at, and what it has seen of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Deaths {
    sessions: BTreeMap<SessionId, Observed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Observed {
    /// The instant until which there is a reason to look at it.
    wanted: Instant,
    is_near: bool,
    /// What was seen last, and what was watched of that.
    seen: Option<(Seen, Watched)>,
    /// Whether it was seen to beat, or to be over.
    is_settled: bool,
}

impl Observed {
    fn is_due(&self, now: Instant) -> bool {
        self.wanted >= now && (self.is_near || !self.is_settled)
    }
}

impl Deaths {
    /// Records that these sessions are ahead, the nearest one first, and are to be looked at until an instant. With `again`, also those
    /// that were seen to beat.
    pub fn want(&mut self, ahead: &[SessionId], until: Instant, again: bool) {
        for (position, session) in ahead.iter().enumerate() {
            let new = || Observed { wanted: until, is_near: false, seen: None, is_settled: false };
            let observed = self.sessions.entry(*session).or_insert_with(new);
            observed.wanted = observed.wanted.max(until);
            observed.is_near |= position < NEAR;
            observed.is_settled &= !again;
        }
        while self.sessions.len() > MAX {
            let oldest = self.sessions.iter().min_by_key(|(_, observed)| observed.wanted);
            let Some(oldest) = oldest.map(|(session, _)| *session) else { return };
            self.sessions.remove(&oldest);
        }
    }

    /// Returns the sessions to look at now.
    pub fn due(&self, now: Instant) -> Vec<SessionId> {
        self.sessions
            .iter()
            .filter(|(_, observed)| observed.is_due(now))
            .map(|(session, _)| *session)
            .collect()
    }

    /// Returns `true` if a session that is wanted was never seen. A process that ends soon has to look at once to have watched anything.
    pub(crate) fn has_unseen(&self, now: Instant) -> bool {
        self.sessions.values().any(|observed| observed.wanted >= now && observed.seen.is_none())
    }

    /// Records the answer to a look at these sessions. Returns those that are over, of which entries may remain.
    pub fn looked(&mut self, asked: &[SessionId], found: &[Seen], received: Instant) -> Vec<SessionId> {
        for seen in found {
            let Some(observed) = self.sessions.get_mut(&seen.session) else { continue };
            match &mut observed.seen {
                Some((last, watched)) if (last.beat, last.timeout) == (seen.beat, seen.timeout) => {
                    watched.saw(seen.watched, received, false);
                    *last = *seen;
                }
                last => {
                    observed.is_settled |= last.is_some();
                    *last = Some((*seen, Watched::new(seen.watched, received)));
                }
            }
        }
        let is_over = |session: &&SessionId| !found.iter().any(|seen| seen.session == **session);
        let over: Vec<_> = asked.iter().filter(is_over).copied().collect();
        self.sessions.retain(|session, _| !over.contains(session));
        over
    }

    /// Returns those of the sessions that were just looked at that are over by a request that is sent at `now`. Of others, the last heartbeat
    /// that was seen need not be the last one.
    pub fn overdue(&self, asked: &[SessionId], now: Instant) -> Vec<End> {
        let seen = asked.iter().filter_map(|session| self.sessions.get(session)?.seen.as_ref());
        let overdue = seen.filter(|(seen, watched)| watched.total(now) >= seen.timeout);
        overdue.map(|(seen, _)| End { session: seen.session, beat: Some(seen.beat) }).collect()
    }

    /// Returns the first instant at which a session that is looked at will be overdue unless it beats, and `true` if half of that time
    /// has passed for one that is near.
    pub fn next(&self, now: Instant) -> (Option<Instant>, bool) {
        let mut next = None::<Instant>;
        let mut is_silent = false;
        for observed in self.sessions.values().filter(|observed| observed.is_due(now)) {
            let Some((seen, watched)) = &observed.seen else { continue };
            let remaining = seen.timeout.saturating_sub(watched.total(now));
            is_silent |= observed.is_near && remaining <= seen.timeout / 2;
            next = Some(next.map_or(now + remaining, |next| next.min(now + remaining)));
        }
        (next, is_silent)
    }

    /// Forgets what was seen of a session.
    pub fn forget(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    /// Returns what a client that gives up has watched of each session, so that others need not begin anew.
    pub fn spans(&mut self, now: Instant) -> Vec<(Seen, Duration)> {
        let seen = self.sessions.values_mut().filter_map(|observed| observed.seen.as_mut());
        seen.filter_map(|(seen, watched)| watched.send(now).map(|(_, span)| (*seen, span))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn seen(session: u64, beat: u64, watched: Duration) -> Seen {
        Seen { session: SessionId::new(session), beat, timeout: 10 * SECOND, watched }
    }

    fn ids(sessions: impl IntoIterator<Item = u64>) -> Vec<SessionId> {
        sessions.into_iter().map(SessionId::new).collect()
    }

    #[test]
    fn a_session_is_overdue_once_the_same_beat_was_seen_for_its_timeout() {
        let (now, mut deaths, one) = (Instant::now(), Deaths::default(), ids([1]));
        deaths.want(&one, now + 60 * SECOND, false);
        assert_eq!(deaths.due(now), one);
        let look = |deaths: &mut Deaths, beat, watched, at| {
            deaths.looked(&one, &[seen(1, beat, watched)], now + at);
        };
        look(&mut deaths, 7, Duration::ZERO, SECOND);
        look(&mut deaths, 7, Duration::ZERO, 9 * SECOND);
        assert!(deaths.overdue(&one, now + 10 * SECOND).is_empty());
        assert_eq!(deaths.next(now + 10 * SECOND), (Some(now + 11 * SECOND), true));
        let end = End { session: one[0], beat: Some(7) };
        assert_eq!(deaths.overdue(&one, now + 11 * SECOND), [end]);
        look(&mut deaths, 8, Duration::ZERO, 10 * SECOND);
        assert!(deaths.overdue(&one, now + 19 * SECOND).is_empty(), "it has beaten");
        // Others have watched it, too.
        look(&mut deaths, 8, 6 * SECOND, 11 * SECOND);
        assert!(deaths.overdue(&one, now + 14 * SECOND).is_empty());
        assert_eq!(deaths.overdue(&one, now + 15 * SECOND).len(), 1);
    }

    #[test]
    fn those_that_beat_are_looked_at_only_if_they_are_near() {
        let (now, mut deaths, all) = (Instant::now(), Deaths::default(), ids(1..=100));
        deaths.want(&all, now + 60 * SECOND, false);
        let look = |deaths: &mut Deaths, beat| {
            let found: Vec<_> = (1..=90).map(|session| seen(session, beat, Duration::ZERO)).collect();
            deaths.looked(&all, &found, now)
        };
        assert_eq!(look(&mut deaths, 1), ids(91..=100), "these are over");
        assert_eq!(deaths.due(now).len(), 90);
        look(&mut deaths, 2);
        assert_eq!(deaths.due(now), ids(1..=4));
        let late = now + 11 * SECOND;
        assert_eq!(deaths.overdue(&deaths.due(late), late).len(), 4, "of the others, nobody knows");
        deaths.want(&ids(1..=90), now + 60 * SECOND, true);
        assert_eq!(deaths.due(now).len(), 90);
        assert!(deaths.due(now + 61 * SECOND).is_empty());
    }
}
