//! The tables of `zlock-proof model`, in Markdown.

use super::alone;
use super::alone_rules::AloneRule;
use super::check::{Explored, Found, Run, quick, thorough, without};
use super::handoff;
use super::handoff_rules::HandoffRule;
use super::lock::{Action, Delivery};
use super::name_rules::NameRule;
use super::names;
use super::proof;
use super::proof_rules::ProofRule;
use super::rules::Rule;
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
    for rule in Rule::ALL {
        let (run, ordered) = without(rule, Delivery::Ordered);
        let (_, unordered) = without(rule, Delivery::Unordered);
        let found = [&ordered, &unordered]
            .map(|e| e.found.as_ref().map_or("NOTHING".into(), |f| f.violation.to_string()));
        let found = if found[0] == found[1] { found[0].clone() } else { found.join(" / ") };
        let Run { recipe, clients, faults, .. } = run;
        println!(
            "| {} | {recipe} | {clients} | {faults} | {found} | {} | {} |",
            rule.text(),
            ordered.states,
            unordered.states
        );
        is_missed &= ordered.found.is_some() && unordered.found.is_some();
        if let (true, Some(Found { trace, .. })) = (with_traces, &ordered.found) {
            print_trace(trace);
        }
    }
    is_missed
}

/// The same two tables for reused names.
pub(crate) fn names(is_quick: bool, with_traces: bool) -> bool {
    println!("| all rules about names | uses of each place | fences | given up | states | wrong |");
    println!("|---|---|---|---|---|---|");
    let mut is_right = true;
    for run in names::runs(is_quick) {
        let (states, found) = names::explore(run, None);
        let wrong = found.as_ref().map_or("nothing", |(wrong, _)| wrong.text());
        println!(
            "| places: {} | {} | {} | {} | {states} | {wrong} |",
            run.places,
            run.uses,
            fences(run),
            run.given_up
        );
        is_right &= found.is_none();
    }
    println!();
    println!(
        "| rule about names, and what is done without it | places | fences | given up | wrong | states |"
    );
    println!("|---|---|---|---|---|---|");
    for rule in NameRule::ALL {
        let (run, states, found) = names::without(rule);
        let wrong = found.as_ref().map_or("NOTHING", |(wrong, _)| wrong.text());
        println!(
            "| {} | {} | {} | {} | {wrong} | {states} |",
            rule.text(),
            run.places,
            fences(run),
            run.given_up
        );
        if let (true, Some((_, trace))) = (with_traces, &found) {
            trace.iter().for_each(|action| println!("    {action:?}"));
        }
        is_right &= found.is_some();
    }
    is_right
}

/// The same two tables for hand-off inside a client.
pub(crate) fn handoff(is_quick: bool, with_traces: bool) -> bool {
    println!("| all rules about hand-off | losses | states | wrong |");
    println!("|---|---|---|---|");
    let mut is_right = true;
    for run in handoff::runs(is_quick) {
        let (states, found) = handoff::explore(run, None);
        let wrong = found.as_ref().map_or("nothing", |(wrong, _)| wrong.text());
        println!("| tasks: {} | {} | {states} | {wrong} |", run.tasks, run.losses);
        is_right &= found.is_none();
    }
    println!();
    println!("| rule about hand-off, and what is done without it | tasks | losses | wrong | states |");
    println!("|---|---|---|---|---|");
    for rule in HandoffRule::ALL {
        let (run, states, found) = handoff::without(rule);
        let wrong = found.as_ref().map_or("NOTHING", |(wrong, _)| wrong.text());
        println!("| {} | {} | {} | {wrong} | {states} |", rule.text(), run.tasks, run.losses);
        if let (true, Some((_, trace))) = (with_traces, &found) {
            trace.iter().for_each(|action| println!("    {action:?}"));
        }
        is_right &= found.is_some();
    }
    is_right
}

/// The same two tables for a client that is the only user of a lock.
pub(crate) fn alone(is_quick: bool, with_traces: bool) -> bool {
    println!(
        "| all rules about being alone | others' nodes | operator's deletes | interruptions | states | wrong |"
    );
    println!("|---|---|---|---|---|---|");
    let mut is_right = true;
    for run in alone::runs(is_quick) {
        let (states, found) = alone::explore(run, None);
        let wrong = if found.is_some() { "two holders" } else { "nothing" };
        println!("| {} | {states} | {wrong} |", counts(run));
        if let Some(trace) = &found {
            trace.iter().for_each(|action| println!("    {action:?}"));
        }
        is_right &= found.is_none();
    }
    println!();
    println!(
        "| rule about being alone, and what is done without it | uses | others' nodes | operator's deletes | interruptions | wrong | states |"
    );
    println!("|---|---|---|---|---|---|---|");
    for rule in AloneRule::ALL {
        let (run, states, found) = alone::without(rule);
        let wrong = if found.is_some() { "two holders" } else { "NOTHING" };
        println!("| {} | {} | {wrong} | {states} |", rule.text(), counts(run));
        if let (true, Some(trace)) = (with_traces, &found) {
            trace.iter().for_each(|action| println!("    {action:?}"));
        }
        is_right &= found.is_some();
    }
    is_right
}

/// The same two tables for the deadline of a ZooKeeper session.
pub(crate) fn proof(is_quick: bool, with_traces: bool) -> bool {
    println!("| all rules about proof | time | faults | states | wrong |");
    println!("|---|---|---|---|---|");
    let text = |is_found| if is_found { "deadline too late" } else { "nothing" };
    let mut is_right = true;
    for run in proof::runs(is_quick) {
        let (states, found) = proof::explore(run, None);
        println!(
            "| {} | {} | {} | {states} | {} |",
            start(run),
            run.until,
            faults(run),
            text(found.is_some())
        );
        if let Some(trace) = &found {
            trace.iter().for_each(|action| println!("    {action:?}"));
        }
        is_right &= found.is_none();
    }
    let run = proof::beyond();
    let (states, found) = proof::explore(run, None);
    println!();
    println!("not promised, {}: {}, of {states} states", faults(run), text(found.is_some()));
    println!();
    println!("| rule about proof, and what is done without it | faults | wrong | states |");
    println!("|---|---|---|---|");
    for rule in ProofRule::ALL {
        let (states, found) = proof::explore(rule.run(), Some(rule));
        let wrong = if found.is_some() { "deadline too late" } else { "NOTHING" };
        println!("| {} | {} | {wrong} | {states} |", rule.text(), faults(rule.run()));
        if let (true, Some(trace)) = (with_traces, &found) {
            trace.iter().for_each(|action| println!("    {action:?}"));
        }
        is_right &= found.is_some();
    }
    is_right
}

fn start(run: proof::Run) -> &'static str {
    if run.is_idle { "idle at first" } else { "holding" }
}

fn faults(run: proof::Run) -> String {
    let faults = [
        (run.stops, "leader stops"),
        (run.stalls, "client stalls"),
        (run.elections, "next leader"),
        (run.interruptions, "reconnection"),
        (run.delays, "delays"),
    ];
    let faults = faults.iter().filter(|(count, _)| *count > 0);
    let faults: Vec<_> = faults.map(|(count, fault)| format!("{fault}: {count}")).collect();
    if faults.is_empty() { "its server dies".into() } else { faults.join(", ") }
}

fn counts(run: alone::Run) -> String {
    format!("uses: {} | {} | {} | {}", run.uses, run.theirs, run.deletes, run.interruptions)
}

fn fences(run: names::Run) -> &'static str {
    if run.one_fence { "one for all" } else { "one a name" }
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
