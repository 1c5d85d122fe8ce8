//! Checks that locks are granted all the time, and that after the last fault, each client acquires each of its locks again.

use std::collections::BTreeMap;

use super::signal::overlap;
use super::{Disturbance, Findings, History, Hold, Ns, seconds};

/// The end of all faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Healed {
    pub(crate) at: Ns,
    /// The time limit for clients to acquire each of their locks.
    pub(crate) within: Ns,
}

/// The lock of crowds, which is not wanted all the time.
pub(crate) const CROWD: &str = "/chaos/crowd";

/// A process that is alive at the end, and the locks that it acquires.
pub(crate) type Alive = (String, &'static [&'static str]);

/// Checks the processes that are alive at the end, and each of their locks.
pub(crate) fn liveness(histories: &[History], holds: &[Hold], alive: &[Alive], healed: Healed) -> Findings {
    let mut findings = Findings::default();
    let Healed { at, within } = healed;
    let mut slowest = 0;
    for (client, locks) in alive {
        if !histories.iter().any(|history| history.client == *client) {
            findings.violation(format!("{client} is alive but has recorded nothing"));
        }
        for lock in *locks {
            // Asked for before or after: what counts is that it came.
            let mut got = holds
                .iter()
                .filter(|h| h.client == *client && h.lock == *lock && h.from >= at && h.from < h.until);
            match got.next() {
                Some(hold) if hold.from - at <= within => slowest = slowest.max(hold.from - at),
                Some(hold) => findings.violation(format!(
                    "{client} got {lock} only {} after the last fault",
                    seconds(hold.from - at)
                )),
                None => findings.violation(format!("{client} never got {lock} after the last fault")),
            }
        }
    }
    findings.figure(format!(
        "{} clients got each of their locks after the last fault, the last after {}",
        alive.len(),
        seconds(slowest)
    ));
    findings
}

/// Checks the times without a grant, less those of disturbances of all clients: for all locks together, they are at most two session
/// timeouts, and for one lock, four. Faults of single clients explain that: within one timeout, the session of a dead holder ends.
pub(crate) fn pauses(holds: &[Hold], disturbances: &[Disturbance], until: Ns, timeout: Ns) -> Findings {
    let mut findings = Findings::default();
    let of_all: Vec<_> = disturbances.iter().filter(|d| d.client.is_none()).collect();
    let mut grants: BTreeMap<&str, Vec<Ns>> = BTreeMap::new();
    for hold in holds.iter().filter(|hold| hold.from < until) {
        for lock in ["", &hold.lock] {
            grants.entry(lock).or_default().push(hold.from);
        }
    }
    // Of some tasks at some moments.
    grants.remove(CROWD);
    let mut longest = [0, 0];
    for (lock, mut grants) in grants {
        grants.push(until);
        let (index, limit) = if lock.is_empty() { (0, timeout * 2) } else { (1, timeout * 4) };
        for (from, until) in grants.iter().zip(&grants[1..]) {
            let pause = until - from - overlap(&of_all, *from, *until, timeout / 4);
            longest[index] = pause.max(longest[index]);
            if pause > limit {
                let lock = if lock.is_empty() { "any lock" } else { lock };
                let pause = seconds(pause);
                findings.violation(format!("{pause} without a grant of {lock} or a fault, after {from}"));
            }
        }
    }
    let [any, one] = longest.map(seconds);
    findings.figure(format!("without a fault of all, a grant within {any}, and of each lock within {one}"));
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::super::holds::testing::hold;
    use super::*;

    #[test]
    fn who_gets_no_lock_or_gets_it_late_is_caught() {
        let healed = Healed { at: 100, within: 50 };
        let alive: [Alive; 1] = [("a".to_owned(), &["/l"])];
        let histories = [History { client: "a".to_owned(), events: Vec::new() }];
        for (from, bad) in [(90, true), (120, false), (151, true)] {
            let holds = [hold("a", Kind::Mutex, 1, from, from + 9), hold("b", Kind::Mutex, 2, 110, 111)];
            let found = liveness(&histories, &holds, &alive, healed);
            assert_eq!(found.violations.len(), usize::from(bad), "{from}");
        }
        assert_eq!(liveness(&[], &[], &alive, healed).violations.len(), 2);
    }

    #[test]
    fn a_time_without_grants_is_caught_unless_faults_explain_it() {
        let grant =
            |lock: &str, from| Hold { lock: lock.to_owned(), ..hold("a", Kind::Mutex, from, from, from + 1) };
        let fault = |from, until, client: Option<&str>| {
            let client = client.map(str::to_owned);
            Disturbance { from, until, client, misleads: false, server: None }
        };
        // With a timeout of 100, and grants of the other lock at these times.
        for (other, faults, bad) in [
            (vec![200, 385], vec![], 0),
            (vec![200, 390], vec![], 1),
            (vec![200, 390], vec![fault(0, 60, None)], 0),
            (vec![200, 390], vec![fault(0, 60, Some("a"))], 1),
            (vec![100, 310], vec![], 1),
            (vec![100, 310], vec![fault(150, 200, None)], 0),
        ] {
            let last = other.last().copied().unwrap_or(0);
            let mut holds = vec![grant("/l", 5)];
            holds.extend(other.into_iter().map(|from| grant("/other", from)));
            let until = last + 20;
            assert_eq!(pauses(&holds, &faults, until, 100).violations.len(), bad, "{last} {faults:?}");
        }
    }
}
