//! The cost of a lock for a real etcd server, by the server's own counters.
//!
//! Each test has a separate server, and sessions so long that only the first keep-alive is due. Counts are therefore exact.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_client::WatchOptions;
use futures_util::FutureExt;
use tokio::task::JoinSet;
use tokio::time::sleep;
use zlock_core::{CoordinationBackend, Created, Label, LockPath, Needs, NodeIds, Target};
use zlock_etcd::{EtcdBackend, EtcdOptions};
use zlock_recipes::{Client, InterProcessMutex};
use zlock_testkit::etcd::{self, release};
use zlock_testkit::{Etcd, FaultProxy, Flow, Metrics, have_etcd, limit_if, limit_to};

const PATH: &str = "/app/lock";
const LONG: Duration = Duration::from_secs(3600);

pub(super) async fn backend(server: &Etcd) -> EtcdBackend {
    backend_at(server, &server.connect_string()).await
}

async fn backend_at(server: &Etcd, host: &str) -> EtcdBackend {
    let count = async || server.metrics().await.messages().get("LeaseKeepAlive").copied().unwrap_or(0);
    let before = count().await;
    let options = EtcdOptions::new(host.split(',')).with_ttl(LONG);
    let backend = EtcdBackend::connect(options).await.unwrap();
    // The first keep-alive is sent at once, and the next one after twenty minutes.
    while count().await == before {
        sleep(Duration::from_millis(2)).await;
    }
    backend
}

async fn mutex(server: &Etcd) -> InterProcessMutex {
    Client::new(backend(server).await).mutex(PATH).unwrap()
}

/// Returns the messages that clients have sent between two snapshots, by method, and the number of write transactions.
pub(super) fn cost(before: &Metrics, after: &Metrics) -> (BTreeMap<String, u64>, u64) {
    let earlier = before.messages();
    let since = after.messages().into_iter().map(|(method, count)| {
        let count = count - earlier.get(&method).unwrap_or(&0);
        (method, count)
    });
    (since.filter(|(_, count)| *count > 0).collect(), after.writes() - before.writes())
}

fn messages(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(method, count)| ((*method).to_owned(), *count)).collect()
}

async fn until_watches(server: &Etcd, watches: u64) {
    while server.metrics().await.watches() != watches {
        sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until there is a watch. When waits are short, there may be two.
async fn until_watched(server: &Etcd) -> Metrics {
    loop {
        let metrics = server.metrics().await;
        if metrics.watches() > 0 {
            return metrics;
        }
        sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn an_uncontended_lock_is_two_messages_and_two_writes() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let mutex = mutex(&server).await;
        let before = server.metrics().await;
        for _ in 0..100 {
            release(mutex.acquire().await.unwrap()).await;
        }
        let after = server.metrics().await;
        assert_eq!(cost(&before, &after), (messages(&[("DeleteRange", 100), ("Txn", 100)]), 200));
        for _ in 0..100 {
            release(mutex.try_acquire().await.unwrap().unwrap()).await;
        }
        // `try_acquire` reads first.
        let tried = cost(&after, &server.metrics().await);
        assert_eq!(tried, (messages(&[("DeleteRange", 100), ("Range", 100), ("Txn", 100)]), 200));
    })
    .await;
}

/// The size of the requests, as the server counts it, without what gRPC and HTTP add.
#[tokio::test]
async fn an_uncontended_lock_sends_few_bytes() {
    const ROUNDS: u64 = 100;
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let backend = backend(&server).await;
        let received =
            async || server.metrics().await.sum("etcd_network_client_grpc_received_bytes_total") as u64;
        let path = LockPath::new("/app/orders/4711").unwrap();
        let mut sizes = [0; 2];
        for _ in 0..ROUNDS {
            let before = received().await;
            let made = backend
                .create_ephemeral_sequential(&path, Label::Lock, &etcd::token(), b"", Needs::Queue)
                .await;
            let between = received().await;
            backend.delete(&path, &Target::Node(made.unwrap().node), None).await.unwrap();
            sizes[0] += between - before;
            sizes[1] += received().await - between;
        }
        let [create, delete] = sizes.map(|size| size / ROUNDS);
        println!("a create has {create} bytes, a delete {delete}");
        assert!(create + delete < 400, "{create} and {delete}");
    })
    .await;
}

