//! Lanes: the requests of one client over two numbered connections, with the real `Lanes`. A request takes two steps at the store: it
//! is accepted, when the number is checked and locks are taken, and it commits. A connection that was given up still delivers what was
//! sent over it, at any later time. A user creates a node, and deletes it, or writes a value under its guard and deletes it with that.

use std::collections::BTreeMap;

use zlock_ledger::{Fit, Lanes, Wire};

use super::super::search::Wrong;
use super::lanes_state::{
    Answer, Connection, Create, Delete, Phase, QUEUE, Raise, Request, Row, Run, State, VALUE, WIRES, Write,
};
use super::{Case, STUCK, Steps, Subject};

const GONE: Wrong = "a node that was reported as deleted";
const NO_NODE: Wrong = "a holder without a node";
const ORPHAN: Wrong = "a node that nobody removes";
const TOO_LATE: Wrong = "a dropped write after its lock was given back";
const HALF: Wrong = "half of a transaction";
const OVERTAKEN: Wrong = "a busy request that is overtaken again and again";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    Number,
    Waits,
    Durable,
    OneLane,
    Order,
    Settle,
    Forgets,
    BeginEnds,
    EndWaits,
    Phases,
    Guard,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LanesOf;

impl Case<LanesOf> {
    fn push(&self, state: &mut State, request: Request) {
        if state.is_gone(request) {
            return;
        }
        let scopes = match request {
            // Without these rules, requests have nothing in common.
            Create(of) | Delete(of) | Write(of) if !self.has(Rule::OneLane) || !self.has(Rule::Order) => {
                vec![10 * of + usize::from(matches!(request, Create(_)))]
            }
            Write(_) if self.has(Rule::Guard) => vec![VALUE, QUEUE],
            Write(_) => vec![VALUE],
            _ => vec![QUEUE],
        };
        let number = state.lanes.push(scopes);
        state.requests.insert(number, request);
    }

    /// What is unanswered has an unknown outcome, and is sent again.
    fn give_up(&self, state: &mut State, at: usize) {
        let this = &mut state.connections[at];
        let (wire, numbers) = (this.wire, this.unanswered());
        (this.is_ours, this.answers) = (false, Vec::new());
        let again = match this.raise {
            Raise::Open(_) => {
                state.unsettled[wire as usize] |= numbers > 0;
                let mut lanes = state.lanes.clone();
                let unanswered = lanes.given_up(wire);
                if !self.has(Rule::Settle) {
                    unanswered.iter().for_each(|number| state.lanes.answered(wire, *number, false));
                }
                state.lanes.given_up(wire);
                unanswered
            }
            _ => state.lanes.fail(wire),
        };
        let again: Vec<_> = again.iter().filter_map(|number| state.requests.remove(number)).collect();
        again.into_iter().for_each(|request| self.push(state, request));
    }

    fn lose(&self, state: &mut State) {
        for this in &mut state.connections {
            (this.is_ours, this.answers) = (false, Vec::new());
        }
        (state.session, state.has_begun, state.unsettled) = (1, false, [false; 2]);
        (state.lanes, state.requests) = (Lanes::default(), BTreeMap::new());
        for place in 0..state.places.len() {
            match state.places[place] {
                (Phase::Creates, used) => self.push(state, Create(self.used(place, used))),
                (Phase::Idle | Phase::Done, _) => {}
                _ => state.next_use(place, self.run.uses),
            }
        }
    }

    fn used(&self, place: usize, used: u8) -> usize {
        usize::from(used) * self.run.places + place
    }

    fn accept(&self, state: &mut State, at: usize) {
        let (number, request) = state.connections[at].sent.remove(0);
        let this = &state.connections[at];
        let (row, Raise::Open(lane)) = (state.rows[this.session], this.raise) else { return };
        let is_locked = state.is_locked(request, at);
        let refused = if !row.lives {
            Some(Answer::Over)
        } else if self.has(Rule::Number) && row.numbers[this.wire as usize] != lane {
            Some(Answer::Stale)
        } else {
            (is_locked && this.wire == Wire::Fast).then_some(Answer::Busy)
        };
        if let (Some(Answer::Busy), Write(of), false) = (refused, request, self.has(Rule::Phases)) {
            state.nodes.retain(|node| node.1 != of);
        }
        let this = &mut state.connections[at];
        match refused {
            None => this.running = Some((number, request, is_locked)),
            Some(answer) if this.is_ours => this.answers.push((number, request, answer)),
            Some(_) => {}
        }
    }

