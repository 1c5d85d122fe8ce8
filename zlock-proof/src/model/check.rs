//! Searches: all states, or the first that is wrong.

use stateright::{Checker, HasDiscoveries, Model};

use super::lock::{Action, Delivery, LockModel};
use super::properties::Violation;
use super::recipe::Recipe;
use super::rules::Rule;
use super::state::ANY;

/// What a search is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) recipe: Recipe,
    pub(crate) clients: u8,
    /// Which of them are places of one process, with one session: a bit for each.
    pub(crate) together: u8,
    /// Whether the servers that clients ask may be behind.
    pub(crate) is_behind: bool,
    pub(crate) faults: u8,
    pub(crate) delivery: Delivery,
}

/// What came of a search.
#[derive(Debug)]
pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) found: Option<Found>,
}

/// A wrong state, and a shortest way to it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) violation: Violation,
    pub(crate) trace: Vec<Action>,
}

impl Run {
    /// No two clients of one process, and no server that is behind.
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
        // Depth first needs less memory, but finds long ways.
        let states = search.finish_when(HasDiscoveries::Any).spawn_dfs().join();
        match states.discoveries().is_empty() {
            true => Explored { states: states.unique_state_count(), found: None },
            false => self.first_violation(None),
        }
    }

    /// Visits states, the nearest first, until one is wrong.
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

/// Looks for what goes wrong when a rule is left out: with two clients before three, and with no fault before
/// one. Gives the last run, and the states of all.
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
/// All of one process, or one before, between or behind them.
const TOGETHER: [u8; 4] = [0b111, 0b110, 0b101, 0b011];

const DELIVERIES: [Delivery; 2] = [Delivery::Ordered, Delivery::Unordered];

/// What CI explores: seconds, also where nothing is optimized.
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

/// What the command explores: minutes. Four clients only hear in any order, which is any order they could keep.
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
