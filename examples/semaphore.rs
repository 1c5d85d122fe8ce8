//! Ten jobs share three licences: nine jobs take one each, one takes two at once.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

#[path = "common/mod.rs"]
mod common;
use common::Result;

const LICENCES: u32 = 3;
const JOBS: u32 = 10;

/// Licences in use at this moment, and at most.
#[derive(Default)]
struct InUse {
    now: AtomicU32,
    most: AtomicU32,
}

impl InUse {
    async fn work(&self, licences: u32) {
        let now = self.now.fetch_add(licences, Ordering::SeqCst) + licences;
        self.most.fetch_max(now, Ordering::SeqCst);
        sleep(Duration::from_millis(20)).await;
        self.now.fetch_sub(licences, Ordering::SeqCst);
    }

    fn most(&self) -> u32 {
        self.most.load(Ordering::SeqCst)
    }
}

/// Job 5 needs two.
fn needs(job: u32) -> u32 {
    if job == 5 { 2 } else { 1 }
}

/// One job, on a semaphore or without one.
async fn job(number: u32, url: Option<String>, in_use: Arc<InUse>) -> Result {
    let Some(url) = url else {
        in_use.work(needs(number)).await;
        return Ok(());
    };
    let client = zlock::connect(&url).await?;
    let guard = client.semaphore("/licences", LICENCES)?.acquire(needs(number)).await?;
    println!("  job {number} has {}", needs(number));
    in_use.work(needs(number)).await;
    guard.release().await?;
    client.close().await?;
    Ok(())
}

/// All jobs at once; how many licences were in use at most.
async fn run(url: Option<&str>) -> Result<u32> {
    let in_use = Arc::new(InUse::default());
    let mut jobs = JoinSet::new();
    for number in 1..=JOBS {
        jobs.spawn(job(number, url.map(String::from), in_use.clone()));
    }
    while let Some(done) = jobs.join_next().await {
        done??;
    }
    Ok(in_use.most())
}

async fn example(url: &str) -> Result<bool> {
    println!("Without a semaphore {} of {LICENCES} licences were in use at once.", run(None).await?);
    println!("\nWith the semaphore /licences on {url}:");
    let most = run(Some(url)).await?;
    println!("  = at most {most} of {LICENCES} licences were in use at once");
    Ok(most <= LICENCES)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    common::main("semaphore", "mem://semaphore", example).await
}
