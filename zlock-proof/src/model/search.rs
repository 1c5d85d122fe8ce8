//! What the models beside that of the waiting have in common: their searches, their tables and their tests.

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model, Property};

/// A violation in a state.
pub(crate) type Wrong = &'static str;

/// A model of some rules, each of which can be left out.
pub(crate) trait Rules:
    Model<State: Clone + PartialEq + Hash + Send + Sync + 'static, Action: Clone + PartialEq + Debug>
    + Debug
    + Send
    + Sync
    + Sized
    + 'static
{
    type Rule: Copy + Debug + PartialEq + 'static;
    /// The parameters of a search.
    type Run: Copy + Debug;

    /// What the rules are about.
    const SUBJECT: &'static str;
    /// Each rule, what is done without it after the colon, and what is wrong then.
    const RULES: &'static [(Self::Rule, &'static str, Wrong)];
    /// A run that no rule covers, which has a violation.
    const NOT_PROMISED: Option<Self::Run> = None;

    /// Returns the model with all rules, or without one.
    fn new(run: Self::Run, left_out: Option<Self::Rule>) -> Self;

    fn wrong(&self, state: &Self::State) -> Option<Wrong>;

    /// Returns the runs with all rules, fewer and smaller ones for CI.
    fn runs(is_quick: bool) -> Vec<Self::Run>;

    /// Returns the runs without a rule, smallest first. One of them has a violation.
    fn runs_without(rule: Self::Rule) -> Vec<Self::Run>;

    /// Returns the parameters of a run by name, for the tables.
    fn cells(run: Self::Run) -> Vec<(&'static str, String)>;

    /// For `Model::properties`.
    fn nothing_is_wrong() -> Vec<Property<Self>> {
        vec![Property::always("nothing is wrong", |model: &Self, state| model.wrong(state).is_none())]
    }
}

/// The result of a search.
#[derive(Debug)]
pub(crate) struct Explored<A> {
    pub(crate) states: usize,
    /// The first violation, with a shortest trace to it.
    pub(crate) found: Option<(Wrong, Vec<A>)>,
}

impl<A: Debug> Explored<A> {
    fn wrong(&self, otherwise: Wrong) -> Wrong {
        self.found.as_ref().map_or(otherwise, |(wrong, _)| wrong)
    }

    fn print_trace(&self) {
        if let Some((_, trace)) = &self.found {
            trace.iter().for_each(|action| println!("    {action:?}"));
        }
    }
}

/// Visits every state.
pub(crate) fn explore<M: Rules>(run: M::Run) -> Explored<M::Action> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let search = M::new(run, None).checker().threads(threads).finish_when(HasDiscoveries::Any);
    // Depth-first search needs less memory, but finds long traces.
    let search = search.spawn_dfs().join();
    match search.discoveries().is_empty() {
        true => Explored { states: search.unique_state_count(), found: None },
        false => first_violation(M::new(run, None)),
    }
}

/// Visits states, nearest first, until there is a violation.
fn first_violation<M: Rules>(model: M) -> Explored<M::Action> {
    let search = model.checker().finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let found = search.discoveries().into_values().next().map(|path| {
        let wrong = search.model().wrong(path.last_state()).expect("the last state is wrong");
        (wrong, path.into_actions())
    });
    Explored { states: search.unique_state_count(), found }
}

/// Returns the smallest run with a violation without the rule.
pub(crate) fn without<M: Rules>(rule: M::Rule) -> (M::Run, Explored<M::Action>) {
    let mut last = None;
    for run in M::runs_without(rule) {
        let explored = first_violation(M::new(run, Some(rule)));
        let is_found = explored.found.is_some();
        last = Some((run, explored));
        if is_found {
            break;
        }
    }
    last.expect("there is a first run")
}

/// Prints the table with all rules, and the table with each rule left out. Returns `true` if both are as they must be.
pub(crate) fn tables<M: Rules>(is_quick: bool, with_traces: bool) -> bool {
    let (subject, mut is_right) = (M::SUBJECT, true);
    let runs = M::runs(is_quick);
    let names: Vec<_> = M::cells(runs[0]).into_iter().map(|(name, _)| name).collect();
    let values = |run| M::cells(run).into_iter().map(|(_, value)| value).collect::<Vec<_>>();
    head(&[&[&*format!("all rules about {subject}")], &names[1..], &["states", "wrong"]].concat());
    for run in runs {
        let (explored, values) = (explore::<M>(run), values(run));
        let (values, wrong) = (values.join(" | "), explored.wrong("nothing"));
        println!("| {}: {values} | {} | {wrong} |", names[0], explored.states);
        explored.print_trace();
        is_right &= explored.found.is_none();
    }
    println!();
    if let Some(run) = M::NOT_PROMISED {
        let (explored, values) = (explore::<M>(run), values(run).join(", "));
        println!("not promised, {values}: {}, of {} states\n", explored.wrong("NOTHING"), explored.states);
        is_right &= explored.found.is_some();
    }
    let rule = format!("rule about {subject}, and what is done without it");
    head(&[&[&*rule], &*names, &["wrong", "states"]].concat());
    for (rule, text, wrong) in M::RULES {
        let (run, explored) = without::<M>(*rule);
        let (values, found) = (values(run).join(" | "), explored.wrong("NOTHING"));
        println!("| {text} | {values} | {found} | {} |", explored.states);
        if with_traces {
            explored.print_trace();
        }
        is_right &= found == *wrong;
    }
    is_right
}

fn head(cells: &[&str]) {
    println!("| {} |\n{}|", cells.join(" | "), "|---".repeat(cells.len()));
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Checks that all rules together are safe in the runs of CI, and that each of them is missed.
    pub(crate) fn check<M: Rules>() {
        for run in M::runs(true) {
            let explored = explore::<M>(run);
            assert!(explored.found.is_none(), "{run:?}: {explored:?}");
            assert!(explored.states > 1_000, "{run:?}: only {} states", explored.states);
        }
        for (rule, _, wrong) in M::RULES {
            let (run, explored) = without::<M>(*rule);
            assert_eq!(explored.wrong("nothing"), *wrong, "without {rule:?}: {run:?}");
        }
    }
}
