//! Heartbeats: a session that its client believes to live lives at the store, is lost only for a reason, and is given up in silence.
//!
//! Real code: `Beats` of `zlock_core::kit`, which etcd and PostgreSQL keep their sessions by. Modelled: the store, the deadline
//! (`Sessions`), the requests under way, and time in steps of a third of the timeout.

use std::time::Duration;

use stateright::{Model, Property};
use tokio::time::Instant;
use zlock_core::kit::Beats;

use super::search::{Rules, Wrong};

/// A rule about heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeatRule {
    FromSend,
    BareProvesNothing,
    WokenByCreate,
    GivenUp,
    Suspended,
}

const HELD_AFTER_END: Wrong = "held after the session's end";
const NEEDLESS_LOSS: Wrong = "lost although every request was answered";
const WAITS_FOR_EVER: Wrong = "a silent session at rest is kept";
const NOT_SUSPENDED: Wrong = "connected although no server answers";

/// The timeout of a session, and how long its client may count on it, in steps.
const TIMEOUT: u32 = 3;

/// The time between two heartbeats at rest, if the create of a node renews the session.
const RESTING: u32 = 6;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Whether a create renews the session, and heartbeats at rest are few.
    pub(crate) creates_renew: bool,
    /// How often a request is lost or late, or answered by a leader that was replaced.
    pub(crate) faults: u8,
    pub(crate) steps: u32,
}

/// A heartbeat under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wire {
    Request { at_rest: bool },
    Answer { at_rest: bool },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: u32,
    faults: u8,
    /// The step at which the store ends the session, which may be earlier than its client believes and not later.
    ends: u32,
    beats: Beats,
    wire: Option<Wire>,
    /// Whether a step has passed since the heartbeat under way was sent. No answer is waited for longer.
    is_late: bool,
    owns: bool,
    /// Until when the client counts on the session. `None` at rest.
    deadline: Option<Instant>,
    suspended: bool,
    lost: bool,
    /// The step of the last answer.
    heard: u32,
    wrong: Option<Wrong>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Time passes, also for a request under way, which is then late.
    Step,
    Beat,
    Serve,
    /// A leader that was replaced answers, which it does for heartbeats at rest.
    ServeWithoutRenewal,
    Hear,
    /// The client notices that the session is not at rest any more.
    Wake,
    /// A request or its answer is lost, and its client stops waiting for it.
    Lose,
    Create,
    Delete,
}

#[derive(Clone, Debug)]
pub(crate) struct Heartbeats {
    run: Run,
    left_out: Option<BeatRule>,
    begun: Instant,
}

impl Heartbeats {
    fn at(&self, step: u32) -> Instant {
        self.begun + Duration::from_secs(step.into())
    }

    fn has(&self, rule: BeatRule) -> bool {
        self.left_out != Some(rule)
    }

    fn lives(&self, state: &State) -> bool {
        state.now < state.ends
    }

    /// Applies the deadline, as each look at a session does.
    fn look(&self, state: &mut State) {
        let now = self.at(state.now);
        state.lost |= state.deadline.is_some_and(|deadline| deadline <= now);
        if state.owns && !state.lost && !self.lives(state) {
            state.wrong = Some(HELD_AFTER_END);
        }
        if state.lost && state.faults == self.run.faults {
            state.wrong = Some(NEEDLESS_LOSS);
        }
        let interval = if self.run.creates_renew { RESTING } else { 1 };
        if !state.owns && !state.lost && state.now > state.heard + interval + TIMEOUT + 2 {
            state.wrong = Some(WAITS_FOR_EVER);
        }
    }

    fn unanswered(&self, state: &mut State) {
        state.wire = None;
        let unanswered = state.beats.unanswered(self.at(state.now), 1);
        state.suspended |= unanswered.suspend && self.has(BeatRule::Suspended);
        state.lost |= unanswered.give_up && state.deadline.is_none() && self.has(BeatRule::GivenUp);
        if !state.suspended {
            state.wrong = Some(NOT_SUSPENDED);
        }
    }

    fn hear(&self, state: &mut State, at_rest: bool) {
        (state.wire, state.heard) = (None, state.now);
        if let Some(mut deadline) = state.beats.answered(at_rest) {
            if !self.has(BeatRule::FromSend) {
                deadline = self.at(state.now + TIMEOUT);
            }
            state.deadline = state.deadline.map(|before| before.max(deadline));
        } else if !self.has(BeatRule::BareProvesNothing) {
            state.deadline = Some(self.at(state.now + TIMEOUT));
        }
        state.suspended = false;
    }

    fn create(&self, state: &mut State) {
        if !self.lives(state) {
            // The store refuses the node, for this reason.
            state.lost = true;
            return;
        }
        state.owns = true;
        if state.deadline.is_none() {
            // With a proof, or by the create itself.
            (state.deadline, state.ends) = (Some(self.at(state.now + TIMEOUT)), state.now + TIMEOUT);
        }
    }
}

