//! All checks on what a run has recorded.

use std::collections::BTreeMap;

use super::world::Log;
use crate::history::{
    Alive, Findings, Healed, History, Ns, Write, errors, fencing, holds, linear, liveness, overlap, signal,
    storage,
};

/// Everything that a run has recorded.
#[derive(Debug)]
pub(crate) struct Evidence {
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

/// Prints what was found; whether it is all well.
pub(crate) fn judge(evidence: &Evidence) -> bool {
    let Evidence { histories, accepted, alive, healed, residue, timeout, log } = evidence;
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

    println!("verdict, {} faults, {} processes:", log.faults, histories.len());
    let mut good = true;
    for (name, findings) in checks {
        // A figure says what is so only if nothing was found.
        if findings.violations.is_empty() {
            findings.figures.iter().for_each(|figure| println!("  {name}: {figure}"));
        }
        for violation in &findings.violations {
            good = false;
            println!("  {name}: VIOLATION {violation}");
        }
    }
    println!("{}", if good { "0 violations" } else { "VIOLATIONS FOUND" });
    good
}
