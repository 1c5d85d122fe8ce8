//! `zlock bench`: measures the cost of locks on a store, with workloads from the project's benchmarks.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use zlock::Client;

use crate::args::Bench;
use crate::exit::Failure;
use crate::output::{millis, print_json, print_table};
use crate::store::Target;

/// Clients that all use one lock, each with its own session and a number of tasks.
struct Workload {
    name: &'static str,
    what: &'static str,
    clients: usize,
    tasks: usize,
}

const WORKLOADS: [Workload; 3] = [
    Workload { name: "w1", what: "one client alone", clients: 1, tasks: 1 },
    Workload { name: "w2-8", what: "8 clients, one lock", clients: 8, tasks: 1 },
    Workload { name: "w3", what: "64 tasks of one client, one lock", clients: 1, tasks: 64 },
];

/// The measurements of a workload.
struct Outcome {
    /// From call to grant, sorted.
    waits: Vec<Duration>,
    took: Duration,
}

pub(crate) async fn bench(args: Bench) -> Result<ExitCode, Failure> {
    let target = Target::parse(&args.url)?;
    if !args.yes {
        let time = args.time * u32::try_from(WORKLOADS.len()).unwrap_or(1);
        return Err(Failure::failed(format!(
            "this puts the store's servers under load for {time:?} and slows their other clients: add --yes to run it"
        )));
    }
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    for workload in &WORKLOADS {
        let outcome = run(&target, workload, args.time).await?;
        let at = |part: f64| outcome.waits[((outcome.waits.len() - 1) as f64 * part) as usize];
        let (p50, p99) = (millis(at(0.5)), millis(at(0.99)));
        let rate = (outcome.waits.len() as f64 / outcome.took.as_secs_f64()).round();
        rows.push([
            workload.name.to_owned(),
            rate.to_string(),
            p50.to_string(),
            p99.to_string(),
            workload.what.to_owned(),
        ]);
        values.push(json!({
            "workload": workload.name,
            "clients": workload.clients,
            "tasks": workload.tasks,
            "acquisitions": outcome.waits.len(),
            "per_second": rate,
            "wait_p50_ms": p50,
            "wait_p99_ms": p99,
        }));
    }
    if args.format.json {
        print_json(&json!({ "workloads": values }))?;
    } else {
        print_table(["WORKLOAD", "LOCKS/S", "WAIT P50 MS", "WAIT P99 MS", "WHAT"], &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Acquires and releases the lock in each task until the time is up.
async fn run(target: &Target, workload: &Workload, time: Duration) -> Result<Outcome, Failure> {
    let mut clients = Vec::new();
    for _ in 0..workload.clients {
        clients.push(Client::new(target.connect().await?.backend));
    }
    let began = Instant::now();
    let mut tasks: JoinSet<zlock::Result<Vec<Duration>>> = JoinSet::new();
    for client in &clients {
        for _ in 0..workload.tasks {
            let mutex = client.mutex(format!("/zlock-bench/{}", workload.name))?;
            tasks.spawn(async move {
                let mut waits = Vec::new();
                // At least once, so that there is a measurement.
                while waits.is_empty() || began.elapsed() < time {
                    let called = Instant::now();
                    let guard = mutex.acquire().await?;
                    waits.push(called.elapsed());
                    guard.release().await?;
                }
                Ok(waits)
            });
        }
    }
    let mut waits = Vec::new();
    while let Some(task) = tasks.join_next().await {
        waits.extend(task.map_err(|error| Failure::failed(error.to_string()))??);
    }
    let took = began.elapsed();
    for client in clients {
        let _ = client.close().await;
    }
    waits.sort_unstable();
    Ok(Outcome { waits, took })
}
