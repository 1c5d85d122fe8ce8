//! Clusters of three, with members that die or freeze.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use zlock_core::{CoordinationBackend, ErrorKind, Label, LockPath, SessionEvents, SessionState};
use zlock_etcd::EtcdBackend;
use zlock_recipes::{Client, Guard, InterProcessMutex, Release};
use zlock_testkit::etcd::{self, TTL, options};
use zlock_testkit::{Etcd, EtcdCluster, Metrics, have_etcd, have_strace, limit_to_if, until};

const LIMIT: Duration = Duration::from_secs(180);

#[derive(Clone, Copy, Debug)]
enum Harm {
    Killed,
    Frozen,
}

fn harm(cluster: &EtcdCluster, member: usize, how: Harm) {
    match how {
        Harm::Killed => cluster.members()[member].stop(),
        Harm::Frozen => cluster.members()[member].pause(),
    }
}

async fn mend(cluster: &EtcdCluster, member: usize, how: Harm) {
    match how {
        Harm::Killed => cluster.members()[member].restart().await,
        Harm::Frozen => cluster.members()[member].resume(),
    }
}

/// Returns the addresses of all members, this one first.
fn hosts_from(cluster: &EtcdCluster, first: usize) -> String {
    let members = cluster.members().iter().cycle().skip(first).take(3);
    members.map(zlock_testkit::Etcd::connect_string).collect::<Vec<_>>().join(",")
}

async fn lock(hosts: &str) -> (InterProcessMutex, SessionEvents) {
    lock_at(hosts, "/app/lock").await
}

async fn lock_at(hosts: &str, path: &str) -> (InterProcessMutex, SessionEvents) {
    let backend = EtcdBackend::connect(options(hosts)).await.unwrap();
    let events = backend.session_events();
    (Client::new(backend).mutex(path).unwrap(), events)
}

/// Adds a second client to the queue.
async fn waiting(cluster: &EtcdCluster, mutex: &InterProcessMutex) -> JoinHandle<Guard> {
    let mutex = mutex.clone();
    let count = async || {
        let mut count = 0;
        for member in cluster.members() {
            count += member.metrics().await.watches();
        }
        count
    };
    let before = count().await;
    let waiting = tokio::spawn(async move { mutex.acquire().await.unwrap() });
    until("it waits", async || count().await > before).await;
    waiting
}

/// Waits until the session is connected again, and expects that it is still the first.
async fn is_first(events: &SessionEvents) {
    let mut events = events.clone();
    while events.current().state != SessionState::Connected {
        events.changed().await;
    }
    assert_eq!(events.current().epoch, 1);
}

/// After a wake-up, a waiter reads from one server, which needs no other. A full listing needs a quorum.
#[tokio::test]
async fn a_look_at_the_predecessor_needs_no_majority() {
    const MOMENT: Duration = Duration::from_millis(500);
    limit_to_if(LIMIT, have_etcd(), async {
        let cluster = EtcdCluster::start(3).await;
        let backend = EtcdBackend::connect(options(&cluster.members()[0].connect_string())).await.unwrap();
        let path = LockPath::new("/app/lock").unwrap();
        let mut made = Vec::new();
        for _ in 0..3 {
            made.push(etcd::create(&backend, &path, Label::Lock).await.node);
        }
        for member in [1, 2] {
            cluster.members()[member].pause();
        }
        let listed = timeout(MOMENT, backend.children(&path, Some(&made[2]))).await;
        let whole = timeout(MOMENT, backend.children(&path, None)).await;
        for member in [1, 2] {
            cluster.members()[member].resume();
        }
        assert_eq!(*listed.expect("an answer").unwrap(), made[1..]);
        assert!(whole.is_err(), "{whole:?}");
        assert_eq!(*backend.children(&path, None).await.unwrap(), made);
    })
    .await;
}

