//! Restarts, crashes, failovers and copies of the store.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock::{ErrorKind, Release};
use zlock_core::kit::Options;
use zlock_core::{Class, StoreHistory as _};
use zlock_ledger::LedgerBackend;
use zlock_ledger::mem::{MemStore, Settings};

use super::{SECOND, TTL, client};

const PATH: &str = "/app/lock";

fn store(class: Class) -> MemStore {
    MemStore::new(Settings { class, ..Settings::default() })
}

/// A release that a crash undoes blocks until its owner has seen the restart. It lets nobody in.
#[tokio::test(start_paused = true)]
async fn an_undone_release_is_swept() {
    let store = store(Class::OneServer);
    let (a, _link) = client(&store).await;
    let lock = a.mutex(PATH).unwrap();
    // Its session stays active, so that its heartbeats see the restart soon.
    let _other = a.mutex("/app/other").unwrap().acquire().await.unwrap();
    assert_eq!(lock.acquire().await.unwrap().release().await.unwrap(), Release::Released);
    assert_eq!(store.crash(1), 1, "the release was undone");
    let (b, _link) = client(&store).await;
    let began = Instant::now();
    let guard = b.mutex(PATH).unwrap().acquire().await.unwrap();
    assert!(began.elapsed() < TTL / 2, "{:?}", began.elapsed());
    guard.release().await.unwrap();
}

/// What a client holds or waits with is not swept.
#[tokio::test(start_paused = true)]
async fn a_sweep_spares_what_is_held_and_waited_with() {
    let store = store(Class::OneServer);
    let ((a, _one), (b, _two)) = (client(&store).await, client(&store).await);
    let held = a.mutex(PATH).unwrap().acquire().await.unwrap();
    let waiting = b.mutex(PATH).unwrap();
    let waits = tokio::spawn(async move { waiting.acquire().await });
    sleep(SECOND).await;
    for _ in 0..3 {
        store.restart();
        sleep(TTL).await;
        assert!(held.is_held() && !waits.is_finished());
    }
    assert_eq!(held.release().await.unwrap(), Release::Released);
    waits.await.unwrap().unwrap().release().await.unwrap();
}

/// A session rests only once a durable commit has followed its last delete, since nobody would sweep for a whole rest.
#[tokio::test(start_paused = true)]
async fn a_release_before_the_rest_is_durable() {
    let store = store(Class::OneServer);
    let (a, _link) = client(&store).await;
    a.mutex(PATH).unwrap().acquire().await.unwrap().release().await.unwrap();
    sleep(TTL).await;
    assert_eq!(store.crash(1), 0, "the release is durable");
}

