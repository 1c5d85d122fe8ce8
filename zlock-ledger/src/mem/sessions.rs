//! The sessions: their begin, their heartbeats and their end.

use std::collections::BTreeMap;
use std::time::Duration;

use zlock_core::SessionId;

use super::state::State;
use super::tables::Session;
use crate::{Beat, Beaten, Begin, End, Ended, Fault, History, Kind, Scope, Seen};

impl State {
    pub(crate) fn begin(&mut self, begin: &Begin) -> Result<History, Fault> {
        if begin.timeout > self.settings.longest {
            let longest = self.settings.longest;
            return Err(Fault::Invalid(format!("the session timeout is longer than {longest:?}")));
        }
        let exists = self.tables.session(begin.session).is_some();
        if exists || self.tables.owned(begin.session).next().is_some() {
            return Err(Fault::Unexpected(format!("the session {} exists", begin.session)));
        }
        if begin.last.is_some_and(|last| self.is_in_flight(last)) {
            return Err(Fault::Busy);
        }
        if self.tables.watched(self.since).is_none() {
            // Nothing was granted since the last lift if the quiet time after it was not over.
            let was_over = self.tables.last_watched().is_none_or(|watched| watched >= self.quiet());
            self.tables.set_watched(self.since, Duration::ZERO);
            let half = if was_over { micros(self.settings.longest / 2) } else { 0 };
            let lifted = micros(self.clock).max(self.tables.number().saturating_add(half));
            self.tables.set_number(lifted);
            self.commit(true);
        }
        if let Some(last) = begin.last {
            let mut room = usize::MAX;
            self.end_one(End { session: last, beat: None }, &[], &mut room);
        }
        let session = Session {
            swept: self.live,
            beat: 0,
            timeout: begin.rest,
            owning: begin.timeout,
            watched: Duration::ZERO,
            lanes: BTreeMap::new(),
        };
        self.tables.set_session(begin.session, session);
        self.commit(true);
        Ok(self.history())
    }

    pub(crate) fn beat(&mut self, id: SessionId, beat: &Beat) -> Result<Beaten, Fault> {
        let session = self.session(id)?.clone();
        let swept = session.swept;
        let owns = self.tables.owned(id).next().is_some();
        let mut added = false;
        if beat.number > session.beat {
            // Nobody would wait for as long as it rests, if it dies now.
            let (number, timeout) =
                (beat.number, if owns { beat.timeout.min(session.owning) } else { beat.timeout });
            self.tables
                .set_session(id, Session { beat: number, timeout, watched: Duration::ZERO, ..session });
            if let Some((incarnation, watched, span)) = beat.watched
                && incarnation == self.live
                && self.watched_quiet() == Some(watched)
            {
                self.tables.set_watched(self.since, watched + whole_millis(span));
                added = true;
            }
        }
        self.commit(true);
        let exists = |(scope, key): &(Scope, String)| {
            self.tables.entry(scope, key).is_some_and(|entry| entry.owner == Some(id))
        };
        Ok(Beaten {
            history: self.history(),
            swept,
            exists: beat.known.iter().map(exists).collect(),
            owns,
            added,
        })
    }

    /// Gives a session at rest the timeout with which it owns something.
    pub(crate) fn wake(&mut self, id: SessionId) {
        let session = self.tables.session(id).filter(|session| session.timeout > session.owning).cloned();
        if let Some(session) = session {
            let timeout = session.owning;
            self.tables.set_session(id, Session { timeout, watched: Duration::ZERO, ..session });
        }
    }

    pub(crate) fn nodes(&self, session: SessionId) -> Result<(u64, Vec<String>), Fault> {
        self.session(session)?;
        let nodes = self.tables.owned(session).filter(|(scope, _)| scope.kind == Kind::Queue);
        Ok((self.live, nodes.map(|(_, key)| key.to_owned()).collect()))
    }

    pub(crate) fn sweep(&mut self, id: SessionId, incarnation: u64, nodes: &[String]) -> Result<bool, Fault> {
        let session = self.session(id)?.clone();
        if incarnation != self.live {
            return Ok(false);
        }
        let owned = self.tables.owned(id).filter(|(scope, _)| scope.kind == Kind::Queue);
        let named: Vec<(Scope, String)> = owned
            .filter(|(_, key)| nodes.iter().any(|node| node == key))
            .map(|(scope, key)| (scope.clone(), key.to_owned()))
            .collect();
        if named.iter().any(|(scope, key)| self.is_protected(scope, key)) {
            return Err(Fault::Busy);
        }
        for (scope, key) in named {
            self.delete(&scope, &key);
        }
        self.tables.set_session(id, Session { swept: self.live, ..session });
        self.commit(true);
        Ok(true)
    }

    pub(crate) fn look(&self, sessions: &[SessionId]) -> Vec<Seen> {
        sessions.iter().filter_map(|session| self.seen(*session)).collect()
    }

    fn seen(&self, id: SessionId) -> Option<Seen> {
        let Session { beat, timeout, watched, .. } = *self.session(id).ok()?;
        Some(Seen { session: id, beat, timeout, watched })
    }

    pub(crate) fn watched(&mut self, seen: &[(Seen, Duration)]) {
        for (seen, span) in seen {
            let Ok(session) = self.session(seen.session) else { continue };
            let span = whole_millis(*span);
            if self.seen(seen.session) == Some(*seen) && !span.is_zero() {
                let session = Session { watched: seen.watched + span, ..session.clone() };
                self.tables.set_session(seen.session, session);
            }
        }
        self.commit(false);
    }

    pub(crate) fn end(&mut self, sessions: &[End], first: &[Scope]) -> Vec<Ended> {
        let mut room = self.settings.removes;
        let ended = sessions.iter().map(|end| self.end_one(*end, first, &mut room)).collect();
        self.commit(true);
        ended
    }

    /// Ends a session, and removes no more than `room` of its entries.
    fn end_one(&mut self, end: End, first: &[Scope], room: &mut usize) -> Ended {
        if let (Ok(session), Some(beat)) = (self.session(end.session), end.beat)
            && session.beat != beat
        {
            return Ended::Alive;
        }
        if self.is_in_flight(end.session) {
            return Ended::Busy;
        }
        self.tables.remove_session(end.session);
        let own = self.tables.owned(end.session);
        let (mut removed, rest): (Vec<_>, Vec<_>) = own
            .filter(|(scope, key)| !self.is_protected(scope, key))
            .map(|(scope, key)| (scope.clone(), key.to_owned()))
            .partition(|(scope, _)| first.contains(scope));
        removed.extend(rest);
        let all = removed.len();
        removed.truncate(*room);
        *room -= removed.len();
        for (scope, key) in &removed {
            self.delete(scope, key);
        }
        if removed.len() < all { Ended::More } else { Ended::Over }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Rounds down to milliseconds, in which the store counts.
fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
