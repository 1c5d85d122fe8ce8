//! Three candidates, one leader: each works for its term, and an observer sees who leads and asks for the next one.
//!
//! On a server, run it in several terminals with `--url`, and kill the process that leads: another one takes over.

use std::collections::BTreeSet;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use zlock::{Client, FencingToken, LeaderContext};

#[path = "common/mod.rs"]
mod common;
use common::Result;

const PATH: &str = "/leader";
const CANDIDATES: u32 = 3;
const TERMS: usize = 6;

/// What the leaders have done, in the order of their work: who, and in which term.
type Work = Arc<Mutex<Vec<(u32, FencingToken)>>>;

fn steps(work: &Work) -> Vec<(u32, FencingToken)> {
    work.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Works as the leader until somebody asks for the end of the term.
async fn lead(number: u32, leader: LeaderContext, work: Work) -> zlock::Result<()> {
    println!("  candidate {number} leads in term {}", leader.term());
    leader.proclaim(format!("candidate {number}, at work")).await?;
    let mut asked = pin!(leader.step_down_requested()); // once, because each call sends a request
    loop {
        tokio::select! {
            biased;
            asked = &mut asked => return asked,
            () = sleep(Duration::from_millis(5)) => {
                leader.check()?;
                work.lock().unwrap_or_else(PoisonError::into_inner).push((number, leader.term()));
            }
        }
    }
}

/// Asks each leader to step down after a while, until there were enough terms.
async fn observe(client: &Client) -> Result<usize> {
    let election = client.election(PATH)?;
    let (mut leaders, mut terms) = (election.observe(), BTreeSet::new());
    while terms.len() < TERMS {
        let view = timeout(Duration::from_secs(30), leaders.changed()).await??;
        let Some(leader) = view.leader else { continue };
        println!("    seen by an observer: {}", leader.value.escape_ascii());
        if terms.insert(leader.term) {
            sleep(Duration::from_millis(30)).await;
            election.request_step_down().await?;
        }
    }
    Ok(terms.len())
}

async fn example(url: &str) -> Result<bool> {
    println!("{CANDIDATES} candidates for {PATH} on {url}:");
    let (work, mut candidates, mut clients) = (Work::default(), JoinSet::new(), Vec::new());
    for number in 1..=CANDIDATES {
        let client = zlock::connect(url).await?;
        let election = client.election(PATH)?.with_value(format!("candidate {number}"))?;
        let work = work.clone();
        candidates.spawn(async move { election.lead(|leader| lead(number, leader, work.clone())).await });
        clients.push(client);
    }
    let observer = zlock::connect(url).await?;
    let terms = observe(&observer).await?;
    for client in &clients {
        client.shutdown(Duration::from_secs(10)).await?;
    }
    while let Some(ended) = candidates.join_next().await {
        ended??;
    }
    observer.close().await?;
    // Nobody worked in an earlier term than somebody before it.
    let steps = steps(&work);
    let is_ordered = steps.windows(2).all(|pair| pair[0].1 <= pair[1].1);
    println!("  = {terms} terms, {} steps, each in the term of the only leader", steps.len());
    Ok(is_ordered && terms >= TERMS)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    common::main("leader", "mem://leader", example).await
}
