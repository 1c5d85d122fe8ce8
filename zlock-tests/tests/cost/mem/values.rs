//! The cost of counters, by the server's own counters.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use zlock::mem::{MemServer, Operation};
use zlock::{Client, Counter};

use super::requests::counts;

const PATH: &str = "/app/counter";

fn counter(server: &MemServer) -> Counter {
    Client::new(server.connect()).counter(PATH).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_addition_is_one_request() {
    let server = MemServer::new();
    let (one, two) = (counter(&server), counter(&server));
    one.add(1).await.unwrap();
    server.reset_requests();
    for n in 2..=100 {
        assert_eq!(one.add(1).await.unwrap(), n);
    }
    assert_eq!(counts(&server), [(Operation::WriteValue, 99)]);
    two.get().await.unwrap();
    server.reset_requests();
    // Each finds a write of the other, and its second attempt succeeds.
    for n in 0..50 {
        assert_eq!(two.add(1).await.unwrap(), 101 + 2 * n);
        assert_eq!(one.add(1).await.unwrap(), 102 + 2 * n);
    }
    assert_eq!(counts(&server), [(Operation::WriteValue, 199)]);
}

/// Without turns, each write would refuse those of all other tasks that are on their way: n (n + 1) / 2 writes.
#[tokio::test(start_paused = true)]
async fn tasks_of_one_handle_take_turns() {
    const TASKS: u64 = 100;
    let server = MemServer::new();
    let backend = server.connect();
    backend.link().delay(Duration::from_millis(1), Duration::from_millis(1));
    let client = Client::new(backend);
    let (counter, log) = (client.counter(PATH).unwrap(), client.shared_value("/app/log").unwrap());
    counter.get().await.unwrap();
    server.reset_requests();
    let sums = join_all((0..TASKS).map(|_| counter.add(1))).await.into_iter().map(Result::unwrap);
    assert_eq!(sums.collect::<BTreeSet<_>>(), (1..=TASKS as i64).collect());
    assert_eq!(counts(&server), [(Operation::WriteValue, TASKS)]);
    let lines = (0..TASKS).map(|_| log.update(|now| Some([now.unwrap_or_default(), b"."].concat())));
    assert!(join_all(lines).await.iter().all(Result::is_ok));
    assert_eq!(counts(&server), [(Operation::Value, TASKS), (Operation::WriteValue, TASKS)]);
    assert_eq!(log.get().await.unwrap().unwrap().data.len(), TASKS as usize);
}

/// A store that does not answer keeps tasks waiting for the one before them, and then for its own answer, and not for all of them.
#[tokio::test(start_paused = true)]
async fn silent_store_is_not_waited_for_in_turns() {
    let server = MemServer::new();
    let backend = server.connect();
    let link = backend.link();
    let client = Client::new(backend);
    let counter = client.counter(PATH).unwrap();
    counter.add(1).await.unwrap();
    link.mute();
    let began = tokio::time::Instant::now();
    let added = join_all((0..20).map(|_| counter.add(1))).await;
    assert!(added.iter().all(Result::is_err), "{added:?}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}
