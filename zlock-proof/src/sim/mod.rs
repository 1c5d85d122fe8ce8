//! A simulation of many clients and faults, on mem in paused time.
//!
//! A seed determines everything: the locks, the number of clients, the faults and their times. The same seed always gives the
//! same run, so a failing seed is its own reproduction.

mod faults;
mod jobs;
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
mod survey;
mod template;
mod truth;
mod usage;
mod worker;
mod world;

use std::ops::Range;
use std::process::ExitCode;

use self::run::run as run_seed;

const USAGE: &str = "\
sim [--seeds A..B] [--trace]   runs these seeds (0..1000) on all cores; stops at the first that fails

--trace prints what happened in the first seed that fails, or in the only one there is.";

pub(crate) fn run(args: &[String]) -> ExitCode {
    let Some((seeds, trace)) = read(args) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let only = (seeds.end - seeds.start == 1).then_some(seeds.start);
    let report = seeds::run(seeds);
    let failed = report.failed.as_ref().map(|(seed, _)| *seed);
    if trace && let Some(seed) = failed.or(only) {
        for line in run_seed(seed, true).trace {
            println!("{line}");
        }
    }
    println!("{report}");
    if failed.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn read(args: &[String]) -> Option<(Range<u64>, bool)> {
    let (mut seeds, mut trace) = (0..1000, false);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--trace" => trace = true,
            "--seeds" => {
                let (from, to) = args.next()?.split_once("..")?;
                seeds = from.parse().ok()?..to.parse().ok()?;
            }
            _ => return None,
        }
    }
    (!seeds.is_empty()).then_some((seeds, trace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_seeds() {
        let report = seeds::run(0..1000);
        println!("{report}");
        assert!(report.failed.is_none(), "{report}");
        let counts = report.counts;
        assert!(
            counts.grants > 10_000 && counts.faults > 1000 && counts.refusals > 1000 && counts.runs > 500,
            "{report}"
        );
    }

    #[test]
    fn one_seed_twice_is_one_trace() {
        for seed in 0..12 {
            let (first, second) = (run_seed(seed, true), run_seed(seed, true));
            assert!(first.trace.len() > 20, "seed {seed}");
            assert_eq!(first.trace, second.trace, "seed {seed}");
            assert_eq!(first.counts, second.counts);
        }
        assert_ne!(run_seed(1, true).trace, run_seed(2, true).trace);
    }
}
