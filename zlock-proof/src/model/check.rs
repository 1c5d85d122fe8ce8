//! Searches of all states, or for the first violation.

use stateright::{Checker, HasDiscoveries, Model};

use super::lock::{Action, Delivery, LockModel, Run};
use super::properties::Violation;
use super::recipe::Recipe;
use super::rules::Rule;
use super::state::ANY;

/// The result of a search.
#[derive(Debug)]
pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) found: Option<Found>,
}

/// A violation, and a shortest trace to it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) violation: Violation,
    pub(crate) trace: Vec<Action>,
}

impl Run {
    /// A run without clients that share a process, and without servers that are behind.
    fn plain(recipe: Recipe, clients: u8, faults: u8, delivery: Delivery) -> Self {
        Run { recipe, clients, together: 0, is_behind: false, faults, delivery }
    }

    fn together(self, together: u8) -> Self {
        Run { together, ..self }
    }

    fn behind(self) -> Self {
        Run { is_behind: true, ..self }
    }

    /// Visits every state that the rules allow.
    pub(crate) fn explore(self) -> Explored {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let search = LockModel::new(self, None).checker().threads(threads);
        // Depth-first search needs less memory, but finds long traces.
        let states = search.finish_when(HasDiscoveries::Any).spawn_dfs().join();
        match states.discoveries().is_empty() {
            true => Explored { states: states.unique_state_count(), found: None },
            false => self.first_violation(None),
        }
    }

    /// Visits states, nearest first, until there is a violation.
    fn first_violation(self, left_out: Option<Rule>) -> Explored {
        let search = LockModel::new(self, left_out).checker().finish_when(HasDiscoveries::Any);
        let states = search.spawn_bfs().join();
        let found = states.discoveries().into_values().next().map(|path| {
            let violation = Violation::of(states.model(), path.last_state());
            Found { violation: violation.expect("the last state is wrong"), trace: path.into_actions() }
        });
        Explored { states: states.unique_state_count(), found }
    }
}

/// Searches for a violation without a rule: two clients before three, and no fault before one. Returns the last run, and the
/// number of states of all runs.
pub(crate) fn without(rule: Rule, delivery: Delivery) -> (Run, Explored) {
    let mut before = 0;
    let mut last = None;
    for (clients, faults) in (2..=3).flat_map(|clients| [(clients, 0), (clients, 1)]) {
        let run = Run::plain(rule.recipe(), clients, faults, delivery).together(rule.together());
        let run = if rule.is_behind() { run.behind() } else { run };
        let explored = run.first_violation(Some(rule));
        before += explored.states;
        let is_found = explored.found.is_some();
        last = Some((run, Explored { states: before, ..explored }));
        if is_found {
            break;
        }
    }
    last.expect("there is a first run")
}

const RECIPES: [Recipe; 3] = [Recipe::Mutex, Recipe::ReadWrite, Recipe::Semaphore { max: 2 }];
/// All places belong to one process, or all but the first, the middle or the last.
const TOGETHER: [u8; 4] = [0b111, 0b110, 0b101, 0b011];

const DELIVERIES: [Delivery; 2] = [Delivery::Ordered, Delivery::Unordered];

/// The runs of CI, which take seconds even without optimization.
pub(crate) fn quick() -> Vec<Run> {
    let mut runs = Vec::new();
    for delivery in DELIVERIES {
        let three = |recipe| Run::plain(recipe, 3, 1, delivery);
        runs.extend(RECIPES.map(three));
        runs.extend(TOGETHER.map(|together| three(Recipe::Mutex).together(together)));
        runs.push(three(Recipe::Mutex).behind());
    }
    runs
}

/// The runs of the command, which take minutes. Runs of four clients are unordered only, which includes all ordered deliveries.
pub(crate) fn thorough() -> Vec<Run> {
    let mut runs = Vec::new();
    for delivery in DELIVERIES {
        let three = |recipe| Run::plain(recipe, 3, ANY, delivery);
        runs.extend(RECIPES.map(three));
        runs.push(Run::plain(Recipe::Semaphore { max: 3 }, 3, 1, delivery));
        runs.extend(TOGETHER.map(|together| three(Recipe::Mutex).together(together)));
        let behind = |recipe, faults| Run::plain(recipe, 3, faults, delivery).behind();
        runs.extend([behind(Recipe::Mutex, 2), behind(Recipe::ReadWrite, 1)]);
        runs.push(behind(Recipe::Mutex, 2).together(0b011));
    }
    let four = |recipe, faults| Run::plain(recipe, 4, faults, Delivery::Unordered);
    runs.extend(RECIPES.map(|recipe| four(recipe, if recipe == Recipe::Mutex { 2 } else { 1 })));
    runs.extend([0b0111, 0b1110, 0b1101, 0b1111].map(|together| four(Recipe::Mutex, 2).together(together)));
    runs.push(four(Recipe::Mutex, 0).behind());
    runs
}
