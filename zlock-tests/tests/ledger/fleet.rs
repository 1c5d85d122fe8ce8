//! What clients cost that do little.

use std::time::Duration;

use tokio::time::sleep;
use zlock_ledger::mem::{MemFault, MemStore, Operation, Settings};

use super::{SECOND, TTL, client};

const HOUR: u32 = 3600;

/// A client at rest sends a heartbeat every 200 seconds.
#[tokio::test(start_paused = true)]
async fn a_client_at_rest_costs_almost_nothing() {
    let store = MemStore::new(Settings::default());
    let (client, link) = client(&store).await;
    client.mutex("/app/lock").unwrap().acquire().await.unwrap().release().await.unwrap();
    sleep(TTL).await;
    store.reset_requests();
    let mut connected = 0;
    for _ in 0..HOUR {
        sleep(SECOND).await;
        connected += link.connections();
    }
    assert!(connected < 150, "connections for {connected} seconds in an hour");
    let counts = store.request_counts();
    assert!(store.requests(Operation::Beat) <= 18, "{counts:?}");
    assert!(counts.values().sum::<u64>() <= 2 * 18, "a connection and a heartbeat each time: {counts:?}");
    client.mutex("/app/lock").unwrap().acquire().await.unwrap().release().await.unwrap();
    assert_eq!(client.session_events().current().epoch, 1);
}

/// An acquisition that is given up wakes a session for a moment. Another heartbeat puts it back to rest, before anybody takes it for dead.
#[tokio::test(start_paused = true)]
async fn a_session_goes_back_to_rest_after_an_acquisition_that_is_given_up() {
    let store = MemStore::new(Settings::default());
    let (client, link) = client(&store).await;
    link.delay(SECOND / 100, SECOND / 100);
    let lock = client.mutex("/app/lock").unwrap();
    for given_up_after in [1, 15, 25] {
        sleep(TTL).await;
        store.reset_requests();
        let acquired = tokio::time::timeout(Duration::from_millis(given_up_after), lock.acquire()).await;
        assert_eq!(acquired.is_ok(), given_up_after == 25);
        drop(acquired);
        sleep(TTL).await;
        let beats = store.requests(Operation::Beat);
        assert!((2..=6).contains(&beats), "{beats} heartbeats after one of {given_up_after} ms");
        sleep(TTL).await;
        assert!(store.requests(Operation::Beat) <= beats + 1, "it does not rest");
    }
}

/// A holder sends a heartbeat three times in the life of its session.
#[tokio::test(start_paused = true)]
async fn a_holder_costs_its_heartbeats() {
    let store = MemStore::new(Settings::default());
    let (client, _link) = client(&store).await;
    let held = client.mutex("/app/lock").unwrap().acquire().await.unwrap();
    let life = client.session_events().longest_slack().unwrap();
    sleep(life).await;
    store.reset_requests();
    sleep(100 * life).await;
    assert!(held.is_held());
    let counts = store.request_counts();
    assert!(counts.values().sum::<u64>() <= 301 + 4, "{counts:?}");
    held.release().await.unwrap();
}

/// A store that refuses everything for longer than a session lasts, and then no more.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_ends_closes_no_client() {
    let store = MemStore::new(Settings::default());
    let (client, link) = client(&store).await;
    let held = client.mutex("/app/lock").unwrap().acquire().await.unwrap();
    for operation in [Operation::Beat, Operation::Begin, Operation::End] {
        store.inject(MemFault::refuse(operation).times(u64::MAX).only(&link));
    }
    sleep(3 * TTL).await;
    assert!(!held.is_held());
    store.clear_faults();
    sleep(Duration::from_secs(60)).await;
    let guard = client.mutex("/app/lock").unwrap().acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// An acquisition and its release are two requests, and a heartbeat from time to time.
#[tokio::test(start_paused = true)]
async fn an_uncontended_acquisition_is_two_requests() {
    let store = MemStore::new(Settings::default());
    let (client, _link) = client(&store).await;
    let lock = client.mutex("/app/lock").unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    store.reset_requests();
    for _ in 0..1000 {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(store.requests(Operation::Transact), 2000);
    assert_eq!(store.request_counts().values().sum::<u64>(), 2000);
}
