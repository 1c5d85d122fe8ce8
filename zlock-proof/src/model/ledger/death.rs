//! The death of a session, which other clients judge by their own clocks with the real `Deaths`. One owner, and observers that wait
//! behind its node. Heartbeats may be late; the owner may begin at rest; the store may be restarted.

use std::time::Duration;

use tokio::time::Instant;
use zlock_core::SessionId;
use zlock_ledger::{Deaths, End, Seen};

use super::super::search::Wrong;
use super::{Case, Steps, Subject, TWO_HOLDERS, instant};

const ORPHAN: Wrong = "a node of a session that is over";
const UNPROTECTED: Wrong = "a user's transaction beside the next holder";

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(3);
const REST: Duration = Duration::from_secs(6);
const OWNER: SessionId = SessionId::new(1);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    FromSend,
    FromReceipt,
    EndNames,
    SpanNames,
    Reset,
    EndWaits,
    FenceStays,
    TimeoutCounts,
    Durable,
    NotMax,
    Margin,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The number of steps, and how long each takes.
    until: u32,
    step: Duration,
    /// How fast the clocks of the owner and of the observers are, in percent.
    rates: (u32, u32),
    observers: usize,
    beats: u8,
    fences: u8,
    restarts: u8,
    /// How often an observer gives up, and adds its span.
    spans: u8,
    rests: bool,
}

