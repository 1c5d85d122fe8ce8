//! Checks that a lock's history is linearizable, with stateright's tester.
//!
//! In the model, locks are granted first come, first served: in the order of the nodes, which the fencing tokens show. A hold
//! ends at its deadline or when its release is called, whichever comes first, or when its session is ended early. A hold that
//! begins after that, such as a downgrade, is left out, because its client could not know. Acquisitions
//! without a grant have no effect in the model: a lock whose holder or next waiter is dead is not free, so a failed attempt
//! contradicts nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

use super::{Ending, Findings, Hold, Kind, Ns};

/// A part of the history ends at the first quiet moment after this many holds, because the tester copies the part's history at
/// each step.
const ENOUGH: usize = 40;
/// The maximum number of holds in a part without a quiet moment.
const TOO_MANY: usize = 400;

/// Checks each lock separately: all of them are linearizable if each of them is.
pub(crate) fn linear(holds: &[Hold], endings: &[Ending]) -> Findings {
    let mut findings = Findings::default();
    let mut by_lock: BTreeMap<&str, Vec<Hold>> = BTreeMap::new();
    for hold in holds.iter().filter(|hold| hold.from < hold.until) {
        let ended = endings.iter().filter(|e| e.session == hold.session).map(|ending| ending.asked);
        let until = ended.fold(hold.until, Ns::min);
        if until <= hold.from {
            continue;
        }
        by_lock.entry(&hold.lock).or_default().push(Hold { until, ..hold.clone() });
    }
    for (lock, holds) in by_lock {
        let parts = parts(holds);
        let (count, most) = (parts.len(), parts.iter().map(Vec::len).max().unwrap_or(0));
        for part in &parts {
            if !is_linear(part) {
                let first = part.first().map(Hold::show).unwrap_or_default();
                findings
                    .violation(format!("{lock}: no order explains {} holds, the first: {first}", part.len()));
            }
        }
        let whole: usize = parts.iter().map(Vec::len).sum();
        findings.figure(format!("{lock}: {whole} holds linearizable, in {count} parts of up to {most}"));
    }
    findings
}

/// Cuts a history at moments without holders. Acquisitions that are waiting at a cut take effect after it, because no earlier
/// event depends on them.
fn parts(holds: Vec<Hold>) -> Vec<Vec<Hold>> {
    let mut parts: Vec<Vec<Hold>> = vec![Vec::new()];
    let mut quiet_from = 0;
    for mut hold in holds {
        let Some(part) = parts.last_mut() else { break };
        if part.len() >= ENOUGH && quiet_from < hold.from || part.len() >= TOO_MANY {
            hold.asked = hold.asked.max(quiet_from);
            parts.push(vec![hold.clone()]);
        } else {
            if let Some(first) = part.first() {
                hold.asked = hold.asked.max(first.asked);
            }
            part.push(hold.clone());
        }
        quiet_from = quiet_from.max(hold.until);
    }
    parts
}

fn is_linear(part: &[Hold]) -> bool {
    let mut order: Vec<u64> = part.iter().map(|hold| hold.token).collect();
    order.sort_unstable();
    let mut tester =
        LinearizabilityTester::new(Lock { order: Arc::from(order), granted: 0, held: BTreeMap::new() });
    for (_, _, step) in steps(part) {
        let told = match step {
            Step::Ask(thread, op) => tester.on_invoke(thread, op).map(|_| ()),
            Step::Answer(thread) => tester.on_return(thread, true).map(|_| ()),
        };
        if told.is_err() {
            return false;
        }
    }
    tester.is_consistent()
}

enum Step {
    Ask(usize, Op),
    Answer(usize),
}

/// Returns the events in order. Each hold is a separate thread: an acquire, then a release that takes effect at once.
fn steps(part: &[Hold]) -> Vec<(Ns, u8, Step)> {
    let mut steps = Vec::new();
    for (thread, hold) in part.iter().enumerate() {
        let (kind, token) = (hold.kind, hold.token);
        // At the same moment: what begins comes before what ends, so that they may go either way.
        steps.push((hold.asked, 0, Step::Ask(thread, Op::Acquire { kind, token })));
        steps.push((hold.from, 2, Step::Answer(thread)));
        steps.push((hold.until, 1, Step::Ask(thread, Op::Release { token })));
        steps.push((hold.until, 3, Step::Answer(thread)));
    }
    steps.sort_by_key(|(at, order, _)| (*at, *order));
    steps
}