/// A cluster that was restored to an older state or recreated. Nothing that clients have seen of it is true any more, and its
/// revisions are lower. Each check costs one additional read, not an endless series.
#[tokio::test]
async fn a_cluster_that_begins_anew() {
    const ROUNDS: usize = 10;
    limit_to_if(LIMIT, have_etcd(), async {
        let (old, new) = (Etcd::start().await, Etcd::start().await);
        let mut observer = etcd::observer(&old.connect_string()).await;
        for _ in 0..1000 {
            observer.put("key", "", None).await.unwrap();
        }
        let hosts = format!("{},{}", old.connect_string(), new.connect_string());
        let locks = [lock(&hosts).await, lock(&hosts).await];
        let held = locks[0].0.acquire().await.unwrap();
        let waiter = locks[1].0.clone();
        let waiting = tokio::spawn(async move { waiter.acquire().await.map(drop) });
        until("it waits", async || old.metrics().await.watches() > 0).await;
        old.stop();
        assert_eq!(held.lost().await.kind(), ErrorKind::SessionLost);
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::SessionLost);
        for (_, events) in &locks {
            let mut events = events.clone();
            while events.current().state != SessionState::Connected {
                events.changed().await;
            }
        }
        let before = new.metrics().await;
        for round in 0..ROUNDS {
            let held = locks[round % 2].0.acquire().await.unwrap();
            let waiter = locks[(round + 1) % 2].0.clone();
            let waiting = tokio::spawn(async move { waiter.acquire().await.unwrap() });
            until("it waits", async || new.metrics().await.watches() > 0).await;
            assert_eq!(held.release().await.unwrap(), Release::Released);
            assert_eq!(waiting.await.unwrap().release().await.unwrap(), Release::Released);
        }
        let asked = |metrics: &Metrics| metrics.messages().get("Range").copied().unwrap_or(0);
        let reads = asked(&new.metrics().await) - asked(&before);
        println!("{reads} reads in {ROUNDS} rounds");
        assert!(reads <= 6 * ROUNDS as u64, "{reads}");
    })
    .await;
}

/// The first of three endpoints is unusable. Apart from delays, clients do not notice it.
#[tokio::test]
async fn one_endpoint_dead_or_frozen() {
    limit_to_if(LIMIT, have_etcd(), async {
        let cluster = EtcdCluster::start(3).await;
        let leader = cluster.leader().await;
        let follower = (leader + 1) % 3;
        for how in [Harm::Killed, Harm::Frozen] {
            harm(&cluster, follower, how);
            let (mutex, events) = lock(&hosts_from(&cluster, follower)).await;
            for _ in 0..50 {
                assert_eq!(mutex.acquire().await.unwrap().release().await.unwrap(), Release::Released);
            }
            is_first(&events).await;
            mend(&cluster, follower, how).await;
        }
        // The endpoint fails while it is in use.
        for how in [Harm::Frozen, Harm::Killed] {
            let (mutex, events) = lock(&hosts_from(&cluster, follower)).await;
            let held = mutex.acquire().await.unwrap();
            let (other, _) = lock(&hosts_from(&cluster, follower)).await;
            // The waiter's watch is on the member that is about to fail.
            let waiting = waiting(&cluster, &other).await;
            let mut listener = events.listen();
            listener.next().await.unwrap();
            harm(&cluster, follower, how);
            // Longer than a session survives without keep-alives.
            sleep(TTL * 3 / 2).await;
            assert!(held.is_held() && !waiting.is_finished(), "{how:?}");
            assert_eq!(held.release().await.unwrap(), Release::Released, "{how:?}");
            assert_eq!(waiting.await.unwrap().release().await.unwrap(), Release::Released);
            let told = tokio::time::timeout(Duration::ZERO, listener.next()).await;
            assert!(told.is_err(), "no interruption is told of: {told:?}");
            mend(&cluster, follower, how).await;
            is_first(&events).await;
        }
    })
    .await;
}

/// A leader change restarts the time of every lease, so no lock is lost, and none is granted to another client.
#[tokio::test]
async fn the_leader_dies_or_hangs() {
    limit_to_if(LIMIT, have_etcd(), async {
        let cluster = EtcdCluster::start(3).await;
        for (how, time) in [(Harm::Killed, TTL * 3 / 2), (Harm::Frozen, TTL / 2), (Harm::Frozen, TTL * 3 / 2)]
        {
            // The holder is connected to the leader, the waiter is not.
            let leader = cluster.leader().await;
            let (holder, holders) = lock(&hosts_from(&cluster, leader)).await;
            let (waiter, waiters) = lock(&hosts_from(&cluster, leader + 1)).await;
            let held = holder.acquire().await.unwrap();
            let waiting = waiting(&cluster, &waiter).await;
            let began = Instant::now();
            harm(&cluster, leader, how);
            while began.elapsed() < time {
                assert!(!waiting.is_finished(), "{how:?}: granted while held");
                assert!(held.is_held(), "{how:?}: lost after {:?}", began.elapsed());
                sleep(Duration::from_millis(20)).await;
            }
            // So short that there may not be another leader yet.
            let is_short = time < TTL;
            if is_short {
                mend(&cluster, leader, how).await;
            }
            is_first(&holders).await;
            is_first(&waiters).await;
            // A release during an election continues in the background.
            let released = held.release().await.unwrap();
            assert!(
                matches!(released, Release::Released | Release::Pending),
                "{how:?}, {time:?}: {released:?}"
            );
            println!("{how:?} for {time:?}: {released:?}");
            let next = waiting.await.unwrap();
            if !is_short {
                mend(&cluster, leader, how).await;
            }
            sleep(Duration::from_secs(1)).await;
            // A leader that was frozen for longer than a TTL may end leases whose renewal it has not seen, before it notices
            // that it no longer leads: etcd issue 15247, fixed in later releases.
            let is_spared = is_short || matches!(how, Harm::Killed);
            if is_spared {
                assert!(next.is_held());
                assert_eq!(next.release().await.unwrap(), Release::Released);
            } else {
                drop(next);
            }
            for (mutex, events) in [(&holder, &holders), (&waiter, &waiters)] {
                assert_eq!(mutex.acquire().await.unwrap().release().await.unwrap(), Release::Released);
                if is_spared {
                    is_first(events).await;
                }
            }
        }
    })
    .await;
}

