//! Watched time: it is never more than the time that has passed since its row was written. Clients add spans with their heartbeats,
//! which may be late, and whose answers may be late or lost.

use std::time::Duration;

use tokio::time::Instant;
use zlock_ledger::{History, Past};

use super::super::search::Wrong;
use super::{Case, Steps, Subject, instant};

const TWICE: Wrong = "time that is counted twice";
const ENDLESS: Wrong = "quiet time that does not end";

/// The time that has to be watched, in steps, by clients that live for two.
const QUIET: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    Receipt,
    Disjoint,
    Named,
    Reset,
    Down,
    Kept,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    clients: usize,
    /// The number of steps, and how long each takes.
    until: u32,
    step: Duration,
    /// How many heartbeats of a client are under way at once.
    at_once: usize,
    /// How often a client gives a heartbeat up, or ends and another takes its place.
    faults: u8,
    restarts: u8,
    /// Whether the answer says if the span was added. Otherwise the time shows it.
    is_told: bool,
    /// Whether each client does in each step what it can, and lives for two steps.
    is_prompt: bool,
}

/// A heartbeat on its way to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Beat {
    client: usize,
    number: u64,
    sent: u32,
    adds: Option<(u64, Duration, Duration)>,
}

/// An answer on its way to a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Answer {
    beat: Beat,
    history: History,
    added: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    past: Option<Past>,
    next: u64,
    /// It sends one at most in a step.
    has_sent: bool,
    /// The numbers of the heartbeats whose answers it waits for.
    awaited: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: u32,
    /// The row, and when it was written.
    incarnation: u64,
    watched: Duration,
    since: u32,
    clients: Vec<Client>,
    beats: Vec<Beat>,
    answers: Vec<Answer>,
    faults: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Spans;

impl Case<Spans> {
    fn clock(&self, step: u32) -> Instant {
        instant(self.run.step * step, 100)
    }

    fn serve(&self, state: &mut State, at: usize) {
        let beat = state.beats.remove(at);
        let is_added = |(incarnation, seen, _): &(u64, Duration, Duration)| {
            (*incarnation == state.incarnation || !self.has(Rule::Named))
                && (*seen == state.watched || !self.has(Rule::Disjoint))
        };
        let added = beat.adds.filter(is_added);
        if let Some((_, _, span)) = added {
            if !self.has(Rule::Kept) {
                state.watched = Duration::ZERO;
            }
            state.watched += span + Duration::from_millis((!self.has(Rule::Down)).into());
        }
        let history = History {
            incarnation: state.incarnation,
            watched: Some(state.watched),
            quiet: Duration::ZERO,
            number: 0,
            position: 0,
        };
        if state.clients[beat.client].awaited.contains(&beat.number) {
            state.answers.push(Answer { beat, history, added: added.is_some() });
        }
    }

    fn hear(&self, state: &mut State, at: usize) {
        let Answer { beat, history, added } = state.answers.remove(at);
        let received = self.clock(if self.has(Rule::Receipt) { state.now } else { beat.sent });
        let client = &mut state.clients[beat.client];
        client.awaited.retain(|number| *number != beat.number);
        let shows = |(_, seen, span): (u64, Duration, Duration)| history.watched == Some(seen + span);
        let added = if self.run.is_told { added } else { beat.adds.is_some_and(shows) };
        match &mut client.past {
            None => client.past = Some(Past::new(history, received)),
            Some(past) => past.saw(beat.number, history, added, received),
        }
    }
}

const RUN: Run = Run {
    clients: 2,
    until: 4,
    step: Duration::from_secs(1),
    at_once: 1,
    faults: 0,
    restarts: 0,
    is_told: true,
    is_prompt: false,
};

impl Subject for Spans {
    type State = State;
    type Rule = Rule;
    type Run = Run;