#[tokio::test]
async fn a_contended_lock_is_at_most_five_messages_and_two_writes() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let mutexes = [mutex(&server).await, mutex(&server).await];
        let mut held = mutexes[0].acquire().await.unwrap();
        let before = server.metrics().await;
        // The lock passes between the two clients. Each waits for the other.
        for round in 1..=100 {
            let next = mutexes[round % 2].clone();
            let waiting = tokio::spawn(async move { next.acquire().await.unwrap() });
            until_watched(&server).await;
            // A long wait first, to switch to the code path for waits that are longer than the period of the server's loop.
            if round == 1 {
                sleep(Duration::from_millis(150)).await;
            }
            release(held).await;
            held = waiting.await.unwrap();
            until_watches(&server, 0).await;
            if round == 1 {
                let (sent, _) = cost(&before, &server.metrics().await);
                assert_eq!(
                    sent,
                    messages(&[("DeleteRange", 1), ("Range", 1), ("Txn", 1), ("Watch", 1)]),
                    "nothing else was written"
                );
            }
        }
        let (sent, writes) = cost(&before, &server.metrics().await);
        println!("100 contended: {sent:?}");
        assert_eq!((writes, sent["Txn"] + sent["DeleteRange"]), (200, 200), "{sent:?}");
        assert!(sent["Watch"] <= 200, "{sent:?}");
        // A busy server sends an event shortly before its reads return the change. Such a read is repeated.
        assert!((100..=110).contains(&sent["Range"]), "{sent:?}");
        assert_eq!(sent.len(), 4, "{sent:?}");
        release(held).await;
    })
    .await;
}

/// Concurrent acquisitions by many sessions, and by many tasks of one session.
#[tokio::test]
async fn a_crowd_pays_no_more_a_head() {
    limit_if(have_etcd(), async {
        for (sessions, tasks) in [(8, 8), (1, 32)] {
            let server = Etcd::start().await;
            let mut mutexes = Vec::new();
            for _ in 0..sessions {
                mutexes.push(mutex(&server).await);
            }
            let before = server.metrics().await;
            let mut crowd = JoinSet::new();
            for mutex in mutexes.iter().cycle().take(tasks) {
                let mutex = mutex.clone();
                crowd.spawn(async move {
                    for _ in 0..640 / tasks {
                        release(mutex.acquire().await.unwrap()).await;
                    }
                });
            }
            while crowd.join_next().await.transpose().unwrap().is_some() {}
            let after = server.metrics().await;
            let (sent, writes) = cost(&before, &after);
            println!("{sessions} sessions, {tasks} tasks, 640 acquisitions: {sent:?}, {writes} writes");
            assert_eq!(writes, 1280);
            // Five messages for each acquisition, and another listing if the predecessor has left before it is watched.
            assert!(sent.values().sum::<u64>() <= 640 * 6, "{sent:?}");
            until_watches(&server, 0).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_failed_try_is_one_message_and_no_write() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let (holder, other) = (mutex(&server).await, mutex(&server).await);
        let held = holder.acquire().await.unwrap();
        let before = server.metrics().await;
        for _ in 0..100 {
            assert!(other.try_acquire().await.unwrap().is_none());
        }
        assert_eq!(cost(&before, &server.metrics().await), (messages(&[("Range", 100)]), 0));
        release(held).await;
    })
    .await;
}

/// A create that is given up costs one message, and those that are in flight meanwhile are repeated.
#[tokio::test]
async fn a_create_that_is_given_up_costs_one_message() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let backend = backend(&server).await;
        let path = etcd::path("given-up");
        let before = server.metrics().await;
        etcd::give_up(&backend, &path).await;
        assert_eq!(cost(&before, &server.metrics().await), (messages(&[("Txn", 1)]), 1));
        let before = server.metrics().await;
        let made = etcd::create(&backend, &path, Label::Lock).await;
        backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
        let after = server.metrics().await;
        assert_eq!(
            cost(&before, &after),
            (messages(&[("DeleteRange", 1), ("Txn", 1)]), 2),
            "no more than before"
        );
        // A create that was not started in this session leaves nothing to look for.
        backend.delete(&path, &Target::Id(etcd::token()), None).await.unwrap();
        assert_eq!(cost(&after, &server.metrics().await), (messages(&[]), 0));
    })
    .await;
}

