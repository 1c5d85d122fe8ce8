//! The rules of the engine for stores without sessions (`zlock-ledger`), with a model for each subject.
//!
//! Real code: `Lanes`, `Hub`, `Floors`, `Watched`, `Past` and `Deaths` of `zlock_ledger`, `judge` of `zlock_recipes::queue`, and
//! `WriteAttempts` of `zlock_core::kit`. Modelled: the store with its faults, and what the engine does around these states.

mod death;
mod floors;
mod lanes;
mod lanes_state;
mod quiet;
mod quiet_state;
mod spans;
mod states;
mod tokens;
mod undo;
mod values;

use std::fmt;
use std::hash::Hash;
use std::sync::LazyLock;
use std::time::Duration;

use stateright::{Model, Property};
use tokio::time::Instant;

pub(crate) use self::death::Death;
pub(crate) use self::floors::FloorsOf;
pub(crate) use self::lanes::LanesOf;
pub(crate) use self::quiet::Quiet;
pub(crate) use self::spans::Spans;
pub(crate) use self::states::States;
pub(crate) use self::tokens::Tokens;
pub(crate) use self::undo::Undo;
pub(crate) use self::values::Receipts;
use super::search::{Rules, Wrong};

const TWO_HOLDERS: Wrong = "two holders";
const STUCK: Wrong = "a waiter that nobody wakes";

/// A model whose steps have the state that follows.
pub(crate) trait Subject: fmt::Debug + Copy + Send + Sync + 'static {
    type State: Clone + PartialEq + Hash + fmt::Debug + Send + Sync + 'static;
    type Rule: Copy + fmt::Debug + PartialEq + Send + Sync + 'static;
    type Run: Copy + fmt::Debug + Send + Sync + 'static;

    const SUBJECT: &'static str;
    /// As in [`Rules`].
    const RULES: &'static [(Self::Rule, &'static str, Wrong)];
    const NOT_PROMISED: Option<Self::Run> = None;

    fn first(case: &Case<Self>) -> Self::State;
    fn steps(case: &Case<Self>, state: &Self::State, steps: &mut Steps<'_, Self>);
    fn wrong(case: &Case<Self>, state: &Self::State) -> Option<Wrong>;

    /// What follows from each step at once.
    fn follow(_: &Case<Self>, _: &mut Self::State) {}

    /// What is wrong with a state in which nothing but faults can happen.
    fn stuck(_: &Case<Self>, _: &Self::State) -> Option<Wrong> {
        None
    }

    /// The runs of CI, and those of the command besides.
    const QUICK: &'static [Self::Run];
    const MORE: &'static [Self::Run];

    fn run_without(rule: Self::Rule) -> Self::Run;
}

/// A run of a model, with all rules or without one.
#[derive(Debug)]
pub(crate) struct Case<S: Subject> {
    run: S::Run,
    left_out: Option<S::Rule>,
}

impl<S: Subject> Case<S> {
    fn has(&self, rule: S::Rule) -> bool {
        self.left_out != Some(rule)
    }
}

/// A state, and what is wrong if nothing more happens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World<T> {
    state: T,
    stuck: Option<Wrong>,
}

/// A step: what happens, to which one, and the state after it.
#[derive(Clone, PartialEq)]
pub(crate) struct Step<T> {
    what: &'static str,
    which: usize,
    is_fault: bool,
    after: World<T>,
}

impl<T> fmt::Debug for Step<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.which)
    }
}

/// The steps from a state.
pub(crate) struct Steps<'a, S: Subject> {
    case: &'a Case<S>,
    state: &'a S::State,
    steps: &'a mut Vec<Step<S::State>>,
}

impl<S: Subject> Steps<'_, S> {
    fn add(&mut self, what: &'static str, which: usize, is_fault: bool, change: impl FnOnce(&mut S::State)) {
        let mut after = World { state: self.state.clone(), stuck: None };
        change(&mut after.state);
        S::follow(self.case, &mut after.state);
        self.steps.push(Step { what, which, is_fault, after });
    }

    /// Adds what happens sooner or later.
    fn step(&mut self, what: &'static str, which: usize, change: impl FnOnce(&mut S::State)) {
        self.add(what, which, false, change);
    }

    /// Adds what need not happen.
    fn fault(&mut self, what: &'static str, which: usize, change: impl FnOnce(&mut S::State)) {
        self.add(what, which, true, change);
    }
}

impl<S: Subject> Model for Case<S> {
    type State = World<S::State>;
    type Action = Step<S::State>;

    fn init_states(&self) -> Vec<Self::State> {
        vec![World { state: S::first(self), stuck: None }]
    }

    fn actions(&self, world: &Self::State, steps: &mut Vec<Self::Action>) {
        if world.stuck.is_some() {
            return;
        }
        S::steps(self, &world.state, &mut Steps { case: self, state: &world.state, steps });
        if steps.iter().all(|step| step.is_fault)
            && let Some(stuck) = S::stuck(self, &world.state)
        {
            let after = World { state: world.state.clone(), stuck: Some(stuck) };
            steps.push(Step { what: "nothing more happens", which: 0, is_fault: true, after });
        }
    }

    fn next_state(&self, _: &Self::State, step: Self::Action) -> Option<Self::State> {
        Some(step.after)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        Self::nothing_is_wrong()
    }
}

impl<S: Subject> Rules for Case<S> {
    type Rule = S::Rule;
    type Run = S::Run;

    const SUBJECT: &'static str = S::SUBJECT;
    const RULES: &'static [(S::Rule, &'static str, Wrong)] = S::RULES;
    const NOT_PROMISED: Option<S::Run> = S::NOT_PROMISED;

    fn new(run: S::Run, left_out: Option<S::Rule>) -> Self {
        Case { run, left_out }
    }

    fn wrong(&self, world: &Self::State) -> Option<Wrong> {
        world.stuck.or_else(|| S::wrong(self, &world.state))
    }

    fn runs(is_quick: bool) -> Vec<S::Run> {
        if is_quick { S::QUICK.to_vec() } else { [S::QUICK, S::MORE].concat() }
    }

    fn runs_without(rule: S::Rule) -> Vec<S::Run> {
        vec![S::run_without(rule)]
    }

    /// The parameters but for those that are nothing.
    fn cells(run: S::Run) -> Vec<(&'static str, String)> {
        let text = format!("{run:?}").replace("Run { ", "").replace(" }", "");
        let is_something = |field: &&str| !field.ends_with(": 0") && !field.ends_with(": false");
        let fields = text.split(", ").filter(is_something).map(|field| field.replace("is_", ""));
        vec![("with", fields.collect::<Vec<_>>().join(", ").replace('_', " "))]
    }
}

/// Returns the instant at which a clock that has begun at 0 and runs at `rate` percent shows that this time has passed.
fn instant(passed: Duration, rate: u32) -> Instant {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    *FIRST + passed * rate / 100
}