    const SUBJECT: &'static str = "watched time";
    const RULES: &'static [(Rule, &'static str, Wrong)] = &[
        (Rule::Receipt, "a span begins when an answer arrives: when its request was sent", TWICE),
        (Rule::Disjoint, "a span is added if the time is the one that was seen: in any case", TWICE),
        (Rule::Named, "a span names the incarnation (or the heartbeat): it does not", TWICE),
        (Rule::Reset, "another incarnation (or heartbeat) begins at nothing: it keeps the time", TWICE),
        (Rule::Down, "a span is rounded down: up", TWICE),
        (Rule::Kept, "what clients have watched is added up: each counts alone", ENDLESS),
    ];

    const QUICK: &'static [Run] =
        &[RUN, Run { restarts: 1, faults: 1, until: 2, ..RUN }, Run { is_told: false, ..RUN }];
    const MORE: &'static [Run] = &[
        Run { is_prompt: true, until: 10, ..RUN },
        Run { until: 6, ..RUN },
        Run { at_once: 2, until: 3, ..RUN },
        Run { clients: 3, until: 3, ..RUN },
        Run { restarts: 2, faults: 2, until: 2, ..RUN },
        Run { until: 6, is_told: false, ..RUN },
        Run { clients: 3, until: 3, is_told: false, ..RUN },
    ];

    fn first(case: &Case<Self>) -> State {
        let clients = vec![Client::default(); case.run.clients];
        State { incarnation: 1, clients, faults: case.run.faults, ..State::default() }
    }

    fn steps(case: &Case<Self>, state: &State, steps: &mut Steps<'_, Self>) {
        let is_done = |client: &Client| client.has_sent && client.awaited.is_empty();
        if state.now < case.run.until && (!case.run.is_prompt || state.clients.iter().all(is_done)) {
            steps.step("time", state.now as usize, |state| {
                state.now += 1;
                let ends = case.run.is_prompt && state.now.is_multiple_of(2);
                for client in &mut state.clients {
                    client.has_sent = false;
                    *client =
                        if ends { Client { next: client.next, ..Client::default() } } else { client.clone() };
                }
            });
        }
        for (client, this) in state.clients.iter().enumerate() {
            if !this.has_sent && this.awaited.len() < case.run.at_once {
                steps.step("sends", client, |state| {
                    let this = &mut state.clients[client];
                    let adds = this.past.as_mut().and_then(|past| past.span(case.clock(state.now)));
                    (this.next, this.has_sent) = (this.next + 1, true);
                    this.awaited.push(this.next);
                    state.beats.push(Beat { client, number: this.next, sent: state.now, adds });
                });
            }
            if state.faults > 0 && !this.awaited.is_empty() {
                steps.fault("GIVES UP", client, |state| {
                    state.faults -= 1;
                    state.clients[client].awaited.clear();
                });
                steps.fault("ENDS, and another begins", client, |state| {
                    state.faults -= 1;
                    let this = &mut state.clients[client];
                    *this = Client { next: this.next, ..Client::default() };
                });
            }
        }
        (0..state.beats.len()).for_each(|at| steps.step("store", at, |state| case.serve(state, at)));
        (0..state.answers.len()).for_each(|at| steps.step("hears", at, |state| case.hear(state, at)));
        if state.incarnation <= case.run.restarts.into() {
            steps.fault("ANOTHER INCARNATION", state.incarnation as usize, |state| {
                (state.incarnation, state.since) = (state.incarnation + 1, state.now);
                if case.has(Rule::Reset) {
                    state.watched = Duration::ZERO;
                }
            });
        }
    }

    fn follow(_: &Case<Self>, state: &mut State) {
        let clients = &state.clients;
        state.answers.retain(|answer| clients[answer.beat.client].awaited.contains(&answer.beat.number));
        // What adds nothing, and whose answer nobody hears, does not matter.
        state.beats.retain(|beat| beat.adds.is_some() || clients[beat.client].awaited.contains(&beat.number));
    }

    fn wrong(case: &Case<Self>, state: &State) -> Option<Wrong> {
        let is_endless = case.run.is_prompt && state.now > 3 * QUIET && state.watched < case.run.step * QUIET;
        let is_twice = state.watched > case.run.step * (state.now - state.since);
        if is_twice { Some(TWICE) } else { is_endless.then_some(ENDLESS) }
    }

    fn run_without(rule: Rule) -> Run {
        match rule {
            Rule::Named | Rule::Reset => Run { restarts: 1, ..RUN },
            Rule::Down => Run { step: Duration::from_micros(1600), ..RUN },
            Rule::Kept => Run { is_prompt: true, until: 10, ..RUN },
            _ => Run { until: 5, ..RUN },
        }
    }
}
