//! Prints one line of JSON for each workload.

use std::process::Command;

use crate::drive::{Measured, Sample};

/// The workload that shows its rate in each tenth.
pub(crate) const GROWTH: &str = "growth";

/// Returns the servers' counters as JSON, or `null` without a script that prints them.
pub(crate) fn snap(store: &str) -> String {
    let Some(script) = std::env::var_os("PEERS_SNAP").filter(|_| store != "mem") else {
        return "null".into();
    };
    let pid = std::process::id().to_string();
    let output = Command::new("python3").arg(script).args([store, &pid]).output().expect("python3");
    assert!(output.status.success(), "PEERS_SNAP: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns `operations` times `PEERS_SCALE`, at least ten.
pub(crate) fn scaled(operations: usize) -> usize {
    let scale = std::env::var("PEERS_SCALE").unwrap_or_else(|_| "1".into());
    let scale: f64 = scale.parse().expect("PEERS_SCALE=NUMBER");
    ((operations as f64 * scale) as usize).max(10)
}

/// What a line is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) peer: &'a str,
    pub(crate) store: &'a str,
    pub(crate) workload: &'a str,
}

impl<'a> Row<'a> {
    pub(crate) fn of_zlock(store: &'a str, workload: &'a str) -> Self {
        Row { peer: "zlock", store, workload }
    }
}

/// Prints a line.
pub(crate) fn print(row: Row<'_>, measured: &Measured, before: &str, after: &str) {
    let Row { peer, store, workload } = row;
    let Measured { samples, seconds, per_client, violations } = measured;
    let server = std::env::var("PEERS_SERVER").unwrap_or_else(|_| store.into());
    println!(
        "{{\"peer\":\"{peer}\",\"server\":\"{server}\",\"workload\":\"{workload}\",\"clients\":{},\"ops\":{},\
         \"seconds\":{seconds:.4},\"ops_per_sec\":{:.1},\"p50_us\":{:.1},\"p99_us\":{:.1},\
         \"max_acq_us\":{:.1},\"acq_p50_us\":{:.1},\"rel_p50_us\":{:.1},\"min_per_client\":{},\"max_per_client\":{},\
         \"violations\":{violations},{}\"before\":{before},\"after\":{after}}}",
        per_client.len(),
        samples.len(),
        samples.len() as f64 / seconds,
        percentile(samples, 50, |sample| sample.acquire + sample.release),
        percentile(samples, 99, |sample| sample.acquire + sample.release),
        percentile(samples, 100, |sample| sample.acquire),
        percentile(samples, 50, |sample| sample.acquire),
        percentile(samples, 50, |sample| sample.release),
        per_client.iter().min().unwrap_or(&0),
        per_client.iter().max().unwrap_or(&0),
        if workload == GROWTH { tenths(samples) } else { String::new() },
    );
}

/// Returns the field `tenths`: operations per second in each tenth of a task's operations.
fn tenths(samples: &[Sample]) -> String {
    let rate = |tenth: &[Sample]| {
        let nanoseconds: u64 = tenth.iter().map(|sample| sample.acquire + sample.release).sum();
        format!("{:.1}", tenth.len() as f64 * 1e9 / nanoseconds as f64)
    };
    let rates: Vec<_> = samples.chunks(samples.len().div_ceil(10).max(1)).map(rate).collect();
    format!("\"tenths\":[{}],", rates.join(","))
}

/// Returns a percentile in microseconds.
fn percentile(samples: &[Sample], percent: usize, of: fn(&Sample) -> u64) -> f64 {
    let mut all: Vec<_> = samples.iter().map(of).collect();
    all.sort_unstable();
    let at = (all.len().saturating_sub(1) * percent + 50) / 100;
    all.get(at).map_or(0.0, |&nanoseconds| nanoseconds as f64 / 1000.0)
}
