//! Checks fencing: the tokens of successive holders increase, and a storage that rejects older ones loses no writes.

use std::collections::BTreeMap;

use super::{Ending, Findings, History, Hold, Kind, TURN_BITS, What};

/// A write that the storage accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) token: u64,
    /// The value that the writer had read, plus one.
    pub(crate) value: u64,
}

/// Checks the order of tokens, and holders that the storage rejected although they certainly held the lock.
pub(crate) fn fencing(histories: &[History], holds: &[Hold], endings: &[Ending]) -> Findings {
    let mut findings = Findings::default();
    order(holds, &mut findings);
    let by_op: BTreeMap<(&str, u64), &Hold> =
        holds.iter().map(|hold| ((hold.client.as_str(), hold.op), hold)).collect();
    let (mut refused, mut killed) = (0, 0);
    for history in histories {
        for event in &history.events {
            let What::Refused { op, at, newer } = event.what else { continue };
            refused += 1;
            let Some(hold) = by_op.get(&(history.client.as_str(), op)).filter(|hold| at < hold.until) else {
                continue;
            };
            if endings.iter().any(|ending| ending.explains(hold.session, at)) {
                killed += 1;
            } else {
                findings.violation(format!("refused at {at} for token {newer} while {}", hold.show()));
            }
        }
    }
    findings.figure(format!(
        "{refused} visits refused by the storage, {killed} of them after a session was ended before its time"
    ));
    findings
}

/// Checks that of two holds that exclude each other, the later has the larger token. A holder that was downgraded keeps its
/// token.
fn order(holds: &[Hold], findings: &mut Findings) {
    let mut by_lock: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
    let permits = |hold: &Hold| matches!(hold.kind, Kind::Permits { .. });
    for hold in holds.iter().filter(|hold| hold.from < hold.until && !permits(hold)) {
        by_lock.entry(&hold.lock).or_default().push(hold);
    }
    let mut compared = 0;
    for holds in by_lock.values() {
        // The largest token of all earlier holds, and of the exclusive ones.
        let mut largest: [Option<&Hold>; 2] = [None, None];
        for hold in holds {
            let shared = hold.kind == Kind::Read;
            let before = largest[usize::from(shared)];
            compared += usize::from(before.is_some());
            if let Some(before) =
                before.filter(|before| before.token > hold.token || before.token == hold.token && !shared)
            {
                findings.violation(format!(
                    "the token does not grow: {}, after {}",
                    hold.show(),
                    before.show()
                ));
            }
            for (of_alone, largest) in largest.iter_mut().enumerate() {
                let counts = of_alone == 0 || !shared;
                if counts && largest.is_none_or(|largest| largest.token < hold.token) {
                    *largest = Some(hold);
                }
            }
        }
    }
    findings.figure(format!("{compared} holds with a token larger than all that they exclude"));
    let handed = holds.iter().filter(|hold| hold.token % (1 << TURN_BITS) > 0).count();
    findings.figure(format!("{handed} holds were handed over inside a client"));
}

/// Checks the writes that the storage accepted, in its order, for each lock.
pub(crate) fn storage(lock: &str, accepted: &[Write]) -> Findings {
    let mut findings = Findings::default();
    let mut before = Write { token: 0, value: 0 };
    for write in accepted {
        if write.token < before.token {
            findings.violation(format!(
                "{lock}: the storage accepted token {} after {}",
                write.token, before.token
            ));
        }
        if write.value != before.value + 1 {
            findings.violation(format!("{lock}: a write was lost: {} after {}", write.value, before.value));
        }
        before = *write;
    }
    findings.figure(format!("{lock}: {} writes accepted by the storage, none lost", accepted.len()));
    findings
}

#[cfg(test)]
mod tests {
    use super::super::holds::testing::hold;
    use super::*;

    fn found(holds: &[Hold]) -> usize {
        fencing(&[], holds, &[]).violations.len()
    }

    #[test]
    fn a_token_that_does_not_grow_is_caught() {
        for (before, after, tokens, bad) in [
            (Kind::Mutex, Kind::Mutex, (5, 6), false),
            (Kind::Mutex, Kind::Mutex, (6, 5), true),
            (Kind::Mutex, Kind::Mutex, (6, 6), true),
            (Kind::Read, Kind::Write, (6, 5), true),
            (Kind::Write, Kind::Read, (6, 5), true),
            (Kind::Write, Kind::Read, (6, 6), false),
            (Kind::Read, Kind::Read, (6, 5), false),
        ] {
            let holds = [hold("a", before, tokens.0, 10, 20), hold("b", after, tokens.1, 20, 30)];
            assert_eq!(found(&holds), usize::from(bad), "{before} {after} {tokens:?}");
        }
    }

    #[test]
    fn a_reader_in_between_hides_nothing() {
        let write = |token, from| hold("w", Kind::Write, token, from, from + 5);
        let read = hold("r", Kind::Read, 9, 20, 25);
        assert_eq!(found(&[write(8, 10), read, write(7, 30)]), 1);
    }

    #[test]
    fn who_is_refused_while_it_holds_is_caught() {
        let holds = [hold("a", Kind::Mutex, 5, 10, 20)];
        for (at, asked, bad) in
            [(15, None, true), (20, None, false), (15, Some(12), false), (15, Some(16), true)]
        {
            let history = History::parse("a", &format!("99 refused op=5 at={at} newer=6\n")).unwrap();
            let endings: Vec<_> =
                asked.into_iter().map(|asked| Ending::by_hand(holds[0].session, asked)).collect();
            let found = fencing(&[history], &holds, &endings);
            assert_eq!(found.violations.len(), usize::from(bad), "{at} {asked:?}");
        }
    }

    #[test]
    fn what_the_storage_lost_is_caught() {
        let write = |token, value| Write { token, value };
        assert!(storage("/l", &[write(1, 1), write(1, 2), write(4, 3)]).violations.is_empty());
        assert_eq!(storage("/l", &[write(1, 1), write(4, 1)]).violations.len(), 1);
        assert_eq!(storage("/l", &[write(4, 1), write(1, 2)]).violations.len(), 1);
    }
}
