//! Processes that hold a lock and are killed or frozen.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use zlock_core::LockPath;
use zlock_etcd::{EtcdBackend, EtcdOptions};
use zlock_recipes::{Client, Guard, InterProcessMutex, Release};
use zlock_testkit::etcd::{names, observer, path};
use zlock_testkit::{Etcd, Process, etcd_or_skip, first_look_after_a_pause, limit, until};

/// The TTL of the process that is killed or frozen.
const TTL: Duration = Duration::from_secs(2);

async fn mutex(hosts: &str, ttl: Duration, path: &str) -> InterProcessMutex {
    let backend = EtcdBackend::connect(EtcdOptions::new([hosts]).with_ttl(ttl)).await.unwrap();
    Client::new(backend).mutex(path).unwrap()
}

/// In a separate process: acquires the lock, and reports its view of the lock right after it was frozen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by other tests in a process of its own"]
async fn child_holds() {
    let variable = |name| std::env::var(name).unwrap();
    let mutex = mutex(&variable("ZLOCK_CHILD_HOSTS"), TTL, &variable("ZLOCK_CHILD_PATH")).await;
    let guard = mutex.acquire().await.unwrap();
    // Off the runtime, so that timers and network I/O have no chance to run first.
    let looks = tokio::task::spawn_blocking(move || {
        let held = first_look_after_a_pause(TTL, || guard.is_held());
        let lost = guard.lost().now_or_never().map(|error| error.kind());
        println!("woke held={held} lost={lost:?}");
        guard
    });
    let guard = looks.await.unwrap();
    println!("release={:?}", guard.release().await.unwrap());
    assert_eq!(mutex.acquire().await.unwrap().release().await.unwrap(), Release::Released);
    println!("again");
}

/// Starts a process that holds the lock, and a task that waits behind it.
async fn held_by_a_child(server: &Etcd, path: &LockPath) -> (Process, JoinHandle<Guard>) {
    let hosts = server.connect_string();
    let variables = [("ZLOCK_CHILD_HOSTS", hosts.as_str()), ("ZLOCK_CHILD_PATH", path.as_str())];
    let mut child = Process::spawn_test(concat!(module_path!(), "::child_holds"), &variables);
    child.line_after("held").await;
    let waiter = mutex(&hosts, 5 * TTL, path.as_str()).await;
    let waiting = tokio::spawn(async move { waiter.acquire().await.unwrap() });
    let observer = observer(&hosts).await;
    until("it waits", async || names(&observer, path).await.len() == 2).await;
    (child, waiting)
}

#[tokio::test]
async fn a_process_that_stood_still_knows_at_once_that_it_holds_no_longer() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let path = path("paused");
        let (mut child, waiting) = held_by_a_child(server, &path).await;
        child.pause();
        let began = Instant::now();
        let next = waiting.await.unwrap();
        println!("holder stands still, ttl {TTL:?}: next holder after {:.3?}", began.elapsed());
        sleep((2 * TTL).saturating_sub(began.elapsed())).await;
        child.resume();
        assert_eq!(child.line_after("woke ").await, "held=false lost=Some(SessionLost)");
        assert_eq!(child.line_after("release=").await, "AlreadyLost");
        // The child's late release took nothing from the new holder.
        assert!(next.is_held());
        assert_eq!(next.release().await.unwrap(), Release::Released);
        child.line_after("again").await;
        assert_eq!(child.wait().await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_process_that_was_killed_leaves_nothing_for_longer_than_its_lease() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let path = path("killed");
        let (child, waiting) = held_by_a_child(server, &path).await;
        child.kill();
        let began = Instant::now();
        let next = waiting.await.unwrap();
        let taken = began.elapsed();
        println!("holder killed, ttl {TTL:?}: next holder after {taken:.3?}");
        assert!(taken > TTL / 2 && taken < 3 * TTL, "{taken:?}");
        assert_eq!(next.release().await.unwrap(), Release::Released);
        assert!(names(&observer(&server.connect_string()).await, &path).await.is_empty());
        assert_eq!(child.wait().await, 128 + 9);
    })
    .await;
}
