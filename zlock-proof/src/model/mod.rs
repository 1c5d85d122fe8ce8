//! The waiting state machine under a model checker.
//!
//! Real code: `Acquisition` and `judge` of `zlock_recipes::queue`, with real nodes and queues. Modelled: the store (`store`),
//! the driver around the state machine (`driver`), and everything that can happen to both (`lock`, `steps`). `properties` defines what
//! must hold. The model checker visits every possible order of events. `names`, `handoff`, `alone`, `proof`, `beats`, `values`,
//! and those in `ledger` are models of their own, of which `search` has what they share.
//!
//! The model's driver or store leaves out a rule (`rules`). The real functions are still called, and their results are altered.

mod alone;
mod beats;
mod check;
mod driver;
mod handoff;
mod handoff_state;
mod ledger;
mod lock;
mod names;
mod proof;
mod properties;
mod recipe;
mod rules;
mod search;
mod state;
mod steps;
mod store;
mod table;
mod values;

use std::process::ExitCode;

use self::alone::Alone;
use self::beats::Heartbeats;
use self::handoff::Handoffs;
use self::ledger::{Case, Death, FloorsOf, LanesOf, Quiet, Receipts, Spans, States, Tokens, Undo};
use self::names::ReusedNames;
use self::proof::Proof;
use self::values::Writes;

/// Prints the tables of a model. Returns `true` if they are as they must be.
type Tables = fn(bool, bool) -> bool;

/// Runs `model [--quick] [--traces] [TABLE..]`, all tables if none is named. The options select the runs of CI, and print the
/// traces to the violations without each rule.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let has = |option| args.iter().any(|arg| arg == option);
    let (is_quick, with_traces) = (has("--quick"), has("--traces"));
    let all = args.iter().all(|arg| arg.starts_with("--"));
    let tables: [(_, Tables); 17] = [
        ("lock", |is_quick, _| table::all_rules(is_quick)),
        ("rules", |_, with_traces| table::each_left_out(with_traces)),
        ("names", search::tables::<ReusedNames>),
        ("handoff", search::tables::<Handoffs>),
        ("alone", search::tables::<Alone>),
        ("proof", search::tables::<Proof>),
        ("beats", search::tables::<Heartbeats>),
        ("values", search::tables::<Writes>),
        ("lanes", search::tables::<Case<LanesOf>>),
        ("receipts", search::tables::<Case<Receipts>>),
        ("states", search::tables::<Case<States>>),
        ("floors", search::tables::<Case<FloorsOf>>),
        ("undo", search::tables::<Case<Undo>>),
        ("spans", search::tables::<Case<Spans>>),
        ("quiet", search::tables::<Case<Quiet>>),
        ("tokens", search::tables::<Case<Tokens>>),
        ("death", search::tables::<Case<Death>>),
    ];
    let chosen = tables.iter().filter(|(name, _)| all || has(name));
    let mut is_right = true;
    for (_, tables) in chosen {
        is_right &= tables(is_quick, with_traces);
        println!();
    }
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::check::{quick, without};
    use super::lock::Delivery;
    use super::properties::Violation;
    use super::rules::{RULES, Rule};
    use super::search::tests::check;
    use super::*;

    #[test]
    fn with_all_rules_no_state_is_wrong() {
        for run in quick() {
            let explored = run.explore();
            assert!(explored.found.is_none(), "{run:?}: {explored:?}");
            assert!(explored.states > 3_000, "{run:?}: only {} states", explored.states);
        }
    }

    #[test]
    fn each_rule_is_missed() {
        for (rule, _) in RULES {
            for delivery in [Delivery::Ordered, Delivery::Unordered] {
                let (run, explored) = without(rule, delivery);
                let found = explored.found.map(|f| f.violation);
                assert_eq!(found, Some(expected(rule, delivery)), "without {rule:?}: {run:?}");
            }
        }
    }

    #[test]
    fn names_that_are_used_again_are_safe() {
        check::<ReusedNames>();
    }

    #[test]
    fn hand_off_is_safe() {
        check::<Handoffs>();
    }

    #[test]
    fn being_alone_is_safe() {
        check::<Alone>();
    }

    #[test]
    fn what_is_proved_is_right() {
        check::<Proof>();
    }

    #[test]
    fn heartbeats_keep_sessions() {
        check::<Heartbeats>();
    }

    #[test]
    fn writes_of_values_are_safe() {
        check::<Writes>();
    }

    #[test]
    fn lanes_and_receipts_are_safe() {
        check::<Case<LanesOf>>();
        check::<Case<Receipts>>();
    }

    #[test]
    fn scopes_are_read_and_watched_safely() {
        check::<Case<States>>();
        check::<Case<FloorsOf>>();
    }

    #[test]
    fn undone_deletes_are_safe() {
        check::<Case<Undo>>();
    }

    #[test]
    fn incarnations_are_safe() {
        check::<Case<Quiet>>();
        check::<Case<Tokens>>();
    }

    #[test]
    fn watched_time_ends_sessions_safely() {
        check::<Case<Spans>>();
        check::<Case<Death>>();
    }

    fn expected(rule: Rule, delivery: Delivery) -> Violation {
        match (rule, delivery) {
            // In any order, the notice may be lost before the listing arrives that grants the lock.
            (Rule::OwnNode, Delivery::Unordered) => Violation::TwoHolders,
            (Rule::ListedAgain | Rule::WholeListing | Rule::SessionAtGrant, _)
            | (Rule::LocalDeadline | Rule::WriteEndsFirst, _) => Violation::TwoHolders,
            (Rule::QueueWatchAtomic | Rule::EveryHolder, _)
            | (Rule::Promotion | Rule::PromotionAtOnce, _) => Violation::IdlePermits,
            (Rule::PredecessorHeld | Rule::SuccessorIsThere, _) => Violation::TwoHolders,
            (Rule::NextNumber | Rule::PredecessorIsThere | Rule::NotBeingRemoved, _) => Violation::TwoHolders,
            (Rule::CleanUpFirst, _) => Violation::NodeLeft,
            (Rule::NotOlderThanSeen, _) => Violation::NeedlessEnd,
            _ => Violation::StuckWaiter,
        }
    }
}
