//! The state of the model of lanes.

use std::collections::BTreeMap;

use zlock_ledger::{Lanes, Wire};

use super::super::search::Wrong;

/// How often each of these can happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(super) places: usize,
    /// How often each place is used.
    pub(super) uses: u8,
    /// Connections that are given up, locks of another client, calls that are dropped, sessions that are lost, restarts.
    pub(super) breaks: u8,
    pub(super) busy: u8,
    pub(super) drops: u8,
    pub(super) losses: u8,
    pub(super) restarts: u8,
    /// Whether values are written.
    pub(super) writes: bool,
    /// Whether keys are used again, as those of members are.
    pub(super) reuses: bool,
}

/// A request, with the number of the use that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Request {
    Create(usize),
    Delete(usize),
    Write(usize),
}
pub(super) use Request::{Create, Delete, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Done,
    Busy,
    Stale,
    Over,
    GuardGone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Raise {
    Sent,
    /// Executed: the number, or the session is over.
    Answered(u8),
    Over,
    Open(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Connection {
    pub(super) wire: Wire,
    pub(super) session: usize,
    pub(super) raise: Raise,
    pub(super) sent: Vec<(u64, Request)>,
    /// What was accepted, and whether it waits for a lock.
    pub(super) running: Option<(u64, Request, bool)>,
    pub(super) answers: Vec<(u64, Request, Answer)>,
    pub(super) is_ours: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Idle,
    Creates,
    Holds,
    Writes,
    Deletes,
    Done,
}

/// The row of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) numbers: [u8; 2],
    /// What a restart leaves of them.
    pub(super) durable: [u8; 2],
    pub(super) lives: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(super) rows: [Row; 2],
    /// Key, use, session.
    pub(super) nodes: Vec<(usize, usize, usize)>,
    pub(super) written: Vec<usize>,
    /// The scope that another client has locked.
    pub(super) locked: Option<usize>,
    pub(super) connections: Vec<Connection>,
    pub(super) session: usize,
    pub(super) has_begun: bool,
    pub(super) lanes: Lanes<usize>,
    pub(super) requests: BTreeMap<u64, Request>,
    /// The phase and the use of each place.
    pub(super) places: Vec<(Phase, u8)>,
    pub(super) gone: Vec<usize>,
    /// Without `OneLane`: whether each lane was given up with requests unanswered.
    pub(super) unsettled: [bool; 2],
    pub(super) overtaken: u8,
    pub(super) left: Run,
    pub(super) wrong: Option<Wrong>,
}

pub(super) const QUEUE: usize = 0;
pub(super) const VALUE: usize = 1;
pub(super) const WIRES: [Wire; 2] = [Wire::Fast, Wire::Patient];

impl Connection {
    pub(super) fn unanswered(&self) -> usize {
        self.sent.len() + usize::from(self.running.is_some()) + self.answers.len()
    }
}

impl Request {
    /// Returns the scopes that it locks.
    pub(super) fn locks(self) -> Option<usize> {
        match self {
            Create(_) => Some(QUEUE),
            Write(_) => Some(VALUE),
            Delete(_) => None,
        }
    }
}

impl State {
    pub(super) fn connection(&self, wire: Wire) -> Option<usize> {
        self.connections.iter().position(|this| this.is_ours && this.wire == wire)
    }

    pub(super) fn is_gone(&self, request: Request) -> bool {
        let is = |of: usize, phase| {
            let (now, used) = self.places[of % self.places.len()];
            now != phase || usize::from(used) != of / self.places.len()
        };
        match request {
            Create(of) => is(of, Phase::Creates),
            Write(of) => is(of, Phase::Writes),
            Delete(_) => false,
        }
    }

    pub(super) fn is_locked(&self, request: Request, but: usize) -> bool {
        let Some(scope) = request.locks() else { return false };
        let has = |(at, this): (usize, &Connection)| {
            at != but && this.running.is_some_and(|(_, other, waits)| !waits && other.locks() == Some(scope))
        };
        self.locked == Some(scope) || self.connections.iter().enumerate().any(has)
    }

    pub(super) fn wrong(&mut self, wrong: Wrong) {
        self.wrong = self.wrong.or(Some(wrong));
    }

    pub(super) fn next_use(&mut self, place: usize, uses: u8) {
        let used = self.places[place].1 + 1;
        self.places[place] = (if used < uses { Phase::Idle } else { Phase::Done }, used);
    }
}
