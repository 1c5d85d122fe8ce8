//! A simulation of many clients and faults, on a store in this process in paused time.
//!
//! A seed determines everything: the locks, the number of clients, the faults and their times. The same seed always gives the
//! same run, so a failing seed is its own reproduction.

mod faults;
mod harm;
mod jobs;
mod leftovers;
mod maxima;
mod oracle;
mod plan;
mod polls;
mod process;
mod random;
mod record;
mod run;
mod seeds;
mod shared;
mod stay;
mod store;
mod survey;
mod template;
mod truth;
mod upheaval;
mod usage;
mod worker;
mod world;

use std::ops::Range;
use std::process::ExitCode;

use self::plan::StoreKind;
use self::run::run as run_seed;

const USAGE: &str = "\
sim [--store mem|ledger] [--seeds A..B] [--trace]   runs these seeds (0..1000) on all cores; stops at the first that fails

--store ledger runs the engine for stores without sessions, and the faults of such stores; mem is the default.
--trace prints what happened in the first seed that fails, or in the only one there is.";

pub(crate) fn run(args: &[String]) -> ExitCode {
    let Some((store, seeds, trace)) = read(args) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let only = (seeds.end - seeds.start == 1).then_some(seeds.start);
    let report = seeds::run(store, seeds);
    let failed = report.failed.as_ref().map(|(seed, _)| *seed);
    if trace && let Some(seed) = failed.or(only) {
        for line in run_seed(store, seed, true).trace {
            println!("{line}");
        }
    }
    println!("{report}");
    if failed.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn read(args: &[String]) -> Option<(StoreKind, Range<u64>, bool)> {
    let (mut store, mut seeds, mut trace) = (StoreKind::Mem, 0..1000, false);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--trace" => trace = true,
            "--store" => store = args.next()?.parse().ok()?,
            "--seeds" => {
                let (from, to) = args.next()?.split_once("..")?;
                seeds = from.parse().ok()?..to.parse().ok()?;
            }
            _ => return None,
        }
    }
    (!seeds.is_empty()).then_some((store, seeds, trace))
}

#[cfg(test)]
mod tests {
    use super::world::Counts;
    use super::*;

    const STORES: [StoreKind; 2] = [StoreKind::Mem, StoreKind::Ledger];

    /// Runs so many seeds, which must include this many grants, faults, refusals and runs of jobs.
    fn seeds_break_no_rule(store: StoreKind, seeds: u64, least: [u64; 4]) {
        let report = seeds::run(store, 0..seeds);
        println!("{report}");
        assert!(report.failed.is_none(), "{report}");
        let Counts { grants, faults, refusals, runs, .. } = report.counts;
        assert!(
            [grants, faults, refusals, runs].iter().zip(least).all(|(had, least)| *had > least),
            "{report}"
        );
    }

    #[test]
    fn a_thousand_seeds_on_mem() {
        seeds_break_no_rule(StoreKind::Mem, 1000, [10_000, 1000, 1000, 500]);
    }

    /// A seed takes several times as long there.
    #[test]
    fn some_hundred_seeds_on_a_ledger() {
        seeds_break_no_rule(StoreKind::Ledger, 250, [2500, 250, 250, 125]);
    }

    #[test]
    fn one_seed_twice_is_one_trace() {
        for (store, seed) in STORES.into_iter().flat_map(|store| (0..12).map(move |seed| (store, seed))) {
            let (first, second) = (run_seed(store, seed, true), run_seed(store, seed, true));
            assert!(first.trace.len() > 20, "seed {seed} on {store:?}");
            assert_eq!(first.trace, second.trace, "seed {seed} on {store:?}");
            assert_eq!(first.counts, second.counts);
        }
        assert_ne!(run_seed(StoreKind::Mem, 1, true).trace, run_seed(StoreKind::Mem, 2, true).trace);
    }
}