/// A holder that knows only the leader, which is frozen, gives up before the cluster grants the lock to the next client.
#[tokio::test]
async fn a_holder_behind_a_frozen_leader_knows_first() {
    limit_to_if(LIMIT, have_etcd(), async {
        let cluster = EtcdCluster::start(3).await;
        let leader = cluster.leader().await;
        let members = cluster.members();
        let (holder, _) = lock(&members[leader].connect_string()).await;
        let others = [1, 2].map(|n| members[(leader + n) % 3].connect_string()).join(",");
        let (waiter, waiters) = lock(&others).await;
        let held = holder.acquire().await.unwrap();
        let waiting = waiting(&cluster, &waiter).await;
        // Some time between two keep-alives.
        sleep(TTL / 2).await;
        let began = Instant::now();
        members[leader].pause();
        let lost = async {
            let error = held.lost().await;
            (error, began.elapsed())
        };
        let granted = async {
            let guard = waiting.await.unwrap();
            (guard, began.elapsed())
        };
        let ((error, lost), (next, granted)) = tokio::join!(lost, granted);
        println!("ttl {TTL:?}: lost after {lost:?} ({error}), the next one granted after {granted:?}");
        assert!(lost < granted);
        assert!(lost <= TTL);
        is_first(&waiters).await;
        assert!(next.is_held() && !held.is_held());
        assert_eq!(next.release().await.unwrap(), Release::Released);
        members[leader].resume();
        sleep(Duration::from_secs(1)).await;
        assert!(!held.is_held());
    })
    .await;
}

/// A leader whose disk hangs is replaced, and continues to renew leases that the cluster ends: etcd issue 15247. A holder that
/// knows no other server gives up before the cluster grants the lock to the next client. A holder that knows one moves there.
#[tokio::test]
async fn a_leader_whose_disk_hangs_renews_nothing() {
    limit_to_if(LIMIT, have_etcd() && have_strace(), async {
        let cluster = EtcdCluster::start(3).await;
        let leader = cluster.leader().await;
        let members = cluster.members();
        let (holder, _) = lock(&members[leader].connect_string()).await;
        let (survivor, survivors) = lock_at(&hosts_from(&cluster, leader), "/app/other").await;
        let others = [1, 2].map(|n| members[(leader + n) % 3].connect_string()).join(",");
        let (waiter, waiters) = lock(&others).await;
        let (writer, _) = lock_at(&others, "/app/written").await;
        let held = holder.acquire().await.unwrap();
        let survives = survivor.acquire().await.unwrap();
        let waiting = waiting(&cluster, &waiter).await;
        let hung = members[leader].hang_disk();
        // The disk hangs at the next write.
        let written = writer.acquire().await.unwrap();
        let lost = async {
            held.lost().await;
            Instant::now()
        };
        let granted = async {
            let guard = waiting.await.unwrap();
            (guard, Instant::now())
        };
        let (lost, (next, granted)) = tokio::join!(lost, granted);
        assert!(lost < granted, "two held for {:?}", lost - granted);
        // Two more TTLs, in which the old leader would have renewed the lease.
        sleep(2 * TTL).await;
        is_first(&survivors).await;
        is_first(&waiters).await;
        assert!(next.is_held() && survives.is_held() && written.is_held() && !held.is_held());
        assert_eq!(survives.release().await.unwrap(), Release::Released);
        assert_eq!(next.release().await.unwrap(), Release::Released);
        drop(hung);
    })
    .await;
}

/// Without a quorum, no lock can be acquired and none is lost, since leases only end by consensus.
#[tokio::test]
async fn no_quorum_for_a_while() {
    limit_to_if(LIMIT, have_etcd(), async {
        let cluster = EtcdCluster::start(3).await;
        let (mutex, events) = lock(&cluster.connect_string()).await;
        let held = mutex.acquire().await.unwrap();
        let leader = cluster.leader().await;
        for n in 1..3 {
            cluster.members()[(leader + n) % 3].pause();
        }
        sleep(TTL / 4).await;
        for n in 1..3 {
            cluster.members()[(leader + n) % 3].resume();
        }
        sleep(TTL).await;
        is_first(&events).await;
        assert!(held.is_held());
        assert_eq!(held.release().await.unwrap(), Release::Released);
    })
    .await;
}
