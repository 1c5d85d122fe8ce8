//! The waiting state machine under a model checker.
//!
//! Real code: `Acquisition` and `judge` of `zlock_recipes::queue`, with real nodes and queues. Modelled: the store (`store`),
//! the driver around the state machine (`driver`), and everything that can happen to both (`lock`). `properties` defines what
//! must hold. The model checker visits every possible order of events.
//!
//! The model's driver or store leaves out a rule (`rules`). The real functions are still called, and their results are altered.

mod alone;
mod alone_rules;
mod check;
mod driver;
mod handoff;
mod handoff_rules;
mod handoff_state;
mod lock;
mod name_rules;
mod names;
mod proof;
mod proof_rules;
mod properties;
mod recipe;
mod rules;
mod state;
mod store;
mod table;

use std::process::ExitCode;

/// Runs `model [--quick] [--traces] [TABLE..]`. The options select the runs of CI, and print the traces to the violations
/// without each rule.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let has = |option: &str| args.iter().any(|arg| arg == option);
    let (quick, traces) = (has("--quick"), has("--traces"));
    let is_wanted = |table| has(table) || args.iter().all(|arg| arg.starts_with("--"));
    let tables: [(&str, &dyn Fn() -> bool); 6] = [
        ("lock", &|| table::all_rules(quick)),
        ("rules", &|| table::each_left_out(traces)),
        ("names", &|| table::names(quick, traces)),
        ("handoff", &|| table::handoff(quick, traces)),
        ("alone", &|| table::alone(quick, traces)),
        ("proof", &|| table::proof(quick, traces)),
    ];
    let mut is_right = true;
    for (_, run) in tables.into_iter().filter(|(table, _)| is_wanted(table)) {
        is_right &= run();
        println!();
    }
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::alone;
    use super::alone_rules::AloneRule;
    use super::check::{quick, without};
    use super::handoff;
    use super::handoff_rules::{HandoffRule, Wrong};
    use super::lock::Delivery;
    use super::name_rules::NameRule;
    use super::names;
    use super::proof;
    use super::proof_rules::ProofRule;
    use super::properties::Violation;
    use super::rules::Rule;

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
        for rule in Rule::ALL {
            for delivery in [Delivery::Ordered, Delivery::Unordered] {
                let (run, explored) = without(rule, delivery);
                let found = explored.found.map(|f| f.violation);
                assert_eq!(found, Some(expected(rule, delivery)), "without {rule:?}: {run:?}");
            }
        }
    }

    #[test]
    fn names_that_are_used_again_are_safe() {
        for run in names::runs(true) {
            let (states, found) = names::explore(run, None);
            assert!(found.is_none(), "{run:?}: {found:?}");
            assert!(states > 1_000, "{run:?}: only {states} states");
        }
    }

    #[test]
    fn each_rule_about_names_is_missed() {
        for rule in NameRule::ALL {
            let (run, _, found) = names::without(rule);
            assert!(found.is_some(), "without {rule:?}: {run:?}");
        }
    }

    #[test]
    fn being_alone_is_safe() {
        for run in alone::runs(true) {
            let (states, found) = alone::explore(run, None);
            assert!(found.is_none(), "{run:?}: {found:?}");
            assert!(states > 1_000, "{run:?}: only {states} states");
        }
    }

    #[test]
    fn each_rule_about_being_alone_is_missed() {
        for rule in AloneRule::ALL {
            let (run, _, found) = alone::without(rule);
            assert!(found.is_some(), "without {rule:?}: {run:?}");
        }
    }

    #[test]
    fn what_is_proved_is_right() {
        for run in proof::runs(true) {
            let (states, found) = proof::explore(run, None);
            assert!(found.is_none(), "{run:?}: {found:?}");
            assert!(states > 1_000, "{run:?}: only {states} states");
        }
    }

    #[test]
    fn each_rule_about_proof_is_missed() {
        for rule in ProofRule::ALL {
            let (_, found) = proof::explore(rule.run(), Some(rule));
            assert!(found.is_some(), "without {rule:?}");
        }
    }

    #[test]
    fn hand_off_is_safe() {
        for run in handoff::runs(true) {
            let (states, found) = handoff::explore(run, None);
            assert!(found.is_none(), "{run:?}: {found:?}");
            assert!(states > 1_000, "{run:?}: only {states} states");
        }
    }

    #[test]
    fn each_rule_about_hand_off_is_missed() {
        for rule in HandoffRule::ALL {
            let (run, _, found) = handoff::without(rule);
            let wrong = match rule {
                HandoffRule::TokenGrows => Wrong::TokenNotLarger,
                HandoffRule::OneTurnAtATime | HandoffRule::OldTurnEndsNothing => Wrong::TwoHolders,
                HandoffRule::NotAfterGivingUp => Wrong::TwoHolders,
                HandoffRule::LiveAtHandOver => Wrong::NeedlessEnd,
                HandoffRule::CheckedByWaiter => Wrong::GrantedNotHeld,
                HandoffRule::LastGivesUp | HandoffRule::DesertedGivesUp => Wrong::NodeLeft,
                HandoffRule::CancelledPassesOn => Wrong::NodeLeft,
                HandoffRule::LeftoverGivenUp | HandoffRule::LossSeenInUse => Wrong::StuckWaiter,
                HandoffRule::DriverEndsAtOnce => Wrong::StuckWaiter,
                HandoffRule::TimeEndsBatch | HandoffRule::TimeOfThePlace => Wrong::TurnTooLate,
                HandoffRule::RevocationEndsBatch | HandoffRule::NotWhileSuspended => Wrong::TurnTooLate,
            };
            assert_eq!(found.map(|(wrong, _)| wrong), Some(wrong), "without {rule:?}: {run:?}");
        }
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
