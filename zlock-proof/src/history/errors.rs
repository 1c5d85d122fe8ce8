//! Checks the errors that clients get, and that every operation ends.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ending, Findings, History, What};

/// The errors that a client may get during faults. `Settling` is one of stores without sessions, after a restart.
const EXPECTED: [&str; 5] = ["SessionLost", "Unavailable", "Timeout", "Busy", "Settling"];

/// The error that a client may get when its session was ended early, because it may notice the deleted node first.
const BY_HAND: &str = "NodeDeleted";

/// Checks the errors, and operations that never ended in processes that ended by themselves.
pub(crate) fn errors(histories: &[History], endings: &[Ending]) -> Findings {
    let mut findings = Findings::default();
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for History { client, events } in histories {
        let mut open = BTreeMap::new();
        let mut sessions = BTreeSet::new();
        for event in events {
            match &event.what {
                What::Ask { op, lock, .. } => {
                    open.insert(*op, lock);
                }
                What::Got { op, .. } | What::Stale { op, .. } | What::Taken { op } | What::Dropped { op } => {
                    open.remove(op);
                }
                What::Failed { op, error } => {
                    open.remove(op);
                    let kind = error.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
                    *kinds.entry(kind).or_default() += 1;
                    let ended = |e: &Ending| sessions.iter().any(|session| e.explains(*session, event.at));
                    let by_hand = kind == BY_HAND && endings.iter().any(ended);
                    if !EXPECTED.contains(&kind) && !by_hand {
                        findings.violation(format!("{client} op {op} failed with {error}"));
                    }
                }
                What::Session { session, .. } => {
                    sessions.insert(*session);
                }
                What::Released { op, outcome } if outcome.starts_with("Err") => {
                    findings.violation(format!("{client} op {op} was not released: {outcome}"));
                }
                _ => {}
            }
        }
        if events.last().is_some_and(|event| event.what == What::Bye) {
            for (op, lock) in open {
                findings.violation(format!("{client} op {op} on {lock} never ended"));
            }
        }
    }
    let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    findings
        .figure(format!("errors: {}", if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") }));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(lines: &str) -> usize {
        let text = format!("1 ask op=1 worker=0 lock=/l kind=mutex how=Wait\n{lines}\n");
        let ending = Ending::by_hand(7, 5);
        errors(&[History::parse("c", &text).unwrap()], &[ending]).violations.len()
    }

    #[test]
    fn errors_that_nobody_expects_are_caught() {
        assert_eq!(bad("2 failed op=1 error=Timeout(Queueing) acquire: /l"), 0);
        assert_eq!(bad("2 failed op=1 error=Busy: acquire /l: another client holds the lock"), 0);
        assert_eq!(bad("2 failed op=1 error=Settling: create /l: nothing is granted yet"), 0);
        assert_eq!(bad("2 failed op=1 error=Unexpected acquire: /l"), 1);
        assert_eq!(bad("2 got op=1 from=1 token=1 session=1 deadline=9\n3 released op=1 outcome=Err(x)"), 1);
    }

    #[test]
    fn a_node_goes_only_with_a_session_ended_by_hand() {
        for (session, at, wrong) in [(7, 6, 0), (7, 4, 1), (8, 6, 1)] {
            let begun = format!("2 session epoch=1 session={session} state=Connected deadline=9");
            assert_eq!(bad(&format!("{begun}\n{at} failed op=1 error=NodeDeleted: acquire")), wrong);
        }
    }

    #[test]
    fn an_acquisition_that_never_ends_is_caught() {
        assert_eq!(bad("2 bye"), 1);
        assert_eq!(bad("2 dropped op=1\n3 bye"), 0);
        // Killed.
        assert_eq!(bad("2 session epoch=1 session=1 state=Lost deadline=1"), 0);
    }
}
