//! Transfers between three accounts: each takes the locks of two accounts, in whatever order they are named.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use zlock::MultiLock;

#[path = "common/mod.rs"]
mod common;
use common::Result;

const START: [i64; 3] = [100; 3];
/// From, to: every two accounts in both directions.
const TRANSFERS: [[usize; 2]; 6] = [[0, 1], [1, 0], [1, 2], [2, 1], [0, 2], [2, 0]];
const ROUNDS: i64 = 3;

/// Reads both balances, takes its time, and writes both: what others write meanwhile is lost.
async fn transfer(accounts: &[AtomicI64; 3], [from, to]: [usize; 2], amount: i64) {
    let [has, gets] = [from, to].map(|i| accounts[i].load(Ordering::SeqCst));
    sleep(Duration::from_millis(2)).await;
    accounts[from].store(has - amount, Ordering::SeqCst);
    accounts[to].store(gets + amount, Ordering::SeqCst);
}

/// One clerk: transfers again and again, under the locks of both accounts or without.
async fn clerk(pair: [usize; 2], url: Option<String>, accounts: Arc<[AtomicI64; 3]>) -> Result {
    let Some(url) = url else {
        for amount in 1..=ROUNDS {
            transfer(&accounts, pair, amount * (1 + pair[0] as i64)).await;
        }
        return Ok(());
    };
    let client = zlock::connect(&url).await?;
    let lock = |i: usize| client.mutex(format!("/accounts/{i}"));
    let both = MultiLock::new([lock(pair[0])?, lock(pair[1])?])?;
    for amount in 1..=ROUNDS {
        let guard = both.acquire_timeout(Duration::from_secs(30)).await?;
        transfer(&accounts, pair, amount * (1 + pair[0] as i64)).await;
        guard.release().await?;
    }
    client.close().await?;
    Ok(())
}

/// All clerks at once; what is in each account then.
async fn run(url: Option<&str>) -> Result<[i64; 3]> {
    let accounts = Arc::new(START.map(AtomicI64::new));
    let mut clerks = JoinSet::new();
    for pair in TRANSFERS {
        clerks.spawn(clerk(pair, url.map(String::from), accounts.clone()));
    }
    while let Some(done) = clerks.join_next().await {
        done??;
    }
    Ok([0, 1, 2].map(|i| accounts[i].load(Ordering::SeqCst)))
}

async fn example(url: &str) -> Result<bool> {
    let sum = |accounts: [i64; 3]| accounts.iter().sum::<i64>();
    let without = run(None).await?;
    println!("Without locks the accounts have {without:?}, {} in all, of {}.", sum(without), sum(START));
    println!("\nWith a lock an account, two at a time, on {url}:");
    let with = run(Some(url)).await?;
    println!("  = {with:?}, {} in all, and nobody waited in a circle", sum(with));
    // What each clerk moves is known, so the end is.
    Ok(with == [118, 100, 82])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    common::main("multi_lock", "mem://multi_lock", example).await
}
