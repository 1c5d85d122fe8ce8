//! A nightly report on three machines: one of them makes it each night, and one is killed in the middle of the work.
//!
//! The nights are short. On a server, run it with `--url`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use zlock::job::{Interval, JobContext, RunState, Tick};

#[path = "common/mod.rs"]
mod common;
use common::Result;

const PATH: &str = "/nightly/report";
const MACHINES: usize = 3;
const NIGHT: Duration = Duration::from_millis(200);
const NIGHTS: usize = 5;
/// The night in which the machine that makes the report is killed.
const FATAL: usize = 3;

/// The storage of the reports. Like a database, it refuses what a former holder writes: a smaller token than the last one.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<BTreeMap<Tick, Report>>>);

#[derive(Clone, Copy)]
struct Report {
    token: zlock::FencingToken,
    pages: u32,
    attempts: u32,
}

impl Reports {
    fn all(&self) -> BTreeMap<Tick, Report> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes the next page, or begins again if an earlier attempt was not completed. Returns the number of the night.
    fn write(&self, context: &JobContext, pages: u32) -> Result<usize> {
        let mut reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (token, attempts) = (context.fencing_token(), context.attempt());
        if reports.values().any(|report| report.token > token) {
            return Err(format!("the token {token} is too small").into());
        }
        reports.insert(context.tick(), Report { token, pages, attempts });
        Ok(reports.len())
    }
}

/// Makes the report of a night: three pages, one after another.
async fn report(
    machine: usize,
    context: JobContext,
    reports: Reports,
    middle: mpsc::Sender<usize>,
) -> Result {
    let (tick, attempt, token) = (context.tick(), context.attempt(), context.fencing_token());
    println!("  machine {machine} makes the report of {tick}, attempt {attempt}, token {token}");
    for page in 1..=3 {
        sleep(Duration::from_millis(10)).await;
        let night = reports.write(&context, page)?;
        if (night, page, attempt) == (FATAL, 2, 1) {
            middle.send(machine).await?;
            sleep(Duration::from_secs(60)).await;
        }
    }
    Ok(())
}

async fn machine(url: String, number: usize, reports: Reports, middle: mpsc::Sender<usize>) -> Result {
    let client = zlock::connect(&url).await?;
    let job = client.recurring_job(PATH)?.attempts(3);
    let nights = Interval::new(NIGHT)?;
    let run = async |context: JobContext, _tick: Tick| {
        report(number, context, reports.clone(), middle.clone()).await
    };
    Ok(job.every(nights, run).await?)
}

async fn example(url: &str) -> Result<bool> {
    println!("{MACHINES} machines make a report each night, on {url}:");
    let (reports, (middle, mut in_the_middle)) = (Reports::default(), mpsc::channel(1));
    let mut machines: BTreeMap<usize, JoinHandle<Result>> = (1..=MACHINES)
        .map(|number| {
            (number, tokio::spawn(machine(url.to_owned(), number, reports.clone(), middle.clone())))
        })
        .collect();
    if let Some(victim) = in_the_middle.recv().await
        && let Some(killed) = machines.remove(&victim)
    {
        killed.abort();
        println!("  machine {victim} is killed after two pages");
    }
    let complete = || reports.all().values().filter(|report| report.pages == 3).count();
    while complete() < NIGHTS {
        if let Some(ended) = machines.values_mut().find(|machine| machine.is_finished()) {
            ended.await??;
            return Ok(false);
        }
        sleep(Duration::from_millis(10)).await;
    }
    let client = zlock::connect(url).await?;
    let last = loop {
        match client.recurring_job(PATH)?.last().await? {
            Some(run) if run.state != RunState::Started => break run,
            _ => sleep(Duration::from_millis(10)).await,
        }
    };
    machines.values().for_each(JoinHandle::abort);
    println!("  the record: tick {}, {}, by {}", last.tick, last.state, last.by);
    let all = reports.all();
    let attempts: Vec<_> = all.values().take(NIGHTS).map(|report| report.attempts).collect();
    let repeated = attempts.iter().filter(|attempts| **attempts > 1).count();
    println!("  = {} nights, each with one whole report; attempts {attempts:?}", attempts.len());
    Ok(repeated == 1 && attempts[FATAL - 1] == 2)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    common::main("nightly", "mem://nightly", example).await
}