impl Model for Heartbeats {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let second = Duration::from_secs(1);
        let beats = Beats::new(self.begun, TIMEOUT * second, second);
        let beats = if self.run.creates_renew { beats.resting(RESTING * second) } else { beats };
        let ends = if self.run.creates_renew { 2 * RESTING } else { TIMEOUT };
        vec![State {
            now: 0,
            faults: self.run.faults,
            ends,
            beats,
            wire: None,
            is_late: false,
            owns: false,
            deadline: (!self.run.creates_renew).then(|| self.at(TIMEOUT)),
            suspended: false,
            lost: false,
            heard: 0,
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // A loss is final. The next session is like the first.
        if state.wrong.is_some() || state.lost || state.now >= self.run.steps {
            return;
        }
        let is_due = state.wire.is_none() && state.beats.due() <= self.at(state.now);
        let is_woken = state.wire.is_none() && state.beats.at_rest() && state.deadline.is_some();
        if is_woken && self.has(BeatRule::WokenByCreate) {
            actions.push(Action::Wake);
        } else if is_due {
            actions.push(Action::Beat);
        } else if state.wire.is_none() || state.faults > 0 && !state.is_late {
            actions.push(Action::Step);
        }
        match state.wire {
            Some(Wire::Request { at_rest }) => {
                actions.push(Action::Serve);
                if state.faults > 0 || state.is_late {
                    actions.push(Action::Lose);
                }
                if state.faults > 0 && at_rest {
                    actions.push(Action::ServeWithoutRenewal);
                }
            }
            Some(Wire::Answer { .. }) => {
                actions.push(Action::Hear);
                if state.faults > 0 || state.is_late {
                    actions.push(Action::Lose);
                }
            }
            None => {}
        }
        if !state.suspended {
            actions.push(if state.owns { Action::Delete } else { Action::Create });
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Step => {
                state.is_late = state.wire.is_some();
                state.faults -= u8::from(state.is_late);
                state.now += 1;
            }
            Action::Beat => {
                let (owns, mut rested) = (state.owns, false);
                let at_rest = state.beats.send(self.at(state.now), || {
                    rested = !owns;
                    rested
                });
                if rested {
                    state.deadline = None;
                }
                (state.wire, state.is_late) = (Some(Wire::Request { at_rest }), false);
            }
            Action::Serve if !self.lives(&state) => {
                // The store answers that the session is over, for a reason.
                (state.lost, state.wire) = (true, None);
                if state.faults < self.run.faults {
                    return Some(state);
                }
            }
            Action::Serve => {
                let Some(Wire::Request { at_rest }) = state.wire else { return None };
                let lasts = if at_rest && self.run.creates_renew { 2 * RESTING } else { TIMEOUT };
                // A session with nodes is not renewed for longer, but no renewal makes it shorter, either.
                state.ends = if state.owns { state.now + TIMEOUT } else { state.ends.max(state.now + lasts) };
                state.wire = Some(Wire::Answer { at_rest });
            }
            Action::ServeWithoutRenewal => {
                let Some(Wire::Request { at_rest }) = state.wire else { return None };
                (state.faults, state.wire) = (state.faults - 1, Some(Wire::Answer { at_rest }));
            }
            Action::Hear => {
                let Some(Wire::Answer { at_rest }) = state.wire else { return None };
                self.hear(&mut state, at_rest);
            }
            Action::Wake => state.beats.woken(self.at(state.now)),
            Action::Lose => {
                state.faults -= u8::from(!state.is_late);
                self.unanswered(&mut state);
            }
            Action::Create => self.create(&mut state),
            Action::Delete => state.owns = false,
        }
        self.look(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        Self::nothing_is_wrong()
    }
}

impl Rules for Heartbeats {
    type Rule = BeatRule;
    type Run = Run;

    const SUBJECT: &'static str = "heartbeats";
    const RULES: &'static [(BeatRule, &'static str, Wrong)] = &[
        (
            BeatRule::FromSend,
            "a deadline counts from when its heartbeat was sent: from its answer",
            HELD_AFTER_END,
        ),
        (BeatRule::BareProvesNothing, "an answer at rest proves nothing: it sets a deadline", HELD_AFTER_END),
        (
            BeatRule::WokenByCreate,
            "a first node ends the rest: the next heartbeat is due as if it had not",
            NEEDLESS_LOSS,
        ),
        (BeatRule::GivenUp, "a session at rest is given up in silence: it is not", WAITS_FOR_EVER),
        (BeatRule::Suspended, "a session is suspended when no server answers: it is not", NOT_SUSPENDED),
    ];

    fn new(run: Run, left_out: Option<BeatRule>) -> Self {
        Heartbeats { run, left_out, begun: Instant::now() }
    }

    fn wrong(&self, state: &State) -> Option<Wrong> {
        state.wrong
    }

    fn runs(is_quick: bool) -> Vec<Run> {
        let (steps, faults) = if is_quick { (14, 3) } else { (20, 6) };
        [false, true].map(|creates_renew| Run { creates_renew, faults, steps }).to_vec()
    }

    fn runs_without(_: BeatRule) -> Vec<Run> {
        let none = [false, true].map(|creates_renew| Run { creates_renew, faults: 0, steps: 14 });
        [none, none.map(|run| Run { faults: 3, ..run }), none.map(|run| Run { faults: 12, steps: 20, ..run })]
            .concat()
    }

    fn cells(run: Run) -> Vec<(&'static str, String)> {
        vec![
            ("a create renews", if run.creates_renew { "yes".into() } else { "no".into() }),
            ("faults", run.faults.to_string()),
            ("steps", run.steps.to_string()),
        ]
    }
}
