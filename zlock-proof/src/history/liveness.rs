//! Checks that after the last fault, each client acquires each of its locks again.

use super::{Findings, History, Hold, Ns, seconds};

/// The end of all faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Healed {
    pub(crate) at: Ns,
    /// The time limit for clients to acquire each of their locks.
    pub(crate) within: Ns,
}

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
}