    fn commit(&self, state: &mut State, at: usize) {
        let Some((number, request, _)) = state.connections[at].running.take() else { return };
        let session = state.connections[at].session;
        let mut answer = Answer::Done;
        match request {
            Create(of) => {
                let key = if self.run.reuses { of % self.run.places } else { of };
                if !state.nodes.iter().any(|node| node.0 == key && node.2 == session) {
                    state.nodes.retain(|node| node.0 != key);
                    state.nodes.push((key, of, session));
                }
            }
            Delete(of) => {
                let key = if self.run.reuses { of % self.run.places } else { of };
                state.nodes.retain(|node| node.0 != key);
            }
            // The receipt is there.
            Write(of) if state.written.contains(&of) => {}
            Write(of) => {
                let is_there = |node: &(usize, usize, usize)| node.1 == of && node.2 == session;
                if self.has(Rule::Guard) && !state.nodes.iter().any(is_there) {
                    answer = Answer::GuardGone;
                } else {
                    if state.gone.contains(&of) {
                        state.wrong(TOO_LATE);
                    }
                    state.written.push(of);
                    state.nodes.retain(|node| node.1 != of);
                }
            }
        }
        if !matches!(request, Delete(_)) {
            state.rows.iter_mut().for_each(|row| row.durable = row.numbers);
        }
        let this = &mut state.connections[at];
        if this.is_ours {
            this.answers.push((number, request, answer));
        }
    }

    fn hear(&self, state: &mut State, at: usize) {
        let wire = state.connections[at].wire;
        let (number, request, answer) = state.connections[at].answers.remove(0);
        let is_gone = state.is_gone(request);
        let is_repeated = answer == Answer::Busy && (!is_gone || !self.has(Rule::Forgets));
        state.lanes.answered(wire, number, is_repeated);
        if is_repeated {
            return;
        }
        state.requests.remove(&number);
        match (request, answer) {
            (_, Answer::Over) => self.lose(state),
            (_, Answer::Stale) => {
                self.push(state, request);
                self.give_up(state, at);
            }
            _ if is_gone => {}
            (Create(of), _) => state.places[of % self.run.places].0 = Phase::Holds,
            (Delete(of), _) => {
                state.gone.push(of);
                state.next_use(of % self.run.places, self.run.uses);
            }
            (Write(_), Answer::GuardGone) => state.wrong(HALF),
            (Write(of), _) => {
                state.gone.push(of);
                state.next_use(of % self.run.places, self.run.uses);
            }
        }
    }

    /// Sends the next request over a lane, if there is one.
    fn send(&self, state: &mut State, wire: Wire) -> Option<()> {
        let at = state.connection(wire)?;
        let other = state.connection(WIRES[1 - wire as usize]);
        let is_held = !self.has(Rule::OneLane) && state.unsettled.contains(&true)
            || !self.has(Rule::Order) && other.is_some_and(|at| state.connections[at].unanswered() > 0);
        if is_held || wire == Wire::Fast && state.connections[at].unanswered() > 1 {
            return None;
        }
        let (mut lanes, mut room) = (state.lanes.clone(), true);
        let (taken, gone) = lanes.take(wire, |number| match self.has(Rule::Forgets) {
            true if state.requests.get(&number).is_none_or(|request| state.is_gone(*request)) => Fit::Gone,
            _ if std::mem::replace(&mut room, wire == Wire::Patient) => Fit::Fits,
            _ => Fit::Full,
        });
        if taken.is_empty() && gone.is_empty() {
            return None;
        }
        state.lanes = lanes;
        gone.iter().for_each(|number| {
            state.requests.remove(number);
        });
        for number in taken {
            let is_late = wire == Wire::Fast && state.lanes.waiting(Wire::Patient).any(|busy| busy < number);
            state.overtaken = if is_late { state.overtaken + 1 } else { 0 };
            let request = *state.requests.get(&number)?;
            state.connections[at].sent.push((number, request));
        }
        if state.overtaken > 2 && self.has(Rule::OneLane) {
            state.wrong(OVERTAKEN);
        }
        Some(())
    }

