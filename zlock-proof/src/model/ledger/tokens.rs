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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: u32,
    number: u32,
    /// When quiet time is over.
    quiet: u32,
    /// One token is given in a step.
    has_given: bool,
    replica: u32,
    old: Option<u32>,
    highest: u32,
    promotions: u8,
    is_again: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens;

impl Case<Tokens> {
    /// Begins an incarnation with a sequence at this number.
    fn begin(&self, state: &mut State, number: u32) {
        let clock = if self.run.clocks == Clocks::Behind { 0 } else { RATE * state.now };
        let addition = match (self.has(Rule::Addition), self.has(Rule::Short)) {
            (false, _) => 0,
            (_, true) => RATE * QUIET / 2,
            (_, false) => 10 * RATE * QUIET,
        };
        let clock = if self.has(Rule::Clock) { clock } else { 0 };
        (state.number, state.quiet) = (clock.max(number + addition), state.now + QUIET);
        if self.run.clocks != Clocks::Right && self.has(Rule::Kept) {
            state.replica = state.number;
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
        (Rule::Short, "which is less than quiet time: far more", AGAIN),
        (Rule::RightClock, "with an old primary, the clock is right: it is behind", AGAIN),
        (Rule::Kept, "with a wrong clock, the last lift is not lost: it is", AGAIN),
    ];

    /// Three changes within a quiet time add more than that to the sequence.
    const NOT_PROMISED: Option<Run> = Some(Run { promotions: 3, ..OLD });

    const QUICK: &'static [Run] =
        &[OLD, Run { clocks: Clocks::Behind, ..RUN }, Run { clocks: Clocks::Ahead, ..RUN }];
    const MORE: &'static [Run] = &[Run { until: 20, ..OLD }];

    fn first(case: &Case<Self>) -> State {
        let ahead = if case.run.clocks == Clocks::Ahead { 100 } else { 0 };
        let replica = if case.has(Rule::Kept) { ahead } else { 0 };
        let (quiet, old, promotions) = (0, None, case.run.promotions);
        let (has_given, is_again) = (false, false);
        State { now: 1, number: ahead, quiet, has_given, replica, old, highest: 0, promotions, is_again }
    }

    fn steps(case: &Case<Self>, state: &State, steps: &mut Steps<'_, Self>) {
        if state.now < case.run.until {
            steps.step("time", state.now as usize, |state| {
                (state.now, state.has_given) = (state.now + 1, false);
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
            steps.fault("replica catches up", 0, |state| state.replica = state.number);
            steps.fault("REPLICA PROMOTED", 0, |state| {
                state.promotions -= 1;
                state.old = case.run.is_restarted.then_some(state.number);
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
            Rule::RightClock => Run { clocks: Clocks::Behind, ..OLD },
            Rule::Addition => Run { clocks: Clocks::Behind, ..RUN },
            Rule::Kept => Run { clocks: Clocks::Ahead, ..RUN },
        }
    }
}
