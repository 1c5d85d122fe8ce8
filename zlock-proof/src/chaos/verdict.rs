//! All checks on what a run has recorded.

use std::collections::BTreeMap;
use std::process::ExitCode;

use super::world::Log;
use crate::history::{
    Alive, Findings, Healed, History, Ns, Write, errors, fencing, holds, linear, liveness, overlap, signal,
    storage,
};

/// What a run has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing was found.
    Good,
    /// A promise of zlock's was broken, by servers that agree.
    Violations,
    /// The servers contradict each other, so what clients saw proves nothing: neither that zlock is right nor that it is
    /// wrong.
    Disagreement,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Good => ExitCode::SUCCESS,
            Verdict::Violations => ExitCode::FAILURE,
            // 2 is for a command line that nobody understands.
            Verdict::Disagreement => ExitCode::from(3),
        }
    }
}

/// Everything that a run has recorded.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) servers: String,
    pub(crate) histories: Vec<History>,
    /// What the storage accepted, for each lock.
    pub(crate) accepted: BTreeMap<String, Vec<Write>>,
    /// The processes that lived at the end.
    pub(crate) alive: Vec<Alive>,
    pub(crate) healed: Healed,
    /// What was left at the servers.
    pub(crate) residue: Vec<String>,
    pub(crate) timeout: Ns,
    pub(crate) log: Log,
}

/// Prints what was found.
pub(crate) fn judge(evidence: &Evidence) -> Verdict {
    let Evidence { servers, histories, accepted, alive, healed, residue, timeout, log } = evidence;
    let holds = holds(histories);
    let mut checks = vec![
        ("exclusion", overlap(&holds, &log.endings)),
        ("fencing", fencing(histories, &holds, &log.endings)),
        ("linearizability", linear(&holds, &log.endings)),
        ("liveness", liveness(histories, &holds, alive, *healed)),
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
    let mut count = 0;
    for (name, findings) in checks {
        // A figure says what is so only if nothing was found.
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

/// What so many violations and disagreements mean, and the last line.
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
