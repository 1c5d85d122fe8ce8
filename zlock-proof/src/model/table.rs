//! The tables of `zlock-proof model`, in Markdown.

use super::check::{Explored, Found, quick, thorough, without};
use super::lock::{Action, Delivery, Run};
use super::rules::RULES;
use super::state::ANY;

/// Explores with all rules and prints a line for each run. Returns `true` if there is no violation.
pub(crate) fn all_rules(is_quick: bool) -> bool {
    println!("| all rules | clients | of one process | servers | faults | messages | states | violations |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut is_right = true;
    for run in if is_quick { quick() } else { thorough() } {
        let Explored { states, found } = run.explore();
        let faults = if run.faults == ANY { "any".into() } else { format!("up to {}", run.faults) };
        let servers = if run.is_behind { "may be behind" } else { "" };
        let violations = found.as_ref().map_or("none".into(), |f| f.violation.to_string());
        println!(
            "| {} | {} | {} | {servers} | {faults} | {} | {states} | {violations} |",
            run.recipe,
            run.clients,
            together(run),
            run.delivery
        );
        if let Some(found) = found {
            print_trace(&found.trace);
            is_right = false;
        }
    }
    is_right
}

/// Leaves out each rule in turn. Returns `true` if that always leads to a violation.
pub(crate) fn each_left_out(with_traces: bool) -> bool {
    println!(
        "| rule, and what is done without it | recipe | clients | faults | found | states, ordered | unordered |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut is_missed = true;
    for (rule, text) in RULES {
        let (run, ordered) = without(rule, Delivery::Ordered);
        let (_, unordered) = without(rule, Delivery::Unordered);
        let found = [&ordered, &unordered]
            .map(|e| e.found.as_ref().map_or("NOTHING".into(), |f| f.violation.to_string()));
        let found = if found[0] == found[1] { found[0].clone() } else { found.join(" / ") };
        let Run { recipe, clients, faults, .. } = run;
        println!(
            "| {text} | {recipe} | {clients} | {faults} | {found} | {} | {} |",
            ordered.states, unordered.states
        );
        is_missed &= ordered.found.is_some() && unordered.found.is_some();
        if let (true, Some(Found { trace, .. })) = (with_traces, &ordered.found) {
            print_trace(trace);
        }
    }
    is_missed
}

/// Returns the numbers of the places that belong to one process.
fn together(run: Run) -> String {
    let numbers = (0..run.clients).filter(|i| run.together >> i & 1 == 1).map(|i| (i + 1).to_string());
    numbers.collect::<Vec<_>>().join(", ")
}

fn print_trace(trace: &[Action]) {
    for action in trace {
        println!("    {action:?}");
    }
}