/// Thousands of concurrent requests, and the keep-alives with them, would all be late. So the client limits the number in
/// flight. A future that is not polled does not delay others.
#[tokio::test]
async fn requests_take_turns() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let proxy = FaultProxy::start(server.addr()).await;
        let backend = backend_at(&server, &proxy.connect_string()).await;
        let path = etcd::path("turns");
        let before = server.metrics().await.messages();
        proxy.to_client(Flow::Hold);
        let mut unpolled: Vec<_> = (0..1000).map(|_| backend.children(&path, None)).collect();
        for list in &mut unpolled {
            assert!(list.now_or_never().is_none());
        }
        sleep(Duration::from_millis(300)).await;
        let asked = server.metrics().await.messages()["Range"] - before["Range"];
        assert!((60..80).contains(&asked), "{asked} at once");
        proxy.to_client(Flow::Pass);
        tokio::time::timeout(Duration::from_secs(5), backend.children(&path, None)).await.unwrap().unwrap();
        for list in unpolled {
            list.await.unwrap();
        }
    })
    .await;
}

/// Rule 8, by the server's counters: hand-overs, timeouts, and watches besides one that stays.
#[tokio::test]
async fn watches_are_flat() {
    if !have_etcd() {
        return;
    }
    let hand_overs = hand_overs();
    limit_to(Duration::from_secs(60 + hand_overs / 20), async {
        let server = Etcd::start().await;
        let backend = backend(&server).await;
        let path = etcd::path("flat");
        let held = etcd::create(&backend, &path, Label::Lock).await;
        let stays = etcd::watch(&backend, &path, &held.node).await;
        for _ in 0..300 {
            drop(etcd::watch(&backend, &path, &held.node).await);
        }
        until_watches(&server, 1).await;
        drop(stays);
        until_watches(&server, 0).await;
        let [one, other] = [mutex(&server).await, mutex(&server).await];
        let mut tasks = JoinSet::new();
        for mutex in [&one, &other].into_iter().cycle().take(10) {
            let mutex = mutex.clone();
            tasks.spawn(async move {
                for round in 0..hand_overs / 10 {
                    release(mutex.acquire().await.unwrap()).await;
                    match mutex.acquire_timeout(Duration::from_millis(round % 5)).await {
                        Ok(guard) => release(guard).await,
                        Err(error) => assert!(error.is_timeout(), "{error}"),
                    }
                }
            });
        }
        let mut most = 0;
        let done = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
        let look = async {
            loop {
                most = server.metrics().await.watches().max(most);
                sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            () = done => {}
            () = look => {}
        }
        until_watches(&server, 0).await;
        println!("{hand_overs} hand-overs, watches at the server: at most {most}, at the end 0");
        // A stream serves 64 watches in its lifetime, and each session may have two unfinished streams.
        assert!(most <= 256, "{most}");
    })
    .await;
}

/// Set `ZLOCK_HAND_OVERS=10000` for a longer run by hand.
fn hand_overs() -> u64 {
    std::env::var("ZLOCK_HAND_OVERS").map_or(500, |number| number.parse().unwrap())
}

/// The server serves watches that start at a past revision in a loop that runs every 100 ms. None of our watches is one of
/// them, while others in the same run are.
#[tokio::test]
async fn a_hand_over_does_not_wait_for_the_servers_loop() {
    const ROUNDS: usize = 20;
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let mut observer = etcd::observer(&server.connect_string()).await;
        let mut from_the_past = 0;
        for _ in 0..ROUNDS {
            let put = observer.put("key", "", None).await.unwrap();
            let from = WatchOptions::new().with_start_revision(put.header().unwrap().revision());
            let _watch = observer.watch("key", Some(from)).await.unwrap();
            from_the_past += until_watched(&server).await.slow_watches();
        }
        assert!(from_the_past > 0, "the counter of slow watches does not count");
        until_watches(&server, 0).await;
        let mutexes = [mutex(&server).await, mutex(&server).await];
        let mut held = mutexes[0].acquire().await.unwrap();
        let mut slow = 0;
        for round in 1..=ROUNDS {
            let next = mutexes[round % 2].clone();
            let waiting = tokio::spawn(async move { next.acquire().await.unwrap() });
            slow += until_watched(&server).await.slow_watches();
            release(held).await;
            held = waiting.await.unwrap();
            until_watches(&server, 0).await;
        }
        println!(
            "slow watches in {ROUNDS} hand-overs: {slow}; in as many watches from the past: {from_the_past}"
        );
        assert_eq!(slow, 0);
        release(held).await;
    })
    .await;
}

