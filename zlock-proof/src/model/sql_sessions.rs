//! The end of sessions in PostgreSQL, as in `zlock-postgres/src/schema/sessions.sql`: by what another client has seen on its own
//! monotonic clock, by two findings of the server's clock, and by a failover that loses what was confirmed.
//!
//! Time is in steps. A deadline is right if nobody else is granted the lock before it. No real code runs here. The tests in
//! `zlock-tests/tests/sessions/postgres` and `zlock-tests/tests/outages/postgres` check that the real statements follow the rules.

use stateright::{Model, Property};

use super::search::{Rules, Wrong};

/// A rule of the functions, or of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionRule {
    FromTheSend,
    SameBeat,
    OneTimeout,
    TwoFindings,
    BeatClears,
    Quiet,
    Lifted,
}

const TWO_HOLDERS: Wrong = "two holders";
const TOKEN_AGAIN: Wrong = "a token that was given out before";

type Time = i8;

/// The timeout of the session.
const TTL: Time = 2;

/// How far a step of the server's clock goes.
const FAR: Time = 20;

/// The length of a run, and the numbers of events in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) until: Time,
    /// How often the server's clock steps, forward or back.
    pub(crate) steps: u8,
    /// How many replicas are promoted that lack what was confirmed.
    pub(crate) failovers: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: Time,
    /// What the server's clock shows besides.
    ahead: Time,
    /// The session at the server.
    beat: u8,
    renewed: Time,
    suspect: Option<Time>,
    is_over: bool,
    /// The time at which the last failover was noticed.
    failed_over: Option<Time>,
    /// The numbers that the server, its replica and the clients know.
    number: u8,
    given: u8,
    /// The holder counts until here. A heartbeat was sent then, and is on its way to the server; or its answer is, to the holder.
    deadline: Time,
    sent: Option<Time>,
    answer: Option<Time>,
    /// It sends one heartbeat in a step at most.
    last_sent: Time,
    /// The beat that the observer has seen, and since when.
    seen: Option<(u8, Time)>,
    /// Another client was granted the lock.
    is_granted: bool,
    steps: u8,
    failovers: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    Send,
    /// The heartbeat arrives at the server.
    Arrive,
    /// Its answer arrives at the holder.
    Hear,
    /// The heartbeat or its answer is lost.
    Lose,
    Observe,
    Expire,
    /// A client that lives shortly finds the session overdue.
    Find,
    Step(Time),
    Promote,
    /// Another client asks for the lock.
    Grant,
}

/// The model with all rules, or without one.
#[derive(Debug)]
pub(crate) struct SqlSessions {
    run: Run,
    left_out: Option<SessionRule>,
}

impl State {
    fn clock(&self) -> Time {
        self.now + self.ahead
    }
}

impl SqlSessions {
    fn has(&self, rule: SessionRule) -> bool {
        self.left_out != Some(rule)
    }

    fn arrive(&self, state: &mut State) {
        let Some(sent) = state.sent.take() else { return };
        // It never brings a session back.
        if state.is_over {
            return;
        }
        state.beat += 1;
        state.renewed = state.clock();
        if self.has(SessionRule::BeatClears) {
            state.suspect = None;
        }
        state.answer = Some(sent);
    }

    /// The end of the session by the deadline is final.
    fn hear(&self, state: &mut State) {
        let Some(sent) = state.answer.take() else { return };
        if state.now < state.deadline {
            state.deadline = TTL + if self.has(SessionRule::FromTheSend) { sent } else { state.now };
        }
    }

    fn find(&self, state: &mut State) {
        let clock = state.clock();
        let is_overdue = state.renewed + TTL < clock || state.renewed > clock;
        if !is_overdue && state.suspect.is_none() {
            return;
        }
        if !self.has(SessionRule::TwoFindings) {
            state.is_over |= is_overdue;
            return;
        }
        match state.suspect {
            Some(since) if since + TTL < clock => state.is_over = true,
            Some(since) if since <= clock => {}
            _ if is_overdue => state.suspect = Some(clock),
            _ => {}
        }
    }

    fn grant(&self, state: &mut State) {
        state.is_granted = true;
        state.number += 1;
    }

    fn can_grant(&self, state: &State) -> bool {
        let is_quiet =
            self.has(SessionRule::Quiet) && state.failed_over.is_some_and(|since| state.now <= since + TTL);
        state.is_over && !state.is_granted && !is_quiet
    }
}