/// In the lossy class, a restart ends all sessions, and nothing is granted until what was granted before is certainly over.
#[tokio::test(start_paused = true)]
async fn after_a_failover_nothing_is_granted_until_all_earlier_sessions_are_over() {
    let store = store(Class::Lossy);
    let ((a, cut), (b, _link)) = (client(&store).await, client(&store).await);
    let held = a.mutex(PATH).unwrap().acquire().await.unwrap();
    cut.cut();
    // The holder's node is lost.
    store.failover(1);
    let began = Instant::now();
    let error = loop {
        match b.mutex(PATH).unwrap().try_acquire().await {
            Ok(taken) => assert!(taken.is_none(), "granted in quiet time"),
            Err(error) if error.kind() == ErrorKind::Settling => break error,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        sleep(SECOND).await;
    };
    assert!(error.is_retryable());
    let guard = loop {
        match b.mutex(PATH).unwrap().acquire_timeout(5 * SECOND).await {
            Ok(guard) => break guard,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        assert!(began.elapsed() < 100 * SECOND, "quiet time does not end");
    };
    assert!(!held.is_held(), "two hold");
    assert!(guard.fencing_token() > held.fencing_token());
    assert!(began.elapsed() >= 30 * SECOND, "{:?}", began.elapsed());
    guard.release().await.unwrap();
}

/// Quiet time also ends if no process lives for as long as it lasts, or until its first heartbeat.
#[tokio::test(start_paused = true)]
async fn short_lived_processes_end_quiet_time_together() {
    for life in [5 * SECOND, SECOND] {
        let store = store(Class::Lossy);
        drop(client(&store).await);
        store.restart();
        let began = Instant::now();
        loop {
            let (client, _link) = client(&store).await;
            let acquired = client.mutex(PATH).unwrap().acquire_timeout(life).await;
            client.close().await.unwrap();
            if acquired.is_ok() {
                break;
            }
            assert!(began.elapsed() < 100 * SECOND, "quiet time does not end with lives of {life:?}");
        }
        assert!(began.elapsed() >= 30 * SECOND);
    }
}

/// However often the store is restarted before it grants anything, no token is above its clock.
#[tokio::test(start_paused = true)]
async fn tokens_stay_below_the_clock_after_many_restarts() {
    let (store, created) = (store(Class::Lossy), Instant::now());
    drop(client(&store).await);
    for _ in 0..20 {
        store.restart();
        drop(client(&store).await);
        sleep(SECOND).await;
    }
    let (client, _link) = client(&store).await;
    sleep(45 * SECOND).await;
    let held = client.mutex(PATH).unwrap().acquire().await.unwrap();
    let (token, clock) = (held.fencing_token().number(), created.elapsed().as_micros());
    assert!(u128::from(token) < clock, "{token} with a clock of {clock}");
}

/// In the classes that lose nothing, a restart or a failover ends no session, and nobody waits.
#[tokio::test(start_paused = true)]
async fn a_lossless_restart_ends_no_session() {
    for class in [Class::OneServer, Class::Sync] {
        let store = store(class);
        let (a, _link) = client(&store).await;
        let held = a.mutex(PATH).unwrap().acquire().await.unwrap();
        store.restart();
        if class == Class::Sync {
            store.failover(0);
        }
        sleep(2 * TTL).await;
        assert!(held.is_held());
        a.mutex("/app/other").unwrap().acquire().await.unwrap().release().await.unwrap();
        held.release().await.unwrap();
    }
}

/// A watch sees what happens across a restart that undoes and repeats.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_not_forgotten_over_restarts() {
    let store = store(Class::OneServer);
    let ((a, _one), (b, _two)) = (client(&store).await, client(&store).await);
    for round in 0..20_u64 {
        let held = a.mutex(PATH).unwrap().acquire().await.unwrap();
        let waiting = b.mutex(PATH).unwrap();
        let waits = tokio::spawn(async move { waiting.acquire().await?.release().await });
        sleep(Duration::from_millis(10 * round)).await;
        held.release().await.unwrap();
        store.crash(usize::try_from(round % 3).unwrap());
        waits.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_settles_restores_and_sets_the_class() {
    let store = store(Class::OneServer);
    let backend = LedgerBackend::connect((store.ledger(), Options::new(["mem"]))).await.unwrap();
    let settings = backend.settings().await.unwrap();
    assert_eq!((settings.class, settings.settles_in), (Class::OneServer, None));
    backend.set_class(Class::Lossy).await.unwrap();
    assert_eq!(backend.settings().await.unwrap().class, Class::Lossy);
    let (client, _link) = client(&store).await;
    let held = client.mutex(PATH).unwrap().acquire().await.unwrap();
    backend.restored().await.unwrap();
    assert!(backend.settings().await.unwrap().settles_in.is_some());
    let began = Instant::now();
    backend.settle().await.unwrap();
    assert!(!held.is_held(), "the session goes on");
    assert!((30 * SECOND..60 * SECOND).contains(&began.elapsed()), "{:?}", began.elapsed());
    client.mutex(PATH).unwrap().acquire().await.unwrap().release().await.unwrap();
}
