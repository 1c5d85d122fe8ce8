//! Tokens over failovers: what a sequence is lifted to when an incarnation begins. Each step, the clock is eight tokens further. Quiet
//! time is taken to be kept: two steps. No real code runs here.

use super::super::search::Wrong;
use super::{Case, Steps, Subject};

const AGAIN: Wrong = "a token that is not above the last one";

/// How far the clock goes in a step, and the length of quiet time in steps.
const RATE: u32 = 8;
const QUIET: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    Clock,
    Addition,
    Once,
    Short,
    RightClock,
    Kept,
}

/// What the clocks show besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clocks {
    Right,
    /// Those of promoted servers are behind.
    Behind,
    /// That of the first server was ahead.
    Ahead,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    until: u32,
    promotions: u8,
    /// Whether an old primary is started again.
    is_restarted: bool,
    clocks: Clocks,
}

/// What a history has of the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    number: u32,
    /// Whether the quiet time of its last incarnation is over.
    is_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: u32,
    number: u32,
    /// When quiet time is over.
    quiet: u32,
    /// One token is given in a step.
    has_given: bool,
    replica: Known,
    old: Option<Known>,
    highest: u32,
    promotions: u8,
    is_again: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens;

impl Case<Tokens> {
    /// Begins an incarnation in this history.
    fn begin(&self, state: &mut State, known: Known) {
        let clock = if self.run.clocks == Clocks::Behind { 0 } else { RATE * state.now };
        let addition = match (self.has(Rule::Addition), self.has(Rule::Short)) {
            (false, _) => 0,
            (_, true) => RATE * QUIET / 2,
            (_, false) => 10 * RATE * QUIET,
        };
        let addition = if known.is_over || !self.has(Rule::Once) { addition } else { 0 };
        let clock = if self.has(Rule::Clock) { clock } else { 0 };
        (state.number, state.quiet) = (clock.max(known.number + addition), state.now + QUIET);
        self.keep(state);
    }

    /// With a wrong clock, the last lift and the end of its quiet time are never lost.
    fn keep(&self, state: &mut State) {
        if self.run.clocks != Clocks::Right && self.has(Rule::Kept) {
            let is_over = state.now >= state.quiet;
            if !is_over || !state.replica.is_over {
                state.replica = Known { number: state.number, is_over };
            }
        }
    }
}

const RUN: Run = Run { until: 10, promotions: 2, is_restarted: false, clocks: Clocks::Right };
const OLD: Run = Run { is_restarted: true, ..RUN };

impl Subject for Tokens {
    type State = State;
    type Rule = Rule;
    type Run = Run;

    const SUBJECT: &'static str = "tokens";
    const RULES: &'static [(Rule, &'static str, Wrong)] = &[
        (Rule::Clock, "an incarnation lifts the sequence to the clock: it does not", AGAIN),
        (Rule::Addition, "or by half a quiet time, if that is more: it does not", AGAIN),
        (Rule::Once, "unless nothing was granted since the last time: also then", AGAIN),
        (Rule::Short, "which is less than quiet time: far more", AGAIN),
        (Rule::RightClock, "with an old primary, the clock is right: it is behind", AGAIN),
        (
            Rule::Kept,
            "with a wrong clock, the last lift and the end of its quiet time are not lost: they are",
            AGAIN,
        ),
    ];

    const QUICK: &'static [Run] = &[
        OLD,
        Run { promotions: 3, ..OLD },
        Run { clocks: Clocks::Behind, ..RUN },
        Run { clocks: Clocks::Ahead, ..RUN },
    ];
    const MORE: &'static [Run] = &[Run { until: 20, ..OLD }];

    fn first(case: &Case<Self>) -> State {
        let ahead = if case.run.clocks == Clocks::Ahead { 100 } else { 0 };
        let replica = Known { number: if case.has(Rule::Kept) { ahead } else { 0 }, is_over: true };
        let (quiet, old, promotions) = (0, None, case.run.promotions);
        let (has_given, is_again) = (false, false);
        State { now: 1, number: ahead, quiet, has_given, replica, old, highest: 0, promotions, is_again }
    }

    fn steps(case: &Case<Self>, state: &State, steps: &mut Steps<'_, Self>) {
        if state.now < case.run.until {
            steps.step("time", state.now as usize, |state| {
                (state.now, state.has_given) = (state.now + 1, false);
                case.keep(state);
            });
        }
        if state.now >= state.quiet && !state.has_given {
            steps.step("gives a token", state.number as usize + 1, |state| {
                (state.number, state.has_given) = (state.number + 1, true);
                state.is_again = state.number <= state.highest;
                state.highest = state.number;
            });
        }
        if state.promotions > 0 {
            let known = Known { number: state.number, is_over: state.now >= state.quiet };
            steps.fault("replica catches up", 0, |state| state.replica = known);
            steps.fault("REPLICA PROMOTED", 0, |state| {
                state.promotions -= 1;
                state.old = case.run.is_restarted.then_some(known);
                case.begin(state, state.replica);
            });
        }
        if let Some(old) = state.old {
            steps.fault("OLD PRIMARY STARTED AGAIN", 0, |state| {
                state.old = None;
                case.begin(state, old);
            });
        }
    }

    fn wrong(_: &Case<Self>, state: &State) -> Option<Wrong> {
        state.is_again.then_some(AGAIN)
    }

    fn run_without(rule: Rule) -> Run {
        match rule {
            Rule::Clock | Rule::Short => OLD,
            Rule::Once => Run { promotions: 3, ..OLD },
            Rule::RightClock => Run { clocks: Clocks::Behind, ..OLD },
            Rule::Addition => Run { clocks: Clocks::Behind, ..RUN },
            Rule::Kept => Run { clocks: Clocks::Ahead, ..RUN },
        }
    }
}
