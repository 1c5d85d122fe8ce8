//! Runs many seeds on all cores.

use std::fmt;
use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::plan::StoreKind;
use super::run::{Outcome, run as run_seed};
use super::world::{Counts, Violation};

/// The results of many seeds.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) seeds: u64,
    pub(crate) counts: Counts,
    /// The lowest seed that failed.
    pub(crate) failed: Option<(u64, Violation)>,
    took: Duration,
}

impl Report {
    fn add(&mut self, seed: u64, counts: Counts, violation: Option<Violation>) {
        self.seeds += 1;
        self.counts.grants += counts.grants;
        self.counts.requests += counts.requests;
        self.counts.faults += counts.faults;
        self.counts.refusals += counts.refusals;
        self.counts.runs += counts.runs;
        if let Some(violation) = violation
            && self.failed.as_ref().is_none_or(|(lowest, _)| seed < *lowest)
        {
            self.failed = Some((seed, violation));
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { grants, requests, faults, refusals, runs } = self.counts;
        let rate = self.seeds as f64 / self.took.as_secs_f64().max(0.001);
        writeln!(f, "{} seeds in {:.1?}, {rate:.0} a second", self.seeds, self.took)?;
        write!(
            f,
            "{grants} grants, {refusals} refusals, {runs} runs of jobs, {requests} requests, {faults} faults"
        )?;
        match &self.failed {
            None => write!(f, "; no rule was broken"),
            Some((seed, violation)) => {
                writeln!(f, "\nFAILED seed {seed}: {violation}")?;
                write!(f, "replay: cargo xtask sim --seeds {seed}..{} --trace", seed + 1)
            }
        }
    }
}

/// Runs the seeds, lowest first, with one thread for each core. Starts none above a failed one.
pub(crate) fn run(store: StoreKind, seeds: Range<u64>) -> Report {
    let (next, report) = (AtomicU64::new(seeds.start), Mutex::new(Report::default()));
    let began = now();
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || report.lock().is_ok_and(|report| report.failed.is_some()) {
                        return;
                    }
                    let outcome = outcome(store, seed);
                    report.lock().expect("not poisoned").add(seed, outcome.counts, outcome.violation);
                }
            });
        }
    });
    let mut report = report.into_inner().expect("not poisoned");
    report.took = began.elapsed();
    report
}

/// Runs a seed, and reports panics of destructors that run after the runtime.
fn outcome(store: StoreKind, seed: u64) -> Outcome {
    catch_unwind(|| run_seed(store, seed, false)).unwrap_or_else(|_| Outcome {
        counts: Counts::default(),
        violation: Some(Violation { check: "panic", what: "see above".into(), at: Duration::ZERO }),
        trace: Vec::new(),
    })
}

#[allow(clippy::disallowed_methods, reason = "how long seeds take is measured on the wall")]
fn now() -> Instant {
    Instant::now()
}