    fn store_steps(&self, state: &State, steps: &mut Steps<'_, LanesOf>) {
        for (at, this) in state.connections.iter().enumerate() {
            let (session, wire) = (this.session, this.wire as usize);
            let runs = |other: &Connection| {
                (other.session, other.wire) == (session, this.wire) && other.running.is_some()
            };
            match this.running {
                Some((_, request, true)) if !state.is_locked(request, at) => {
                    steps.step("store: lock is free", at, |state| {
                        if let Some(running) = &mut state.connections[at].running {
                            running.2 = false;
                        }
                    });
                }
                Some((.., true)) => {}
                Some((.., false)) => steps.step("store commits", at, |state| self.commit(state, at)),
                None if this.raise == Raise::Sent
                    && self.has(Rule::Waits)
                    && state.connections.iter().any(runs) => {}
                None if this.raise == Raise::Sent => steps.step("store raises", wire, |state| {
                    let row = &mut state.rows[session];
                    row.numbers[wire] += 1;
                    if self.has(Rule::Durable) {
                        row.durable = row.numbers;
                    }
                    let answer = Raise::Answered(row.numbers[wire]);
                    state.connections[at].raise = if row.lives { answer } else { Raise::Over };
                }),
                None if !this.sent.is_empty() => {
                    steps.step("store accepts or refuses", at, |state| self.accept(state, at));
                }
                None => {}
            }
        }
        // What a pooler has not passed on comes after the restart.
        if state.left.restarts > 0 {
            steps.fault("RESTART", 0, |state| {
                state.left.restarts -= 1;
                state.rows.iter_mut().for_each(|row| row.numbers = row.durable);
                for at in 0..state.connections.len() {
                    if state.connections[at].is_ours {
                        self.give_up(state, at);
                    }
                    state.connections[at].running = None;
                }
            });
        }
        if state.locked.is_some() {
            steps.step("another client unlocks", 0, |state| state.locked = None);
        } else if state.left.busy > 0 {
            for (scope, request) in [(QUEUE, Create(0)), (VALUE, Write(0))] {
                if !state.is_locked(request, usize::MAX) && (scope == QUEUE || self.run.writes) {
                    steps.fault("another client locks", scope, |state| {
                        (state.locked, state.left.busy) = (Some(scope), state.left.busy - 1);
                    });
                }
            }
        }
    }

    fn session_steps(&self, state: &State, steps: &mut Steps<'_, LanesOf>) {
        if state.session == 0 {
            if state.left.losses > 0 {
                steps.fault("DEADLINE", 0, |state| {
                    state.left.losses -= 1;
                    self.lose(state);
                });
            }
            return;
        }
        let is_busy = state.connections.iter().any(|this| this.session == 0 && this.running.is_some());
        let may_end = state.rows[0].lives && !(is_busy && self.has(Rule::EndWaits));
        if may_end {
            steps.step("session 0 ends", 0, |state| {
                state.rows[0].lives = false;
                state.nodes.retain(|node| node.2 != 0);
            });
        }
        let may_begin = !state.rows[0].lives || !may_end && !self.has(Rule::BeginEnds);
        if !state.has_begun && may_begin {
            steps.step("session 1 begins", 1, |state| {
                (state.rows[1].lives, state.has_begun) = (true, true);
            });
        }
    }

    fn user_steps(&self, state: &State, steps: &mut Steps<'_, LanesOf>) {
        for (place, &(phase, used)) in state.places.iter().enumerate() {
            let of = self.used(place, used);
            let mut go = |what, phase, request| {
                steps.step(what, of, |state| {
                    state.places[place].0 = phase;
                    self.push(state, request);
                });
            };
            match phase {
                Phase::Idle => go("user creates", Phase::Creates, Create(of)),
                Phase::Holds => {
                    go("user deletes", Phase::Deletes, Delete(of));
                    if self.run.writes {
                        go("user writes", Phase::Writes, Write(of));
                    }
                }
                Phase::Creates | Phase::Writes if state.left.drops > 0 => {
                    steps.fault("user drops", of, |state| {
                        state.left.drops -= 1;
                        state.places[place].0 = Phase::Deletes;
                        self.push(state, Delete(of));
                    });
                }
                _ => {}
            }
        }
    }
}

const RUN: Run = Run {
    places: 2,
    uses: 1,
    breaks: 0,
    busy: 1,
    drops: 1,
    losses: 0,
    restarts: 0,
    writes: false,
    reuses: false,
};
const ONE: Run = Run { places: 1, ..RUN };

impl Subject for LanesOf {
    type State = State;
    type Rule = Rule;
    type Run = Run;

