//! Clients that die are found by those who wait for them.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock_core::kit::Options;
use zlock_core::{CoordinationBackend, Label, LockPath, Needs, NodeIds};
use zlock_ledger::LedgerBackend;
use zlock_ledger::mem::{MemStore, Settings};

use super::{SECOND, TTL, client, client_of};

const PATH: &str = "/app/lock";

/// One session timeout, and not one for each.
#[tokio::test(start_paused = true)]
async fn a_hundred_dead_ahead_cost_one_timeout() {
    let store = MemStore::new(Settings::default());
    let mut dead = Vec::new();
    for _ in 0..100 {
        let (client, link) = client(&store).await;
        let lock = client.mutex(PATH).unwrap();
        let waits = tokio::spawn(async move { lock.acquire().await });
        sleep(Duration::from_millis(1)).await;
        dead.push((client, link, waits));
    }
    sleep(TTL).await;
    dead.iter().for_each(|(_, link, _)| link.cut());
    let (alive, _link) = client(&store).await;
    let began = Instant::now();
    let guard = alive.mutex(PATH).unwrap().acquire().await.unwrap();
    assert!(began.elapsed() < TTL + 2 * SECOND, "{:?}", began.elapsed());
    guard.release().await.unwrap();
}

/// Those who died while they waited are found by the first one behind them that lives.
#[tokio::test(start_paused = true)]
async fn a_waiter_finds_all_that_die_ahead_of_it_later() {
    let store = MemStore::new(Settings::default());
    let mut dead = Vec::new();
    for _ in 0..20 {
        let (client, link) = client(&store).await;
        let lock = client.mutex(PATH).unwrap();
        let waits = tokio::spawn(async move { lock.acquire().await });
        sleep(Duration::from_millis(1)).await;
        dead.push((client, link, waits));
    }
    let (alive, _link) = client(&store).await;
    let lock = alive.mutex(PATH).unwrap();
    let waits = tokio::spawn(async move { lock.acquire().await });
    sleep(3 * TTL).await;
    dead.iter().for_each(|(_, link, _)| link.cut());
    let began = Instant::now();
    let guard = waits.await.unwrap().unwrap();
    assert!(began.elapsed() < 2 * TTL, "{:?}", began.elapsed());
    guard.release().await.unwrap();
}

/// The entries of a dead session are removed in batches, and those of the queue that somebody waits for first.
#[tokio::test(start_paused = true)]
async fn a_dead_client_with_many_locks_delays_nobody() {
    let store = MemStore::new(Settings { removes: 100, ..Settings::default() });
    let ledger = store.ledger();
    let link = ledger.link();
    let dead = LedgerBackend::connect((ledger, Options::new(["mem"]))).await.unwrap();
    let ids = NodeIds::random();
    for n in 0..3000 {
        let path = LockPath::new(format!("/many/{n}")).unwrap();
        dead.create_ephemeral_sequential(&path, Label::Lock, &ids.next(), b"", Needs::Queue).await.unwrap();
    }
    link.cut();
    let (alive, _link) = client(&store).await;
    let began = Instant::now();
    let guard = alive.mutex("/many/2999").unwrap().acquire().await.unwrap();
    assert!(began.elapsed() < TTL + 2 * SECOND, "{:?}", began.elapsed());
    guard.release().await.unwrap();
    sleep(2 * SECOND).await;
    assert!(store.scopes().iter().all(|scope| store.entries(scope).is_empty()));
}

/// Each process waits for less than the session timeout, and adds what it has watched.
#[tokio::test(start_paused = true)]
async fn short_lived_processes_end_a_dead_session_together() {
    let store = MemStore::new(Settings::default());
    let (dead, link) = client(&store).await;
    let _held = dead.mutex(PATH).unwrap().acquire().await.unwrap();
    link.cut();
    let began = Instant::now();
    loop {
        let (client, _link) = client(&store).await;
        let acquired = client.mutex(PATH).unwrap().acquire_timeout(2 * SECOND).await;
        client.close().await.unwrap();
        if acquired.is_ok() {
            break;
        }
        assert!(began.elapsed() < 4 * TTL, "no process is granted the lock");
    }
}

/// A holder that is slow, but lives, keeps its lock.
#[tokio::test(start_paused = true)]
async fn a_session_that_beats_late_is_not_ended_early() {
    let store = MemStore::new(Settings::default());
    let (holder, link) = client(&store).await;
    let held = holder.mutex(PATH).unwrap().acquire().await.unwrap();
    let (other, _link) = client_of(&store, TTL).await;
    for _ in 0..5 {
        link.cut();
        let lock = other.mutex(PATH).unwrap();
        assert!(timeout(6 * SECOND, lock.acquire()).await.is_err());
        link.heal();
        sleep(SECOND).await;
        assert!(held.is_held());
    }
    held.release().await.unwrap();
}
