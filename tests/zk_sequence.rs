//! Queues on a real ZooKeeper that do not look like every day: numbers at the wrap, foreign and nested nodes,
//! parents that are removed at the worst moment.
#![cfg(feature = "zk")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod zk_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use zlock::InterProcessMutex;
use zlock_testkit::{ZooKeeper, have_zookeeper, limit, zookeeper_or_skip};
use zookeeper_client::Error;

use self::zk_support::{Observer, connect, mutex, release, report, wait_behind};

const SESSION: Duration = Duration::from_secs(20);
const OLD: &str = "_c_11111111-1111-1111-1111-111111111111-lock-2147483647";
/// Its token is the smaller one, and so is its number.
const YOUNG: &str = "_c_00000000-0000-0000-0000-000000000000-lock--2147483648";

/// A server with a parent whose counter stands as if that many children had been made: in the server's snapshot,
/// since there is no request for it.
async fn server_that_counted_to(counter: i32, parent: &str) -> ZooKeeper {
    // Without digests there is nothing but one checksum to mend.
    let kind = ZooKeeper::builder().property("zookeeper.digest.enabled", false);
    let server = kind.start().await;
    Observer::connect(server.connect_string()).await.make(parent).await;
    // It writes a snapshot when it starts.
    server.restart().await;
    server.stop();
    let file = newest_snapshot(&server);
    let mut snapshot = std::fs::read(&file).unwrap();
    let name = [&u32::try_from(parent.len()).unwrap().to_be_bytes()[..], parent.as_bytes()].concat();
    let node = snapshot.windows(name.len()).position(|bytes| bytes == name).unwrap() + name.len();
    // No data but its length; the access list's number; two transactions, two times, the data's version.
    let at = node + 4 + 8 + 4 * 8 + 4;
    assert_eq!(snapshot[at..at + 4], [0; 4], "a new node has counted nothing");
    snapshot[at..at + 4].copy_from_slice(&counter.to_be_bytes());
    // At the end: the checksum of all before, and the text "/".
    let end = snapshot.len() - 8 - 4 - 1;
    let sum = u64::from(adler32(&snapshot[..end]));
    snapshot[end..end + 8].copy_from_slice(&sum.to_be_bytes());
    std::fs::write(&file, snapshot).unwrap();
    server.restart().await;
    server
}

fn newest_snapshot(server: &ZooKeeper) -> std::path::PathBuf {
    let files = std::fs::read_dir(server.folder().join("data/version-2")).unwrap();
    let zxid = |path: &std::path::Path| {
        let hex = path.file_name()?.to_str()?.strip_prefix("snapshot.")?;
        u64::from_str_radix(hex, 16).ok()
    };
    let paths = files.map(|entry| entry.unwrap().path());
    paths.filter(|path| zxid(path).is_some()).max_by_key(|path| zxid(path)).unwrap()
}

fn adler32(bytes: &[u8]) -> u32 {
    let step = |(a, b), byte: &u8| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    };
    let (a, b) = bytes.iter().fold((1, 0), step);
    b << 16 | a
}

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

/// A counter that has wrapped, as those of older servers do: negative numbers of the server's own making.
#[tokio::test]
async fn waiters_behind_the_wrap_are_served_in_order() {
    if !have_zookeeper() {
        return;
    }
    limit(async {
        const PATH: &str = "/wrapped";
        let server = server_that_counted_to(i32::MIN, PATH).await;
        let observer = Observer::connect(server.connect_string()).await;
        observer.make(&format!("{PATH}/{OLD}")).await;
        let mutexes = [0; 3].map(|_| mutex(server.connect_string(), SESSION, PATH));
        let mut waiting = Vec::new();
        for (n, mutex) in mutexes.into_iter().enumerate() {
            waiting.push(wait_behind(&mutex.await, &observer, n + 1).await);
        }
        let names = observer.children(PATH).await;
        // The first number went to the node made by hand.
        for number in [-2_147_483_647, -2_147_483_646, -2_147_483_645] {
            let end = format!("-lock-{number}");
            assert!(names.iter().any(|name| name.ends_with(&end)), "{end}: {names:?}");
        }
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

/// ZooKeeper 3.8 does not wrap: from 2147483647 on it gives that number to every node, and nobody could tell who
/// came first.
#[tokio::test]
async fn a_number_that_the_server_gives_twice_is_nobodys_lock() {
    if !have_zookeeper() {
        return;
    }
    limit(async {
        const PATH: &str = "/used/up";
        let server = server_that_counted_to(i32::MAX - 2, PATH).await;
        let observer = Observer::connect(server.connect_string()).await;
        let first = mutex(server.connect_string(), SESSION, PATH).await;
        let held = first.acquire().await.unwrap();
        assert!(observer.children(PATH).await[0].ends_with("-lock-2147483645"));
        let second = wait_behind(&first, &observer, 1).await;
        let inside = Arc::new(AtomicBool::new(true));
        let mut others = JoinSet::new();
        for _ in 0..6 {
            let mutex = mutex(server.connect_string(), SESSION, PATH).await;
            let inside = inside.clone();
            others.spawn(async move {
                for _ in 0..5 {
                    let guard = mutex.acquire().await.unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two are in");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    inside.store(false, Ordering::SeqCst);
                    release(guard).await;
                }
            });
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(held.is_held());
        release(held).await;
        let held = second.await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        inside.store(false, Ordering::SeqCst);
        release(held).await;
        while others.join_next().await.transpose().unwrap().is_some() {}
        let held = first.acquire().await.unwrap();
        let names = observer.children(PATH).await;
        assert!(names[0].contains("-lock-00000000"), "it counts from the beginning: {names:?}");
        release(held).await;
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
            "_c_11111111-1111-1111-1111-111111111111-latch-0000000000",
            "_c_short-lock-0000000000",
            "lease-0000000000",
            "0000000000",
        ] {
            observer.make(&format!("/app/{name}")).await;
        }
        let outer = InterProcessMutex::new(&client, "/app").unwrap();
        let inner = InterProcessMutex::new(&other, "/app/db").unwrap();
        let inner_held = inner.acquire().await.unwrap();
        let outer_held = outer.try_acquire().await.unwrap().unwrap();
        assert!(inner_held.is_held() && outer_held.is_held());
        let participants = outer.participants().await.unwrap();
        assert_eq!(participants.len(), 1, "{participants:?}");
        assert!(InterProcessMutex::new(&other, "/app").unwrap().try_acquire().await.unwrap().is_none());
        release(outer_held).await;
        assert!(InterProcessMutex::new(&client, "/app/db").unwrap().try_acquire().await.unwrap().is_none());
        release(inner_held).await;
    })
    .await;
}

/// MX-04: the server looks for empty parents all the time.
#[tokio::test]
async fn the_servers_own_removal_of_empty_parents_fails_nobody() {
    if !have_zookeeper() {
        return;
    }
    limit(async {
        let kind = ZooKeeper::builder().container_check_interval(Duration::from_millis(5));
        let server = kind.start().await;
        let client = connect(server.connect_string(), SESSION).await;
        let observer = Observer::connect(server.connect_string()).await;
        let mut tasks = JoinSet::new();
        for n in 0..100 {
            let client = client.clone();
            tasks.spawn(async move {
                for round in 0..10 {
                    // Once on a fresh name, once more where the parent may just be about to go.
                    let path = format!("/fresh/{}/{n}", round / 2);
                    let mutex = InterProcessMutex::new(&client, &path).unwrap();
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

/// Somebody removes the parent, and the one above it, whenever they are empty, as fast as the server answers.
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
