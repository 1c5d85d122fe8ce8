//! The cost of locks, by the server's own counters. In paused time, no heartbeats are sent in between.

use tokio::task::JoinSet;
use zlock::mem::{MemServer, Operation};
use zlock::{Client, InterProcessMutex, Release};

const PATH: &str = "/app/lock";

/// Creates a server on which the lock has been used before, so that its parent exists.
async fn server() -> MemServer {
    let server = MemServer::new();
    cycle(&mutex(&server)).await;
    server
}

fn mutex(server: &MemServer) -> InterProcessMutex {
    Client::new(server.connect()).mutex(PATH).unwrap()
}

async fn cycle(mutex: &InterProcessMutex) {
    assert_eq!(mutex.acquire().await.unwrap().release().await.unwrap(), Release::Released);
}

pub(super) fn counts(server: &MemServer) -> Vec<(Operation, u64)> {
    let counts = server.request_counts().into_iter().collect();
    server.reset_requests();
    counts
}

async fn settle() {
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn uncontended_is_three_requests() {
    let server = server().await;
    let mutex = mutex(&server);
    let three = [(Operation::Create, 1), (Operation::List, 1), (Operation::Delete, 1)];
    server.reset_requests();
    cycle(&mutex).await;
    assert_eq!(counts(&server), three);
    let guard = mutex.acquire_timeout(std::time::Duration::from_secs(1)).await.unwrap();
    drop(guard);
    settle().await;
    assert_eq!(counts(&server), three);
    let template = Client::new(server.connect()).lock_template("/app").unwrap();
    server.reset_requests();
    template.execute("lock", |_| async {}).await.unwrap();
    assert_eq!(counts(&server), three);
}

#[tokio::test(start_paused = true)]
async fn contended_is_five_requests() {
    let server = server().await;
    let (first, second) = (mutex(&server), mutex(&server));
    let guard = first.acquire().await.unwrap();
    server.reset_requests();
    let waiter = second.clone();
    let waiter = tokio::spawn(async move { cycle(&waiter).await });
    settle().await;
    assert_eq!(counts(&server), [(Operation::Create, 1), (Operation::List, 1), (Operation::Watch, 1)]);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    waiter.await.unwrap();
    // The holder's delete is one of the two.
    assert_eq!(counts(&server), [(Operation::List, 1), (Operation::Delete, 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_try_is_one_request_and_no_write() {
    let server = server().await;
    let (first, second) = (mutex(&server), mutex(&server));
    let guard = first.acquire().await.unwrap();
    server.reset_requests();
    assert!(second.try_acquire().await.unwrap().is_none());
    assert_eq!(counts(&server), [(Operation::List, 1)]);
    assert!(second.acquire_timeout(std::time::Duration::ZERO).await.unwrap_err().is_timeout());
    assert_eq!(counts(&server), [(Operation::List, 1)]);
    assert!(guard.is_held() && guard.reenter().is_ok() && first.is_acquired_in_this_process());
    assert_eq!(counts(&server), [], "looks and re-entries are local");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn one_release_wakes_one_of_fifty() {
    let server = server().await;
    let mutexes: Vec<_> = (0..51).map(|_| mutex(&server)).collect();
    let first = mutexes[0].acquire().await.unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for mutex in &mutexes[1..] {
        let (mutex, tell) = (mutex.clone(), tell.clone());
        tasks.spawn(async move { tell.send(mutex.acquire().await.unwrap()).unwrap() });
    }
    settle().await;
    let mut holder = first;
    for left in (0..50).rev() {
        assert_eq!(server.watches(), left + 1, "each waiter watches one node");
        server.reset_requests();
        assert_eq!(holder.release().await.unwrap(), Release::Released);
        holder = told.recv().await.unwrap();
        settle().await;
        assert_eq!(counts(&server), [(Operation::List, 1), (Operation::Delete, 1)]);
        assert_eq!(server.watches(), left, "one watch has fired");
    }
    assert_eq!(holder.release().await.unwrap(), Release::Released);
}
