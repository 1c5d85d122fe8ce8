//! Unusual queues on a real ZooKeeper: numbers on both sides of the wrap, foreign and nested nodes, and parents that are
//! removed at the worst moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use zlock_testkit::zk::{Observer, connect, mutex, numbers, release, server_that_counted_to, wait_behind};
use zlock_testkit::{ZooKeeper, have_zookeeper, limit, limit_if, report, zookeeper_or_skip};
use zookeeper_client::Error;

const SESSION: Duration = Duration::from_secs(20);
const OLD: &str = "_c_11111111-1111-1111-1111-111111111111-lock-2147483647";
/// The later node, although both its token and its number are smaller.
const YOUNG: &str = "_c_00000000-0000-0000-0000-000000000000-lock--2147483648";

#[tokio::test]
async fn nodes_made_by_hand_on_both_sides_of_the_wrap_are_in_order() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let mutex = mutex(server.connect_string(), SESSION, "/wrap/by-hand").await;
        let observer = Observer::connect(server.connect_string()).await;
        for name in [YOUNG, OLD] {
            observer.make(&format!("/wrap/by-hand/{name}")).await;
        }
        let queue = async || {
            let participants = mutex.participants().await.unwrap();
            participants.iter().map(|p| (p.name.to_string(), p.is_holder)).collect::<Vec<_>>()
        };
        assert_eq!(queue().await, [(OLD.to_owned(), true), (YOUNG.to_owned(), false)]);
        assert!(mutex.try_acquire().await.unwrap().is_none());
        observer.remove(&format!("/wrap/by-hand/{OLD}")).await;
        assert_eq!(queue().await, [(YOUNG.to_owned(), true)]);
        assert!(mutex.try_acquire().await.unwrap().is_none());
        observer.remove(&format!("/wrap/by-hand/{YOUNG}")).await;
        release(mutex.try_acquire().await.unwrap().unwrap()).await;
    })
    .await;
}

/// A counter that has wrapped, as on servers before 3.6, so that the server itself gives negative numbers.
#[tokio::test]
async fn waiters_behind_the_wrap_are_served_in_order() {
    limit_if(have_zookeeper(), async {
        const PATH: &str = "/wrapped";
        // A number closer to the wrap does not count as a place.
        const FIRST: i32 = i32::MIN + (1 << 20) + 1;
        let server = server_that_counted_to(&[(PATH, FIRST - 1)]).await;
        let observer = Observer::connect(server.connect_string()).await;
        observer.make(&format!("{PATH}/{OLD}")).await;
        let mutexes = [0; 3].map(|_| mutex(server.connect_string(), SESSION, PATH));
        let mut waiting = Vec::new();
        for (n, mutex) in mutexes.into_iter().enumerate() {
            waiting.push(wait_behind(&mutex.await, &observer, n + 1).await);
        }
        let mut numbers = numbers(&observer, PATH).await;
        numbers.sort_unstable();
        // The server gave the number before the first to the node made by hand.
        assert_eq!(numbers, [FIRST, FIRST + 1, FIRST + 2, i32::MAX]);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "the node made by hand is the oldest");
        observer.remove(&format!("{PATH}/{OLD}")).await;
        while !waiting.is_empty() {
            let guard = waiting.remove(0).await.unwrap();
            assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "out of order");
            release(guard).await;
        }
    })
    .await;
}

#[tokio::test]
async fn foreign_and_nested_nodes_are_nobody() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let client = connect(server.connect_string(), SESSION).await;
        let other = connect(server.connect_string(), SESSION).await;
        let observer = Observer::connect(server.connect_string()).await;
        for name in [
            "config",
            "lock-",
            "leader-0000000000",
            "mylock-0000000000",
            "_c_short-lock-0000000000",
            "lease-0000000000",
            "0000000000",
        ] {
            observer.make(&format!("/app/{name}")).await;
        }
        let outer = client.mutex("/app").unwrap();
        let inner = other.mutex("/app/db").unwrap();
        let inner_held = inner.acquire().await.unwrap();
        let outer_held = outer.try_acquire().await.unwrap().unwrap();
        assert!(inner_held.is_held() && outer_held.is_held());
        let participants = outer.participants().await.unwrap();
        assert_eq!(participants.len(), 1, "{participants:?}");
        assert!(other.mutex("/app").unwrap().try_acquire().await.unwrap().is_none());
        release(outer_held).await;
        assert!(client.mutex("/app/db").unwrap().try_acquire().await.unwrap().is_none());
        release(inner_held).await;
    })
    .await;
}

/// MX-04: the server looks for empty parents continuously.
#[tokio::test]
async fn the_servers_own_removal_of_empty_parents_fails_nobody() {
    limit_if(have_zookeeper(), async {
        let kind = ZooKeeper::builder().container_check_interval(Duration::from_millis(5));
        let server = kind.start().await;
        let client = connect(server.connect_string(), SESSION).await;
        let observer = Observer::connect(server.connect_string()).await;
        let mut tasks = JoinSet::new();
        for n in 0..100 {
            let client = client.clone();
            tasks.spawn(async move {
                for round in 0..10 {
                    // Once on a fresh path, and once where the parent may be about to be removed.
                    let path = format!("/fresh/{}/{n}", round / 2);
                    let mutex = client.mutex(&path).unwrap();
                    let guard = mutex.acquire().await.unwrap_or_else(|error| panic!("{error}"));
                    release(guard).await;
                }
            });
        }
        while tasks.join_next().await.transpose().unwrap().is_some() {}
        while observer.0.check_stat("/fresh").await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Another client removes the parent and the node above it whenever they are empty, as fast as the server answers.
#[tokio::test]
async fn a_parent_that_vanishes_at_any_moment_costs_a_retry() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let observer = Observer::connect(server.connect_string()).await;
        let removals = Arc::new(AtomicU32::new(0));
        let counter = removals.clone();
        let remover = tokio::spawn(async move {
            loop {
                for path in ["/vanishing/parent", "/vanishing"] {
                    match observer.0.delete(path, None).await {
                        Ok(()) => drop(counter.fetch_add(1, Ordering::Relaxed)),
                        Err(Error::NoNode | Error::NotEmpty) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        });
        let inside = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for _ in 0..2 {
            let mutex = mutex(server.connect_string(), SESSION, "/vanishing/parent").await;
            let inside = inside.clone();
            tasks.spawn(async move {
                let mut last = None;
                for round in 0..75 {
                    tokio::time::sleep(Duration::from_millis(round % 5)).await;
                    let guard = mutex.acquire().await.unwrap_or_else(|error| panic!("{error}"));
                    assert!(!inside.swap(true, Ordering::SeqCst), "two are in");
                    assert!(last < Some(guard.fencing_token()), "also over removals");
                    last = Some(guard.fencing_token());
                    inside.store(false, Ordering::SeqCst);
                    release(guard).await;
                }
            });
        }
        while tasks.join_next().await.transpose().unwrap().is_some() {}
        remover.abort();
        let removals = removals.load(Ordering::Relaxed);
        report(format!("150 acquisitions, {removals} removals of their parents in between"));
        assert!(removals > 10);
    })
    .await;
}
