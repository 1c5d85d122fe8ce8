//! Real clients in other languages on the same lock path: Apache Curator, kazoo and zlock exclude each other.

use std::time::Duration;

use tokio::task::JoinSet;
use zlock::InterProcessMutex;

use super::peer::{Kind, Peer};
use zlock_testkit::zk::{Observer, connect, mutex, release};
use zlock_testkit::{ZooKeeper, have, have_zookeeper, limit_if, report};

const SESSION: Duration = Duration::from_secs(20);
/// Of the peers.
const THEIRS: Duration = Duration::from_secs(10);
/// Of each client that counts, and how many of each kind there are.
const COUNT: usize = 50;
const CLIENTS: usize = 2;

async fn test(kind: Kind) {
    limit_if(have_zookeeper() && have(kind.missing().as_deref()), async {
        let server = ZooKeeper::shared().await;
        let path = format!("/peers/{kind:?}");
        let (mut one, mut two) =
            tokio::join!(Peer::start(kind, server, &path, THEIRS), Peer::start(kind, server, &path, THEIRS));
        let observer = Observer::connect(server.connect_string()).await;
        let ours = [
            mutex(server.connect_string(), SESSION, &path).await,
            mutex(server.connect_string(), SESSION, &path).await,
        ];
        exclusion(&mut one, &ours[0], &observer).await;
        order([&mut one, &mut two], &ours, &observer).await;
        if matches!(kind, Kind::Curator) {
            revocation(&mut one, &ours[0]).await;
            selector(&mut one, &ours[0], &observer).await;
            read_write(&mut one, server, &format!("{path}-rw"), &observer).await;
        }
        counting([one, two], ours, kind).await;
        observer.wait_for_children(&path, 0).await;
    })
    .await;
}

/// Curator's `LeaderSelector` is a loop around a mutex, which ours excludes.
async fn selector(peer: &mut Peer, ours: &InterProcessMutex, observer: &Observer) {
    let path = ours.path().as_str();
    let held = ours.acquire().await.unwrap();
    peer.ask("select", "selecting").await;
    observer.wait_for_children(path, 2).await;
    release(held).await;
    peer.expect("leads").await;
    assert!(ours.try_acquire().await.unwrap().is_none());
    peer.ask("yield", "yielded").await;
    observer.wait_for_children(path, 0).await;
    release(ours.acquire().await.unwrap()).await;
}

/// A holder excludes the other client until it releases the lock.
async fn exclusion(peer: &mut Peer, ours: &InterProcessMutex, observer: &Observer) {
    let path = ours.path().as_str();
    peer.ask("acquire 10000", "true").await;
    assert!(ours.try_acquire().await.unwrap().is_none());
    let timeout = ours.acquire_timeout(Duration::from_millis(200)).await.unwrap_err();
    assert!(timeout.is_timeout(), "{timeout}");
    observer.wait_for_children(path, 1).await;
    let participants = ours.participants().await.unwrap();
    assert_eq!((participants.len(), participants[0].is_holder), (1, true), "{participants:?}");
    peer.ask("release", "released").await;

    let held = ours.try_acquire().await.unwrap().unwrap();
    peer.ask("acquire 500", "false").await;
    assert!(held.is_held());
    assert_eq!(observer.children(path).await.len(), 1, "it has left the queue");
    release(held).await;
    peer.ask("acquire 10000", "true").await;
    peer.ask("release", "released").await;
}

/// All clients wait in one queue.
async fn order([first, third]: [&mut Peer; 2], ours: &[InterProcessMutex; 2], observer: &Observer) {
    let path = ours[0].path().as_str();
    first.ask("acquire 10000", "true").await;
    let second = tokio::spawn({
        let mutex = ours[0].clone();
        async move { mutex.acquire().await.unwrap() }
    });
    observer.wait_for_children(path, 2).await;
    third.tell("acquire 30000").await;
    observer.wait_for_children(path, 3).await;
    let fourth = tokio::spawn({
        let mutex = ours[1].clone();
        async move { mutex.acquire().await.unwrap() }
    });
    observer.wait_for_children(path, 4).await;

    assert!(!second.is_finished());
    first.ask("release", "released").await;
    let second = second.await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(200), third.answer()).await;
    assert!(early.is_err(), "{early:?}");
    release(second).await;
    third.expect("true").await;
    assert!(!fourth.is_finished());
    third.ask("release", "released").await;
    release(fourth.await.unwrap()).await;
}

