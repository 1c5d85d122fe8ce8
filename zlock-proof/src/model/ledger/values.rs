//! Writes of a value over a lane, with the real `Lanes` and `WriteAttempts`: an attempt whose answer is lost is repeated over the lane
//! once that is raised again. The store has a synchronous replica, which takes over without what it has not confirmed. Sessions end,
//! and somebody else deletes the value.

use std::collections::BTreeMap;

use zlock_core::kit::{SessionKey, WriteAttempts};
use zlock_core::{SessionId, Version, WriteOutcome};
use zlock_ledger::{Fit, Lanes, Wire};

use super::super::search::Wrong;
use super::{Case, Steps, Subject};

const TWICE: Wrong = "a write took effect twice";
const UNTRUE: Wrong = "an outcome that is not true";
const LOST: Wrong = "a confirmed write that is lost";
const TOO_LATE: Wrong = "a dropped write after a read";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    Number,
    Receipt,
    Own,
    EarlierSessions,
    Durable,
    ReadInOrder,
}

/// How often each of these can happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    writes: usize,
    breaks: u8,
    losses: u8,
    failovers: u8,
    /// How often the value is deleted by somebody else.
    deletes: u8,
    drops: u8,
    reads: u8,
    /// Whether the value is missing at first.
    is_missing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Request {
    Read,
    /// The number of the write, what it expects, and whether it looks for a receipt.
    Write(usize, Option<u8>, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Answer {
    Read,
    Written,
    /// The receipt of an earlier attempt.
    Found,
    Conflict,
    Stale,
    Over,
}

/// What a server has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Store {
    value: Option<u8>,
    number: u8,
    applied: Vec<usize>,
    /// The write of the session's receipt.
    receipt: Option<usize>,
    session: u64,
    lane: u8,
}

/// A request on its way: its number, the session and the lane.
type Sent = (u64, u64, u8, Request);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Writing {
    write: usize,
    expected: Option<u8>,
    attempts: WriteAttempts,
    is_ambiguous: bool,
    is_sent: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    store: Store,
    replica: Store,
    wire: Vec<Sent>,
    answers: Vec<(u64, Answer)>,
    session: u64,
    lanes: Lanes<()>,
    requests: BTreeMap<u64, Request>,
    /// The number of a lane, and whether that was answered.
    lane: Option<(u8, bool)>,
    writing: Option<Writing>,
    begun: usize,
    seen: Option<u8>,
    /// The writes that were reported as written, that were dropped, and that must not take effect any more.
    written: Vec<usize>,
    dropped: Vec<usize>,
    void: Vec<usize>,
    left: Run,
    wrong: Option<Wrong>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Receipts;

impl State {
    fn push(&mut self, request: Request) {
        let number = self.lanes.push([()]);
        self.requests.insert(number, request);
    }

    fn give_up(&mut self) {
        let numbers = self.lanes.given_up(Wire::Fast);
        (self.lane, self.answers) = (None, Vec::new());
        for number in numbers {
            match self.requests.remove(&number) {
                Some(Request::Read) => self.push(Request::Read),
                Some(Request::Write(write, ..)) => self.unknown(write),
                None => {}
            }
        }
    }

    fn writes(&mut self, write: usize) -> Option<&mut Writing> {
        self.writing.as_mut().filter(|writing| writing.write == write)
    }

    fn unknown(&mut self, write: usize) {
        if let Some(writing) = self.writes(write) {
            (writing.is_sent, writing.is_ambiguous) = (false, true);
        }
    }

    /// A read was answered: what was dropped has taken effect, or never will.
    fn read(&mut self, value: Option<u8>) {
        self.seen = value;
        let late = self.dropped.iter().filter(|write| !self.store.applied.contains(write));
        self.void = late.copied().collect();
    }
}

impl Case<Receipts> {
    fn attempt(&self, state: &mut State) {
        let key = SessionKey { epoch: state.session, id: SessionId::new(state.session) };
        let Some(writing) = &mut state.writing else { return };
        let version = writing.expected.map(|number| Version::new(1, number.into()));
        if !writing.attempts.begin(key, version, writing.is_ambiguous) {
            // The error says that the outcome is unknown.
            state.writing = None;
            return;
        }
        writing.is_sent = true;
        let request = Request::Write(writing.write, writing.expected, writing.is_ambiguous);
        state.push(request);
    }

    fn serve(&self, state: &mut State, at: usize) {
        let (number, session, lane, request) = state.wire.remove(at);
        let store = &mut state.store;
        let answer = match request {
            _ if session != store.session => Answer::Over,
            _ if lane != store.lane && self.has(Rule::Number) => Answer::Stale,
            Request::Read => Answer::Read,
            Request::Write(write, expected, looks) => {
                let finds = store.receipt == Some(write) || store.receipt.is_some() && !self.has(Rule::Own);
                if looks && finds && self.has(Rule::Receipt) {
                    Answer::Found
                } else if store.value == expected {
                    if store.applied.contains(&write) {
                        state.wrong = Some(TWICE);
                    } else if state.void.contains(&write) {
                        state.wrong = Some(TOO_LATE);
                    }
                    store.number += 1;
                    (store.value, store.receipt) = (Some(store.number), Some(write));
                    store.applied.push(write);
                    Answer::Written
                } else {
                    Answer::Conflict
                }
            }
        };
        if state.session == session && state.lane == Some((lane, true)) {
            state.answers.push((number, answer));
        }
    }

    fn hear(&self, state: &mut State) {
        let (number, answer) = state.answers.remove(0);
        state.lanes.answered(Wire::Fast, number, false);
        let request = state.requests.remove(&number);
        match (answer, request) {
            (Answer::Read, _) => state.read(state.store.value),
            (Answer::Stale | Answer::Over, request) => {
                if let Some(Request::Write(write, ..)) = request {
                    state.writes(write).into_iter().for_each(|writing| writing.is_sent = false);
                }
                state.give_up();
            }
            (_, Some(Request::Write(write, ..))) => {
                let Some(writing) = state.writes(write).cloned() else { return };
                let is_written = matches!(answer, Answer::Written | Answer::Found);
                let outcome = match is_written {
                    true => WriteOutcome::Written(Version::new(1, 1)),
                    false => WriteOutcome::Conflict(None),
                };
                let is_known = writing.attempts.is_conclusive(&outcome) || !self.has(Rule::EarlierSessions);
                if is_known && state.store.applied.contains(&write) != is_written {
                    state.wrong = Some(UNTRUE);
                }
                if is_written {
                    state.written.push(write);
                }
                state.writing = None;
            }
            _ => {}
        }
    }

    /// Sends the next request over the lane, if there is one.
    fn send(&self, state: &mut State) -> Option<()> {
        let (lane, true) = state.lane? else { return None };
        let is_gone = |number: &u64| match state.requests.get(number) {
            Some(Request::Write(write, ..)) => state.writing.as_ref().is_none_or(|now| now.write != *write),
            _ => false,
        };
        let fits = |number| if is_gone(&number) { Fit::Gone } else { Fit::Fits };
        let (taken, gone) = state.lanes.take(Wire::Fast, fits);
        for number in &taken {
            state.wire.push((*number, state.session, lane, *state.requests.get(number)?));
        }
        (!taken.is_empty() || !gone.is_empty()).then_some(())
    }
}

const RUN: Run =
    Run { writes: 2, breaks: 1, losses: 0, failovers: 0, deletes: 1, drops: 1, reads: 1, is_missing: true };

impl Subject for Receipts {
    type State = State;
    type Rule = Rule;
    type Run = Run;

    const SUBJECT: &'static str = "receipts";
    const RULES: &'static [(Rule, &'static str, Wrong)] = &[
        (Rule::Number, "an attempt is repeated over a raised lane: over any", TWICE),
        (Rule::Receipt, "a repeated attempt finds its receipt: it does not look", UNTRUE),
        (Rule::Own, "a receipt names its write: it does not", UNTRUE),
        (Rule::EarlierSessions, "an attempt of an earlier session leaves a conflict unknown: known", UNTRUE),
        (Rule::Durable, "a raise waits for what the replica has not confirmed: it does not", LOST),
        (Rule::ReadInOrder, "a read after a dropped write is sent over its lane: it is not", TOO_LATE),
    ];

    const QUICK: &'static [Run] = &[RUN, Run { failovers: 1, writes: 1, ..RUN }];
    const MORE: &'static [Run] = &[
        Run { losses: 1, failovers: 1, ..RUN },
        Run { breaks: 2, is_missing: false, ..RUN },
        Run { breaks: 2, losses: 1, ..RUN },
    ];

    fn first(case: &Case<Self>) -> State {
        let seen = (!case.run.is_missing).then_some(0);
        let store = Store { value: seen, ..Store::default() };
        State { store: store.clone(), replica: store, seen, left: case.run, ..State::default() }
    }

    fn steps(case: &Case<Self>, state: &State, steps: &mut Steps<'_, Self>) {
        match &state.writing {
            None => {
                if state.begun < case.run.writes {
                    steps.step("begins to write", state.begun, |state| {
                        let (write, expected) = (state.begun, state.seen);
                        state.begun += 1;
                        let (attempts, is_ambiguous) = (WriteAttempts::default(), false);
                        state.writing =
                            Some(Writing { write, expected, attempts, is_ambiguous, is_sent: false });
                    });
                }
                let is_in_order = state.lanes.concerns(&()) && case.has(Rule::ReadInOrder);
                if state.left.reads == 0 || state.requests.values().any(|request| *request == Request::Read) {
                    // Nothing is read.
                } else if is_in_order {
                    steps.step("reads over the lane", 0, |state| {
                        state.left.reads -= 1;
                        state.push(Request::Read);
                    });
                } else {
                    steps.step("reads", 0, |state| {
                        state.left.reads -= 1;
                        state.read(state.store.value);
                    });
                }
            }
            Some(writing) => {
                if !writing.is_sent {
                    steps.step("makes an attempt", writing.write, |state| case.attempt(state));
                }
                if state.left.drops > 0 {
                    steps.fault("DROPS the write", writing.write, |state| {
                        state.left.drops -= 1;
                        state.writing = None;
                        state.dropped.push(state.begun - 1);
                    });
                }
            }
        }
        if state.lane.is_none() && state.lanes.needs(Wire::Fast) {
            steps.step("raises the lane", 0, |state| {
                state.store.lane += 1;
                state.lane = Some((state.store.lane, false));
            });
        }
        if let Some((lane, false)) = state.lane
            && (state.replica.lane == lane || !case.has(Rule::Durable))
        {
            steps.step("has the lane", 0, |state| {
                state.lane = Some((lane, true));
                state.lanes.raised(Wire::Fast);
            });
        }
        if case.send(&mut state.clone()).is_some() {
            steps.step("sends", 0, |state| {
                case.send(state);
            });
        }
        for (at, sent) in state.wire.iter().enumerate() {
            // In the order of the connection.
            if state.wire[..at].iter().all(|before| (before.1, before.2) != (sent.1, sent.2)) {
                steps.step("store executes", at, |state| case.serve(state, at));
            }
        }
        // What it has changed is confirmed before it is answered.
        let is_confirmed = |(number, answer): &(u64, Answer)| match (answer, state.requests.get(number)) {
            (Answer::Written, Some(Request::Write(write, ..))) => state.replica.applied.contains(write),
            _ => true,
        };
        if state.answers.first().is_some_and(is_confirmed) {
            steps.step("hears", 0, |state| case.hear(state));
        }
        if state.replica != state.store {
            steps.step("replica confirms", 0, |state| state.replica = state.store.clone());
        }
        if state.left.breaks > 0 && state.lane.is_some() {
            steps.fault("GIVES UP the lane", 0, |state| {
                state.left.breaks -= 1;
                state.give_up();
            });
        }
        if state.left.failovers > 0 {
            steps.fault("REPLICA PROMOTED", 0, |state| {
                state.left.failovers -= 1;
                state.store = state.replica.clone();
                state.give_up();
            });
        }
        if state.left.losses > 0 {
            steps.fault("the session ENDS, and another begins", 0, |state| {
                (state.left.losses, state.session) = (state.left.losses - 1, state.session + 1);
                state.give_up();
                (state.lanes, state.requests) = (Lanes::default(), BTreeMap::new());
                if let Some(writing) = &mut state.writing {
                    writing.is_sent = false;
                }
                (state.store.session, state.store.receipt, state.store.lane) = (state.session, None, 0);
                state.replica = state.store.clone();
            });
        }
        if state.left.deletes > 0 && state.store.value.is_some() {
            steps.fault("somebody DELETES", 0, |state| {
                (state.left.deletes, state.store.value) = (state.left.deletes - 1, None);
            });
        }
    }

    fn wrong(_: &Case<Self>, state: &State) -> Option<Wrong> {
        let is_lost = state.written.iter().any(|write| !state.store.applied.contains(write));
        state.wrong.or(is_lost.then_some(LOST))
    }

    fn run_without(rule: Rule) -> Run {
        match rule {
            Rule::EarlierSessions => Run { losses: 1, is_missing: false, ..RUN },
            Rule::Durable => Run { failovers: 1, writes: 1, drops: 0, ..RUN },
            Rule::Number => Run { drops: 0, ..RUN },
            _ => RUN,
        }
    }
}
