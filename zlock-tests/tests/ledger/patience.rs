//! What is in the way of one lock delays no other.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock::Release;
use zlock_ledger::mem::{MemStore, Operation, Settings};
use zlock_ledger::{Kind, Scope};
use zlock_suite::Log;

use super::{SECOND, TTL, client};

const MOMENT: Duration = Duration::from_millis(50);

fn queue(path: &str) -> Scope {
    Scope { kind: Kind::Queue, path: path.into() }
}

/// A user's open transaction protects the node of a lock.
#[tokio::test(start_paused = true)]
async fn a_fenced_lock_is_released_once_the_transaction_has_ended() {
    let store = MemStore::new(Settings::default());
    let (a, _one) = client(&store).await;
    let (b, _two) = client(&store).await;
    let held = a.mutex("/app/lock").unwrap().acquire().await.unwrap();
    let key = store.entries(&queue("/app/lock"))[0].key.clone();
    let fence = store.protect(&queue("/app/lock"), &key).unwrap().unwrap();
    let log = Log::of_this_thread();
    let released = tokio::spawn(held.release());
    let waiting = b.mutex("/app/lock").unwrap();
    let waits = tokio::spawn(async move { waiting.acquire().await });
    for n in 0..20 {
        let began = Instant::now();
        let path = format!("/app/other{n}");
        assert_eq!(
            a.mutex(path.as_str()).unwrap().acquire().await.unwrap().release().await.unwrap(),
            Release::Released
        );
        assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
        sleep(Duration::from_millis(50)).await;
    }
    assert!(!waits.is_finished(), "granted beside an open transaction of the last holder");
    assert_eq!(released.await.unwrap().unwrap(), Release::Pending);
    let why = log.with("the store has not confirmed the release yet");
    assert!(why.len() == 1 && why[0].contains("an open one with the lock's fence"), "{why:?}");
    drop(fence);
    waits.await.unwrap().unwrap().release().await.unwrap();
}

/// The session of a dead holder ends at its time, and its fenced node stays until the transaction has ended.
#[tokio::test(start_paused = true)]
async fn a_fence_outlasts_the_session_of_its_holder() {
    let store = MemStore::new(Settings::default());
    let (a, link) = client(&store).await;
    let (b, _link) = client(&store).await;
    let held = a.mutex("/app/lock").unwrap().acquire().await.unwrap();
    let key = store.entries(&queue("/app/lock"))[0].key.clone();
    let fence = store.protect(&queue("/app/lock"), &key).unwrap().unwrap();
    link.cut();
    let waiting = b.mutex("/app/lock").unwrap();
    let log = Log::of_this_thread();
    let waits = tokio::spawn(async move { waiting.acquire().await });
    sleep(3 * TTL).await;
    assert!(!held.is_held() && !waits.is_finished());
    let why = log.with("its node is still there: perhaps an open transaction");
    assert_eq!(why.len(), 1, "{why:?}");
    assert!(store.protect(&queue("/app/lock"), &key).is_err(), "the session is over, and so is its fence");
    drop(fence);
    let began = Instant::now();
    waits.await.unwrap().unwrap().release().await.unwrap();
    assert!(began.elapsed() <= 2 * SECOND, "{:?}", began.elapsed());
}

/// A scope that another client keeps locked delays no request about others.
#[tokio::test(start_paused = true)]
async fn a_locked_scope_delays_no_other() {
    let store = MemStore::new(Settings::default());
    let (a, _link) = client(&store).await;
    let lock = a.mutex("/app/lock").unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    let busy = store.lock_scope(&queue("/app/lock")).unwrap();
    let waits = tokio::spawn(async move { lock.acquire().await });
    for n in 0..10 {
        let began = Instant::now();
        let path = format!("/app/other{n}");
        a.mutex(path.as_str()).unwrap().acquire().await.unwrap().release().await.unwrap();
        assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
        sleep(Duration::from_millis(100)).await;
    }
    drop(busy);
    waits.await.unwrap().unwrap().release().await.unwrap();
}

/// A create that is given up before it is sent again makes way for the removal of what it may have created.
#[tokio::test(start_paused = true)]
async fn a_busy_create_that_is_given_up_leaves_nothing_to_do() {
    let store = MemStore::new(Settings::default());
    let (a, link) = client(&store).await;
    let busy = store.lock_scope(&queue("/app/lock")).unwrap();
    link.delay(MOMENT, MOMENT);
    // Until the create was refused, and before the lane is open on which it would be repeated.
    let lock = a.mutex("/app/lock").unwrap();
    assert!(tokio::time::timeout(3 * MOMENT, lock.acquire()).await.is_err());
    drop(busy);
    sleep(TTL / 2).await;
    store.reset_requests();
    sleep(TTL).await;
    let counts = store.request_counts();
    assert!(store.requests(Operation::Beat) <= 1, "something keeps the session from its rest: {counts:?}");
}

/// Nobody loses a session by queueing.
#[tokio::test(start_paused = true)]
async fn a_crowd_at_one_lock_keeps_its_sessions() {
    let store = MemStore::new(Settings::default());
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (client, link) = client(&store).await;
        // Each request takes a moment at the store.
        link.slow_down(Duration::from_millis(2));
        crowd.spawn(async move {
            let guard = client.mutex("/app/lock").unwrap().acquire().await.unwrap();
            guard.release().await.unwrap();
            client.session_events().current().epoch
        });
    }
    while let Some(epoch) = crowd.join_next().await {
        assert_eq!(epoch.unwrap(), 1, "a session was lost");
    }
}
