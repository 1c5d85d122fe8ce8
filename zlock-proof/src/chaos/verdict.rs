//! Checks the recordings of a run.

use std::collections::BTreeMap;
use std::process::ExitCode;

use super::world::Log;
use crate::history::{
    Alive, Findings, Healed, History, Ns, What, Write, errors, fencing, holds, linear, liveness, overlap,
    pauses, signal, storage,
};

/// The verdict of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No problem was found.
    Good,
    /// A promise of zlock was broken, although the servers agree.
    Violations,
    /// The servers disagree, so the histories prove neither that zlock is correct nor that it is not.
    Disagreement,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Good => ExitCode::SUCCESS,
            Verdict::Violations => ExitCode::FAILURE,
            // 2 means an invalid command line.
            Verdict::Disagreement => ExitCode::from(3),
        }
    }
}

/// The recordings of a run.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) servers: String,
    pub(crate) histories: Vec<History>,
    /// The writes that the storage accepted, for each lock.
    pub(crate) accepted: BTreeMap<String, Vec<Write>>,
    /// The processes that were alive at the end.
    pub(crate) alive: Vec<Alive>,
    pub(crate) healed: Healed,
    /// What was left at the servers.
    pub(crate) residue: Vec<String>,
    pub(crate) timeout: Ns,
    pub(crate) log: Log,
}

/// Prints the findings.
pub(crate) fn judge(evidence: &Evidence) -> Verdict {
    let Evidence { servers, histories, accepted, alive, healed, residue, timeout, log } = evidence;
    let holds = holds(histories);
    let mut checks = vec![
        ("exclusion", overlap(&holds, &log.endings)),
        ("fencing", fencing(histories, &holds, &log.endings)),
        ("linearizability", linear(&holds, &log.endings)),
        ("liveness", liveness(histories, &holds, alive, *healed)),
        ("liveness", pauses(&holds, &log.disturbances, healed.at, *timeout)),
        ("signals", signal(histories, &log.endings, &log.disturbances, *timeout)),
        ("errors", errors(histories, &log.endings)),
    ];
    for (lock, accepted) in accepted {
        checks.push(("storage", storage(lock, accepted)));
    }
    let left = Findings {
        violations: residue.clone(),
        figures: vec!["nothing is left at the servers: no node, no session, no watch".to_owned()],
    };
    checks.push(("residue", left));
    checks.push(("processes", Findings { violations: log.violations.clone(), figures: Vec::new() }));

    println!("verdict, {servers}, {} faults, {} processes:", log.faults, histories.len());
    let of_cluster: Vec<_> = log.of_cluster.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    println!("  of the cluster: {}", of_cluster.join(", "));
    if let Some((batches, writes)) = batches(histories) {
        println!(
            "  of the clients: {batches} batches of {:.1} writes on average",
            writes as f64 / batches as f64
        );
    }
    let mut count = 0;
    for (name, findings) in checks {
        // A figure is only true without violations.
        if findings.violations.is_empty() {
            findings.figures.iter().for_each(|figure| println!("  {name}: {figure}"));
        }
        for violation in &findings.violations {
            count += 1;
            println!("  {name}: VIOLATION {violation}");
        }
    }
    if !log.disagreements.is_empty() {
        println!("the servers disagree, although all faults are healed:");
        log.disagreements.iter().for_each(|what| println!("  servers: {what}"));
    }
    let (verdict, line) = conclusion(count, log.disagreements.len());
    println!("{line}");
    verdict
}

/// Returns the number of all batches, and of the writes in them, unless there were none.
fn batches(histories: &[History]) -> Option<(u64, u64)> {
    let last = |history: &History| {
        history.events.iter().rev().find_map(|event| match event.what {
            What::Batches { batches, writes } => Some((batches, writes)),
            _ => None,
        })
    };
    let sum = histories.iter().filter_map(last).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (sum.0 > 0).then_some(sum)
}

/// Returns the verdict for these numbers of violations and disagreements, and the last line of output.
fn conclusion(violations: usize, disagreements: usize) -> (Verdict, String) {
    match (violations, disagreements) {
        (0, 0) => (Verdict::Good, "0 violations".to_owned()),
        (_, 0) => (Verdict::Violations, "VIOLATIONS FOUND".to_owned()),
        (0, _) => {
            let line = "0 violations, but THE SERVERS DISAGREE: this run proves nothing";
            (Verdict::Disagreement, line.to_owned())
        }
        (violations, _) => {
            let line = format!(
                "{violations} violations, and THE SERVERS DISAGREE: one may be the cause of the other"
            );
            (Verdict::Disagreement, line)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_disagree_are_no_good_run() {
        for (violations, disagreements, verdict, last) in [
            (0, 0, Verdict::Good, "0 violations"),
            (2, 0, Verdict::Violations, "VIOLATIONS FOUND"),
            (0, 1, Verdict::Disagreement, "0 violations, but THE SERVERS DISAGREE"),
            (2, 1, Verdict::Disagreement, "2 violations, and THE SERVERS DISAGREE"),
        ] {
            let (found, line) = conclusion(violations, disagreements);
            assert_eq!(found, verdict);
            assert!(line.starts_with(last), "{line}");
        }
    }
}