impl Model for SqlSessions {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let Run { steps, failovers, .. } = self.run;
        vec![State {
            now: 0,
            ahead: 0,
            beat: 0,
            renewed: 0,
            suspect: None,
            is_over: false,
            failed_over: None,
            number: 1,
            given: 1,
            deadline: TTL,
            sent: None,
            answer: None,
            last_sent: -1,
            seen: None,
            is_granted: false,
            steps,
            failovers,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.run.until {
            actions.push(Action::Tick);
        }
        match (state.sent, state.answer) {
            // The holder gives up at its deadline.
            (None, None) if state.now < state.deadline && state.last_sent < state.now => {
                actions.push(Action::Send);
            }
            (None, None) => {}
            (Some(_), _) => actions.extend([Action::Arrive, Action::Lose]),
            (None, Some(_)) => actions.extend([Action::Hear, Action::Lose]),
        }
        if !state.is_over {
            actions.extend([Action::Observe, Action::Find]);
            let timeout = if self.has(SessionRule::OneTimeout) { TTL } else { TTL - 1 };
            if state.seen.is_some_and(|(_, since)| state.now - since >= timeout) {
                actions.push(Action::Expire);
            }
        }
        if state.steps > 0 {
            actions.extend([Action::Step(FAR), Action::Step(-FAR)]);
        }
        if state.failovers > 0 && !state.is_granted {
            actions.push(Action::Promote);
        }
        if self.can_grant(state) {
            actions.push(Action::Grant);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => next.now += 1,
            Action::Send => (next.sent, next.last_sent) = (Some(next.now), next.now),
            Action::Arrive => self.arrive(&mut next),
            Action::Hear => self.hear(&mut next),
            Action::Lose => (next.sent, next.answer) = (None, None),
            Action::Observe => {
                if next.seen.is_none_or(|(beat, _)| beat != next.beat) {
                    next.seen = Some((next.beat, next.now));
                }
            }
            Action::Expire => {
                let is_same = next.seen.is_some_and(|(beat, _)| beat == next.beat);
                next.is_over |= is_same || !self.has(SessionRule::SameBeat);
            }
            Action::Find => self.find(&mut next),
            Action::Step(far) => {
                next.steps -= 1;
                next.ahead += far;
            }
            Action::Promote => {
                next.failovers -= 1;
                // The replica lacks the session, and what else was confirmed since it was cut off.
                (next.is_over, next.sent, next.failed_over) = (true, None, Some(next.now));
                next.given = next.given.max(next.number);
                next.number = if self.has(SessionRule::Lifted) { next.given } else { 0 };
            }
            Action::Grant => self.grant(&mut next),
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        Self::nothing_is_wrong()
    }
}

/// The run of the others' differences.
const NONE: Run = Run { until: 6, steps: 0, failovers: 0 };

impl Rules for SqlSessions {
    type Rule = SessionRule;
    type Run = Run;

    const SUBJECT: &'static str = "sessions in SQL";
    const RULES: &'static [(SessionRule, &'static str, Wrong)] = &[
        (
            SessionRule::FromTheSend,
            "the holder counts from when it sent the heartbeat: from the answer",
            TWO_HOLDERS,
        ),
        (
            SessionRule::SameBeat,
            "a session is ended if it still has the beat that was seen: in any case",
            TWO_HOLDERS,
        ),
        (SessionRule::OneTimeout, "an observer waits for the session's timeout: for less", TWO_HOLDERS),
        (
            SessionRule::TwoFindings,
            "by the server's clock, a session ends after two findings one timeout apart: after one",
            TWO_HOLDERS,
        ),
        (SessionRule::BeatClears, "a heartbeat clears the first finding: it does not", TWO_HOLDERS),
        (
            SessionRule::Quiet,
            "after a failover, nothing is granted for the longest timeout: it is at once",
            TWO_HOLDERS,
        ),
        (SessionRule::Lifted, "after a failover, numbers go on above those given out: below", TOKEN_AGAIN),
    ];
    /// The clock steps twice, with no heartbeat in between.
    const NOT_PROMISED: Option<Run> = Some(Run { steps: 2, ..NONE });

    fn new(run: Run, left_out: Option<SessionRule>) -> Self {
        SqlSessions { run, left_out }
    }

    fn wrong(&self, state: &State) -> Option<Wrong> {
        if state.is_granted && state.now < state.deadline {
            return Some(TWO_HOLDERS);
        }
        (state.is_granted && state.number <= state.given).then_some(TOKEN_AGAIN)
    }

    fn runs(is_quick: bool) -> Vec<Run> {
        let until = if is_quick { 6 } else { 9 };
        let none = Run { until, ..NONE };
        vec![
            none,
            Run { steps: 1, ..none },
            Run { failovers: 1, ..none },
            Run { steps: 1, failovers: 1, ..none },
        ]
    }

    fn runs_without(rule: SessionRule) -> Vec<Run> {
        vec![match rule {
            SessionRule::Quiet | SessionRule::Lifted => Run { failovers: 1, ..NONE },
            SessionRule::TwoFindings | SessionRule::BeatClears => Run { steps: 1, ..NONE },
            _ => NONE,
        }]
    }

    fn cells(run: Run) -> Vec<(&'static str, String)> {
        vec![
            ("time", run.until.to_string()),
            ("steps of the clock", run.steps.to_string()),
            ("failovers", run.failovers.to_string()),
        ]
    }
}