/// The specification of a lock. Mutex, read/write lock and semaphore differ in the holds that may coexist.
#[derive(Clone, Debug)]
struct Lock {
    /// The tokens of all grants, in order.
    order: Arc<[u64]>,
    granted: usize,
    held: BTreeMap<u64, Kind>,
}

#[derive(Clone, Debug)]
enum Op {
    Acquire { kind: Kind, token: u64 },
    Release { token: u64 },
}

impl SequentialSpec for Lock {
    type Op = Op;
    type Ret = bool;

    fn invoke(&mut self, op: &Op) -> bool {
        match *op {
            Op::Acquire { kind, token } => {
                let good =
                    self.order.get(self.granted) == Some(&token) && kind.fits(self.held.values().copied());
                if good {
                    self.granted += 1;
                    self.held.insert(token, kind);
                }
                good
            }
            Op::Release { token } => self.held.remove(&token).is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::holds::testing::hold;
    use super::*;

    const ONE: Kind = Kind::Permits { n: 1, max: 2 };

    fn bad(holds: &[Hold]) -> usize {
        linear(holds, &[]).violations.len()
    }

    #[test]
    fn two_at_a_time_and_a_wrong_order_are_caught() {
        for (a, b, wrong) in [
            (Kind::Mutex, Kind::Mutex, true),
            (Kind::Write, Kind::Read, true),
            (Kind::Read, Kind::Write, true),
            (Kind::Read, Kind::Read, false),
            (ONE, ONE, false),
            (ONE, Kind::Permits { n: 2, max: 2 }, true),
        ] {
            let beside = [hold("a", a, 1, 10, 20), hold("b", b, 2, 15, 30)];
            assert_eq!(bad(&beside), usize::from(wrong), "{a} {b}");
            let after = [hold("a", a, 1, 10, 20), hold("b", b, 2, 21, 30)];
            assert_eq!(bad(&after), 0, "{a} {b}");
            let order = [hold("a", a, 2, 10, 20), hold("b", b, 1, 21, 30)];
            assert_eq!(bad(&order), 1, "{a} {b}");
        }
    }

    #[test]
    fn an_answer_may_come_late() {
        // Readers are granted in the order of their tokens; the first one's answer took longer.
        let late = Hold { asked: 1, ..hold("a", Kind::Read, 1, 15, 30) };
        let soon = Hold { asked: 2, ..hold("b", Kind::Read, 2, 10, 30) };
        assert_eq!(bad(&[soon, late]), 0);
    }

    #[test]
    fn a_session_ended_by_hand_ends_its_holds() {
        let holds = [hold("a", Kind::Mutex, 1, 10, 25), hold("b", Kind::Mutex, 2, 20, 30)];
        assert_eq!(bad(&holds), 1);
        let ending = Ending::by_hand(holds[0].session, 15);
        assert!(linear(&holds, &[ending]).violations.is_empty());
        // A downgrade continues with the token, which is smaller than that of a hold after the end.
        let downgraded = Hold { asked: 25, ..hold("a", Kind::Read, 1, 25, 40) };
        let holds = [&holds[..], &[downgraded]].concat();
        assert_eq!(linear(&holds, &[]).violations.len(), 1);
        assert!(linear(&holds, &[ending]).violations.is_empty());
    }

    #[test]
    fn a_long_history_is_cut_where_nobody_holds() {
        let mut holds: Vec<_> = (0..1000)
            .map(|i| Hold { asked: 0, ..hold("a", Kind::Mutex, i, 10 * i + 10, 10 * i + 19) })
            .collect();
        assert_eq!(parts(holds.clone()).len(), 1000 / ENOUGH);
        assert_eq!(bad(&holds), 0);
        holds[777].until += 5;
        assert_eq!(bad(&holds), 1);
    }
}