/// Each client asks the other to release the lock, and the other gets the request.
async fn revocation(peer: &mut Peer, ours: &InterProcessMutex) {
    let held = ours.acquire().await.unwrap();
    let asked = tokio::spawn(async move {
        held.revocation_requested().await.unwrap();
        release(held).await;
    });
    peer.ask("revoke", "revoked").await;
    asked.await.unwrap();

    peer.ask("acquire 10000", "true").await;
    assert_eq!(ours.request_revocation().await.unwrap(), 1, "it does not listen, and is untouched");
    peer.ask("release", "released").await;
    peer.ask("revocable", "revocable").await;
    peer.ask("acquire 10000", "true").await;
    assert_eq!(ours.request_revocation().await.unwrap(), 1);
    peer.expect("asked").await;
    peer.ask("release", "released").await;
}

/// Readers share the lock, writers hold it alone, and a downgrade admits no other writer in between, for all clients.
async fn read_write(peer: &mut Peer, server: &ZooKeeper, path: &str, observer: &Observer) {
    let ours = connect(server.connect_string(), SESSION).await.read_write_lock(path).unwrap();
    let (read, write) = (ours.read(), ours.write());

    let held = read.acquire().await.unwrap();
    peer.ask("read 10000", "true").await;
    assert!(write.try_acquire().await.unwrap().is_none());
    release(held).await;
    assert!(write.acquire_timeout(Duration::from_millis(200)).await.unwrap_err().is_timeout());
    peer.ask("stop reading", "released").await;

    let held = write.acquire().await.unwrap();
    peer.ask("read 500", "false").await;
    peer.ask("write 500", "false").await;
    peer.tell("read 30000").await;
    observer.wait_for_children(path, 2).await;
    let next = tokio::spawn({
        let write = write.clone();
        async move { write.acquire().await.unwrap() }
    });
    observer.wait_for_children(path, 3).await;
    let held = held.downgrade().await.unwrap();
    peer.expect("true").await;
    release(held).await;
    assert!(!next.is_finished());
    peer.ask("stop reading", "released").await;
    peer.tell("write 30000").await;
    observer.wait_for_children(path, 2).await;
    let next = next.await.unwrap().downgrade().await.unwrap();
    assert!(read.try_acquire().await.unwrap().is_none(), "behind their writer");
    release(next).await;
    peer.expect("true").await;

    // Its way to downgrade.
    peer.ask("read 10000", "true").await;
    peer.ask("stop writing", "released").await;
    let held = read.acquire().await.unwrap();
    assert!(write.try_acquire().await.unwrap().is_none());
    peer.ask("stop reading", "released").await;
    release(held).await;
    release(write.acquire().await.unwrap().into()).await;
}

/// All clients count in one file, and only the lock prevents lost counts.
async fn counting(peers: [Peer; CLIENTS], ours: [InterProcessMutex; CLIENTS], kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("count");
    std::fs::write(&file, "0").unwrap();
    let mut tasks = JoinSet::new();
    for mut peer in peers {
        let command = format!("count {COUNT} {}", file.display());
        tasks.spawn(async move { peer.ask(&command, "counted").await });
    }
    for mutex in ours {
        let file = file.clone();
        tasks.spawn(async move {
            for _ in 0..COUNT {
                let guard = mutex.acquire().await.unwrap();
                let number: usize = std::fs::read_to_string(&file).unwrap().parse().unwrap();
                // Long enough for another client to read the same number.
                tokio::task::yield_now().await;
                std::fs::write(&file, (number + 1).to_string()).unwrap();
                release(guard).await;
            }
        });
    }
    while tasks.join_next().await.transpose().unwrap().is_some() {}
    let counted: usize = std::fs::read_to_string(&file).unwrap().parse().unwrap();
    report(format!("{CLIENTS} processes of {kind:?} and {CLIENTS} clients of ours counted to {counted}"));
    assert_eq!(counted, 2 * CLIENTS * COUNT);
}

#[tokio::test]
async fn curator_and_zlock_exclude_each_other() {
    test(Kind::Curator).await;
}

#[tokio::test]
async fn kazoo_and_zlock_exclude_each_other() {
    test(Kind::Kazoo).await;
}