async fn lock_node(backend: &EtcdBackend, path: &LockPath) -> Created {
    backend
        .create_ephemeral_sequential(path, Label::Lock, &NodeIds::random().next(), b"data", Needs::Queue)
        .await
        .unwrap()
}

/// A create returns only its predecessor and itself, however long the queue is. So does the read after a wake-up.
#[tokio::test]
async fn a_create_brings_no_long_queue() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let proxy = FaultProxy::start(server.addr()).await;
        let backend = backend_at(&server, &proxy.connect_string()).await;
        let path = LockPath::new(PATH).unwrap();
        let first = lock_node(&backend, &path).await;
        assert_eq!(*first.queue.listed().unwrap(), *std::slice::from_ref(&first.node));
        let mut before = first.node;
        for _ in 0..200 {
            before = lock_node(&backend, &path).await.node;
        }
        let received = proxy.bytes_to_client();
        let last = lock_node(&backend, &path).await;
        let received = proxy.bytes_to_client() - received;
        assert!(received < 1000, "{received} bytes behind 201 nodes");
        let both = [before, last.node.clone()];
        assert_eq!(*last.queue.listed().unwrap(), both);
        let received = proxy.bytes_to_client();
        let listed = backend.children(&path, Some(&last.node)).await.unwrap();
        let received = proxy.bytes_to_client() - received;
        assert!(received < 1000, "{received} bytes behind 201 nodes");
        assert_eq!(*listed, both);
        assert_eq!(backend.children(&path, None).await.unwrap().len(), 202);
    })
    .await;
}

/// A client does not compare the answers of another cluster, which has fewer revisions, with those of the one before.
#[tokio::test]
async fn a_look_costs_one_read_after_a_move_to_another_cluster() {
    limit_if(have_etcd(), async {
        let (old, new) = (Etcd::start().await, Etcd::start().await);
        let mut observer = etcd::observer(&old.connect_string()).await;
        for _ in 0..100 {
            observer.put("key", "", None).await.unwrap();
        }
        let moving = backend_at(&old, &format!("{},{}", old.connect_string(), new.connect_string())).await;
        let path = LockPath::new(PATH).unwrap();
        lock_node(&moving, &path).await;
        old.stop();
        etcd::connected(&moving, 2).await;
        let node = lock_node(&moving, &path).await.node;
        let before = reads_at_rest(&new).await;
        let queue = moving.children(&path, Some(&node)).await.unwrap();
        assert_eq!(queue.position(&node.id), Some(queue.len() - 1));
        assert_eq!(reads_at_rest(&new).await - before, 1);
    })
    .await;
}

/// Returns the number of reads that the server has served, once none is in flight. A session starts with some.
async fn reads_at_rest(server: &Etcd) -> u64 {
    let count = async || server.metrics().await.messages().get("Range").copied().unwrap_or(0);
    loop {
        let before = count().await;
        sleep(Duration::from_millis(300)).await;
        if count().await == before {
            return before;
        }
    }
}

/// The key created right before belongs to a lock further down.
#[tokio::test]
async fn a_key_that_is_no_place_hides_no_predecessor() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let backend = backend(&server).await;
        let path = LockPath::new(PATH).unwrap();
        let before = lock_node(&backend, &path).await.node;
        lock_node(&backend, &path.join("further").unwrap()).await;
        let last = lock_node(&backend, &path).await;
        assert_eq!(*last.queue.clone().listed().unwrap(), [before, last.node.clone()]);
        let listed = backend.children(&path, Some(&last.node)).await.unwrap();
        assert_eq!(*listed, *last.queue.listed().unwrap());
        let alone = path.join("further/down").unwrap();
        lock_node(&backend, &alone.join("still").unwrap()).await;
        let alone = lock_node(&backend, &alone).await;
        assert_eq!(*alone.queue.listed().unwrap(), *std::slice::from_ref(&alone.node));
    })
    .await;
}