/// What the owner has sent: the number, when, and the timeout from then on.
type Beat = (u64, u32, Duration);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Create {
    #[default]
    No,
    Sent,
    Accepted,
    /// Whether it holds.
    Answered(bool),
    Heard(bool),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Observer {
    deaths: Deaths,
    /// When a look was sent, and what it shows.
    look: Option<(u32, Option<Vec<Seen>>)>,
}

/// The row of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Row {
    beat: u64,
    timeout: Duration,
    watched: Duration,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: u32,
    lives: bool,
    row: Row,
    /// What a restart leaves of it.
    durable: Row,
    node: bool,
    /// A user's transaction relies on the node.
    is_fenced: bool,
    is_gone: bool,
    next: u64,
    /// `None` at rest.
    deadline: Option<Duration>,
    /// The deadline that is proved since the rest.
    proved: Option<Duration>,
    beats: Vec<Beat>,
    answers: Vec<Beat>,
    create: Create,
    observers: Vec<Observer>,
    ends: Vec<End>,
    spans: Vec<(Seen, Duration)>,
    is_granted: bool,
    is_orphan: bool,
    left: (u8, u8, u8, u8),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Death;

impl Case<Death> {
    fn owners_clock(&self, at: u32) -> Duration {
        self.run.step * at * self.run.rates.0 / 100
    }

    fn life(&self) -> Duration {
        if self.has(Rule::Margin) { TIMEOUT - TIMEOUT / 10 } else { TIMEOUT }
    }

    fn clock(&self, at: u32) -> Instant {
        instant(self.run.step * at, self.run.rates.1)
    }

    fn observer(&self) -> Observer {
        let mut deaths = Deaths::default();
        deaths.want(&[OWNER], instant(SECOND * 1000, 100), true);
        Observer { deaths, look: None }
    }

    fn send_beat(&self, state: &mut State) {
        state.beats.push((state.next, state.now, TIMEOUT));
        state.next += 1;
    }

    fn count_beat(&self, state: &mut State, at: usize) {
        let beat = state.beats.remove(at);
        let (number, _, timeout) = beat;
        if !state.lives {
            state.is_gone = true;
            return;
        }
        if number > state.row.beat {
            let is_counted = self.has(Rule::TimeoutCounts) || timeout == state.row.timeout;
            let watched = if self.has(Rule::Reset) { Duration::ZERO } else { state.row.watched };
            let (beat, watched) =
                if is_counted { (number, watched) } else { (state.row.beat, state.row.watched) };
            state.row = Row { beat, timeout, watched };
            if self.has(Rule::Durable) {
                state.durable = state.row;
            }
        }
        state.answers.push(beat);
    }

    fn hear_beat(&self, state: &mut State, at: usize) {
        let (_, sent, _) = state.answers.remove(at);
        let from = self.owners_clock(if self.has(Rule::FromSend) { sent } else { state.now });
        match state.deadline {
            Some(deadline) => state.deadline = Some(deadline.max(from + self.life())),
            None => state.proved = state.proved.max(Some(from + self.life())),
        }
    }

    /// The owner knows that it has the node, and until when.
    fn follow_create(&self, state: &mut State) {
        let Create::Answered(first) = state.create else { return };
        if let (None, Some(proved)) = (state.deadline, state.proved) {
            let longest = REST - REST / 10;
            state.deadline = Some(if self.has(Rule::NotMax) { proved } else { proved.max(longest) });
        }
        if state.deadline.is_some() {
            state.create = Create::Heard(first);
        }
    }

    fn end(&self, state: &mut State, end: End) {
        let is_other = end.beat.is_some_and(|beat| beat != state.row.beat) && self.has(Rule::EndNames);
        if is_other || state.create == Create::Accepted && self.has(Rule::EndWaits) {
            return;
        }
        state.lives = false;
        state.node &= state.is_fenced && self.has(Rule::FenceStays);
        state.is_granted |= !state.node;
    }

    fn owner_steps(&self, state: &State, steps: &mut Steps<'_, Death>) {
        if !state.is_gone && state.left.0 > 0 && state.deadline.is_some() {
            steps.step("owner beats", 0, |state| {
                state.left.0 -= 1;
                self.send_beat(state);
            });
        }
        (0..state.answers.len()).for_each(|at| {
            steps.step("owner hears of a beat", at, |state| self.hear_beat(state, at));
        });
        match state.create {
            Create::No if !state.is_gone => steps.step("owner creates", 0, |state| {
                state.create = Create::Sent;
                if state.deadline.is_none() {
                    self.send_beat(state);
                }
            }),
            Create::Sent => steps.step("store accepts the create", 0, |state| {
                state.create = if state.lives { Create::Accepted } else { Create::Heard(false) };
            }),
            Create::Accepted => steps.step("store commits the create", 0, |state| {
                (state.is_orphan, state.node) = (!state.lives, true);
                (state.create, state.durable) = (Create::Answered(!state.is_granted), state.row);
            }),
            _ => {}
        }
    }

    fn observer_steps(&self, state: &State, steps: &mut Steps<'_, Death>) {
        for (at, this) in state.observers.iter().enumerate() {
            let now = self.clock(state.now);
            match &this.look {
                None => steps.step("looks", at, |state| state.observers[at].look = Some((state.now, None))),
                Some((sent, None)) => steps.step("store shows", at, |state| {
                    let Row { beat, timeout, watched } = state.row;
                    // Whoever owns something, and dies right after a rest, is not waited for as long as that.
                    let wakes = state.node && timeout == REST;
                    let (timeout, watched) =
                        if wakes { (TIMEOUT, Duration::ZERO) } else { (timeout, watched) };
                    let seen = Seen { session: OWNER, beat, timeout, watched };
                    let seen = if state.lives { vec![seen] } else { Vec::new() };
                    state.observers[at].look = Some((*sent, Some(seen)));
                }),
                Some((sent, Some(seen))) => steps.step("sees", at, |state| {
                    let received = if self.has(Rule::FromReceipt) { now } else { self.clock(*sent) };
                    let this = &mut state.observers[at];
                    this.look = None;
                    if this.deaths.looked(&[OWNER], seen, received).is_empty() {
                        return;
                    }
                    // Its entries may remain.
                    this.deaths = self.observer().deaths;
                    state.node &= state.is_fenced && self.has(Rule::FenceStays);
                    state.is_granted |= !state.node;
                }),
            }
            for end in this.deaths.overdue(&[OWNER], now).into_iter().filter(|end| !state.ends.contains(end))
            {
                steps.step("sends an end", at, |state| state.ends.push(end));
            }
            if state.left.3 > 0 && !this.deaths.clone().spans(now).is_empty() {
                steps.fault("adds its span, and another takes its place", at, |state| {
                    state.left.3 -= 1;
                    let spans = state.observers[at].deaths.spans(now);
                    state.spans.extend(spans);
                    state.observers[at] = self.observer();
                });
            }
        }
        for at in 0..state.ends.len() {
            steps.step("store ends", at, |state| {
                let end = state.ends.remove(at);
                self.end(state, end);
            });
        }
        for at in 0..state.spans.len() {
            steps.step("store adds a span", at, |state| {
                let (seen, span) = state.spans.remove(at);
                let is_same = seen.beat == state.row.beat && seen.timeout == state.row.timeout;
                if state.lives && (is_same || !self.has(Rule::SpanNames)) && seen.watched == state.row.watched
                {
                    state.row.watched += span;
                }
            });
        }
    }
}

const RUN: Run = Run {
    until: 4,
    step: SECOND,
    rates: (100, 100),
    observers: 1,
    beats: 1,
    fences: 0,
    restarts: 0,
    spans: 0,
    rests: false,
};
const DRIFT: Run = Run { step: Duration::from_millis(960), ..RUN };

impl Subject for Death {
    type State = State;
    type Rule = Rule;
    type Run = Run;

    const SUBJECT: &'static str = "the death of sessions";
    const RULES: &'static [(Rule, &'static str, Wrong)] = &[
        (Rule::FromSend, "the owner counts from when it sent the heartbeat: from the answer", TWO_HOLDERS),
        (Rule::FromReceipt, "an observer counts from an answer: from when it asked", TWO_HOLDERS),
        (Rule::EndNames, "an end names the heartbeat: it does not", TWO_HOLDERS),
        (Rule::SpanNames, "watched time names the heartbeat: it does not", TWO_HOLDERS),
        (Rule::Reset, "a heartbeat sets the watched time to nothing: it does not", TWO_HOLDERS),
        (Rule::EndWaits, "an end is put off by a transaction in flight: it is not", ORPHAN),
        (Rule::FenceStays, "a node with a user's transaction stays: it does not", UNPROTECTED),
        (Rule::TimeoutCounts, "a change of the timeout counts as a heartbeat: it does not", TWO_HOLDERS),
        (Rule::Durable, "heartbeats commit durably: a restart undoes them", TWO_HOLDERS),
        (Rule::NotMax, "after the rest, the deadline is what is proved since: that of the rest", TWO_HOLDERS),
        (Rule::Margin, "the owner subtracts a margin for the drift of clocks: none", TWO_HOLDERS),
    ];

    /// Each clock is right to 10 %, and so the two differ by more than the margin.
    const NOT_PROMISED: Option<Run> = Some(Run { rates: (90, 110), ..DRIFT });

    const QUICK: &'static [Run] = &[RUN, Run { rests: true, ..RUN }, Run { rates: (90, 100), ..DRIFT }];
    const MORE: &'static [Run] = &[
        Run { until: 7, beats: 2, ..RUN },
        Run { until: 5, beats: 2, fences: 1, ..RUN },
        Run { until: 5, restarts: 1, ..RUN },
        Run { until: 6, rests: true, ..RUN },
        Run { until: 6, rests: true, spans: 1, ..RUN },
        Run { spans: 2, ..RUN },
        Run { observers: 2, ..RUN },
        Run { restarts: 1, spans: 1, ..RUN },
        Run { rates: (95, 105), ..DRIFT },
        Run { rates: (100, 111), until: 4, spans: 1, ..DRIFT },
    ];

    fn first(case: &Case<Self>) -> State {
        let (run, timeout) = (case.run, if case.run.rests { REST } else { TIMEOUT });
        let row = Row { beat: 1, timeout, watched: Duration::ZERO };
        State {
            lives: true,
            row,
            durable: row,
            next: 2,
            deadline: (!run.rests).then(|| case.life()),
            observers: vec![case.observer(); run.observers],
            left: (run.beats, run.fences, run.restarts, run.spans),
            ..State::default()
        }
    }

    fn steps(case: &Case<Self>, state: &State, steps: &mut Steps<'_, Self>) {
        let is_pending = matches!(state.create, Create::Sent | Create::Accepted);
        if state.is_gone && !is_pending && !state.is_fenced && (state.left.1 == 0 || !state.node) {
            // Nothing can go wrong any more.
            return;
        }
        if state.now < case.run.until {
            steps.step("time", state.now as usize, |state| state.now += 1);
        }
        case.owner_steps(state, steps);
        (0..state.beats.len()).for_each(|at| {
            steps.step("store counts a beat", at, |state| case.count_beat(state, at));
        });
        case.observer_steps(state, steps);
        if state.is_fenced {
            steps.step("user commits", 0, |state| state.is_fenced = false);
        } else if state.node && state.lives && state.left.1 > 0 {
            steps.fault("user's transaction checks the node", 0, |state| {
                (state.is_fenced, state.left.1) = (true, state.left.1 - 1);
            });
        }
        if state.left.2 > 0 {
            steps.fault("RESTART", 0, |state| {
                (state.row, state.is_fenced, state.left.2) = (state.durable, false, state.left.2 - 1);
                if state.create == Create::Accepted {
                    state.create = Create::Heard(false);
                }
            });
        }
    }

    fn follow(case: &Case<Self>, state: &mut State) {
        case.follow_create(state);
        let now = case.owners_clock(state.now);
        state.is_gone |= state.deadline.is_some_and(|deadline| now >= deadline);
        if state.is_gone {
            // What can no longer matter is forgotten, so that equal states are one.
            (state.deadline, state.proved) = (Some(Duration::ZERO), None);
            state.answers.clear();
            if !matches!(state.create, Create::Sent | Create::Accepted) {
                state.create = Create::Heard(false);
            }
        }
    }

    fn wrong(_: &Case<Self>, state: &State) -> Option<Wrong> {
        let is_held = state.create == Create::Heard(true) && !state.is_gone;
        match state {
            State { is_orphan: true, .. } => Some(ORPHAN),
            State { is_granted: true, is_fenced: true, .. } => Some(UNPROTECTED),
            State { is_granted: true, .. } if is_held => Some(TWO_HOLDERS),
            _ => None,
        }
    }

    fn run_without(rule: Rule) -> Run {
        match rule {
            Rule::SpanNames | Rule::Reset => Run { spans: 1, beats: 2, ..RUN },
            Rule::FenceStays => Run { fences: 1, ..RUN },
            Rule::TimeoutCounts | Rule::NotMax => Run { rests: true, until: 6, ..RUN },
            Rule::Durable => Run { restarts: 1, ..RUN },
            Rule::Margin => Run { rates: (100, 110), ..DRIFT },
            _ => RUN,
        }
    }
}