    const SUBJECT: &'static str = "lanes";
    const RULES: &'static [(Rule, &'static str, Wrong)] = &[
        (Rule::Number, "the store compares a request's number: it does not", GONE),
        (Rule::Waits, "a raise waits for what was accepted: it does not", GONE),
        (Rule::Durable, "a raise commits durably: a restart undoes it", GONE),
        (Rule::OneLane, "a scope is on one lane at a time: it is on both", GONE),
        (Rule::Order, "a busy request holds back the later ones of its scope: it does not", OVERTAKEN),
        (Rule::Settle, "a lane that was given up is raised before its scopes are touched: it is not", GONE),
        (Rule::Forgets, "a request whose caller has gone is not sent: it is", GONE),
        (Rule::BeginEnds, "a session begins when the last one is over: it begins before", NO_NODE),
        (Rule::EndWaits, "the end of a session waits for what was accepted: it does not", GONE),
        (Rule::Phases, "a busy transaction has no effect: it has deleted its node", HALF),
        (Rule::Guard, "a guard is checked by the write, which belongs to its scope, too: neither", TOO_LATE),
    ];

    const QUICK: &'static [Run] = &[RUN, Run { breaks: 1, ..RUN }];
    const MORE: &'static [Run] = &[
        Run { breaks: 2, ..RUN },
        Run { uses: 2, breaks: 3, busy: 2, drops: 2, ..ONE },
        Run { uses: 2, breaks: 2, busy: 2, drops: 2, reuses: true, ..ONE },
        Run { uses: 2, breaks: 1, losses: 1, ..ONE },
        Run { breaks: 1, losses: 1, ..RUN },
        Run { breaks: 1, restarts: 1, ..RUN },
        Run { breaks: 1, writes: true, ..RUN },
        Run { breaks: 2, busy: 2, drops: 2, losses: 1, writes: true, ..ONE },
    ];

    fn first(case: &Case<Self>) -> State {
        let places = vec![(Phase::Idle, 0); case.run.places];
        let rows = [Row { lives: true, ..Row::default() }, Row::default()];
        State { rows, has_begun: true, places, left: case.run, ..State::default() }
    }

    fn steps(case: &Case<Self>, state: &State, steps: &mut Steps<'_, Self>) {
        case.store_steps(state, steps);
        for (at, this) in state.connections.iter().enumerate().filter(|(_, this)| this.is_ours) {
            match this.raise {
                Raise::Answered(number) => steps.step("client has lane", this.wire as usize, |state| {
                    let this = &mut state.connections[at];
                    this.raise = Raise::Open(number);
                    state.unsettled[this.wire as usize] = false;
                    state.lanes.raised(this.wire);
                }),
                Raise::Over => steps.step("client hears: over", at, |state| case.lose(state)),
                _ if !this.answers.is_empty() => {
                    steps.step("client hears", at, |state| case.hear(state, at));
                }
                _ => {}
            }
            if state.left.breaks > 0 {
                steps.fault("client GIVES UP", this.wire as usize, |state| {
                    state.left.breaks -= 1;
                    case.give_up(state, at);
                });
            }
        }
        case.session_steps(state, steps);
        case.user_steps(state, steps);
        for wire in WIRES.into_iter().filter(|_| state.has_begun) {
            if state.connection(wire).is_none() && state.lanes.needs(wire) {
                steps.step("client opens", wire as usize, |state| {
                    state.connections.push(Connection {
                        wire,
                        session: state.session,
                        raise: Raise::Sent,
                        sent: Vec::new(),
                        running: None,
                        answers: Vec::new(),
                        is_ours: true,
                    });
                });
            }
            if case.send(&mut state.clone(), wire).is_some() {
                steps.step("client sends", wire as usize, |state| {
                    case.send(state, wire);
                });
            }
        }
    }

    fn wrong(_: &Case<Self>, state: &State) -> Option<Wrong> {
        if state.nodes.iter().any(|node| state.gone.contains(&node.1)) {
            return Some(GONE);
        }
        let is_there = |of| state.nodes.iter().any(|node| node.1 == of && node.2 == state.session);
        let mut held = state.places.iter().enumerate().filter(|(_, place)| place.0 == Phase::Holds);
        let places = state.places.len();
        if state.rows[state.session].lives
            && held.any(|(place, &(_, used))| !is_there(usize::from(used) * places + place))
        {
            return Some(NO_NODE);
        }
        state.wrong
    }

    fn stuck(_: &Case<Self>, state: &State) -> Option<Wrong> {
        let waits = state.places.iter().any(|place| place.0 != Phase::Done);
        if state.nodes.is_empty() { waits.then_some(STUCK) } else { Some(ORPHAN) }
    }

    fn follow(_: &Case<Self>, state: &mut State) {
        let is_needed = |this: &Connection| {
            this.is_ours || this.running.is_some() || !this.sent.is_empty() || this.raise == Raise::Sent
        };
        state.connections.retain(is_needed);
        state.connections.sort_by_key(|this| (this.session, this.wire, this.raise, this.is_ours));
    }

    fn run_without(rule: Rule) -> Run {
        match rule {
            Rule::OneLane | Rule::Forgets => RUN,
            Rule::Order => Run { uses: 2, drops: 0, ..RUN },
            Rule::Durable => Run { restarts: 1, breaks: 2, ..ONE },
            Rule::BeginEnds => Run { losses: 1, uses: 2, drops: 0, breaks: 1, ..ONE },
            Rule::EndWaits => Run { losses: 1, uses: 2, ..ONE },
            Rule::Phases => Run { writes: true, drops: 0, ..ONE },
            Rule::Guard => Run { writes: true, ..ONE },
            _ => Run { breaks: 1, ..RUN },
        }
    }
}
