//! Thousands of locks and waits of one client, on a real ZooKeeper server.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use zlock::{Client, ErrorKind, Guard};
use zlock_testkit::zk::{Observer, connect, release};
use zlock_testkit::{Cut, FaultProxy, ZooKeeper, have_zookeeper, limit_to, limit_to_if, report};

/// Well over the time that a server takes to start while other tests run: 9 s has been observed.
const SESSION: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(300);

/// The number of concurrent requests of one kind. Heartbeats have to get through between them.
const AT_A_TIME: usize = 50;

/// Runs `each` for all numbers below `count`, some of them concurrently. Results are in the order of the numbers.
async fn for_all<T: Send + 'static, F>(count: usize, mut each: impl FnMut(usize) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
{
    let (mut results, mut running) = (Vec::new(), JoinSet::new());
    for number in 0..count {
        if running.len() == AT_A_TIME {
            results.push(running.join_next().await.unwrap().unwrap());
        }
        let task = each(number);
        running.spawn(async move { (number, task.await) });
    }
    while let Some(ended) = running.join_next().await {
        results.push(ended.unwrap());
    }
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Acquires a lock on each of the paths.
async fn take_all(client: &Client, count: usize, path: impl Fn(usize) -> String) -> Vec<Guard> {
    for_all(count, |number| {
        let lock = client.mutex(path(number)).unwrap();
        async move { lock.acquire().await.unwrap() }
    })
    .await
}

/// How the client's link, or the server behind it, fails and recovers.
#[derive(Clone, Copy, Debug)]
enum Break {
    Restart,
    Cut,
}

/// One client holds some locks and waits for `count` others, with paths of `length` bytes. It is disconnected, keeps its
/// session and its locks, and finally acquires the locks that it waits for.
async fn wait_for_many(count: usize, length: usize, how: Break) {
    if !have_zookeeper() {
        return;
    }
    let body = async {
        let server = ZooKeeper::start().await;
        let proxy = FaultProxy::start_zookeeper(server.addr()).await;
        let holder = connect(server.connect_string(), SESSION).await;
        let client = connect(proxy.connect_string(), SESSION).await;
        let path = |number: usize| format!("/many/{number:0>0$}", length - "/many/".len());
        let others = take_all(&holder, count, path).await;
        let held = take_all(&client, 5, |number| format!("/held/{number}")).await;

        let mut waiters = JoinSet::new();
        for number in 0..count {
            let lock = client.mutex(path(number)).unwrap();
            waiters.spawn(async move { lock.acquire().await.map(|guard| (number, guard)) });
            // Not all at the same time, which is a different test.
            while number % 100 == 0 && watches(&server).await + 200.0 < number as f64 {
                sleep(Duration::from_millis(1)).await;
            }
        }
        let all = count as f64;
        while watches(&server).await < all {
            sleep(Duration::from_millis(5)).await;
        }
        let connections = server.mntr().await["num_alive_connections"] as u64;
        let packets = server.mntr().await["packets_received"];

        let began = Instant::now();
        match how {
            Break::Restart => server.restart().await,
            Break::Cut => proxy.cut(Cut::Reset),
        }
        let answers = began.elapsed();
        if matches!(how, Break::Cut) {
            // The server first forgets the watches of the cut connections.
            while watches(&server).await == all && began.elapsed() < Duration::from_secs(1) {
                sleep(Duration::from_millis(1)).await;
            }
        }
        // Until all watches are set again, or the session is lost.
        while watches(&server).await < all && client.session_events().current().epoch == 1 {
            sleep(Duration::from_millis(5)).await;
        }
        let watched = began.elapsed();
        let since = server.mntr().await["packets_received"];
        let requests = if matches!(how, Break::Cut) { since - packets } else { since };
        report(format!(
            "{count} waits on paths of {length} bytes, {how:?}: the server answers after {answers:.2?}, all is \
             watched again after {watched:.2?}, {requests} requests meanwhile; {connections} connections"
        ));
        // A lost session might be noticed only later.
        sleep(SESSION).await;
        assert_eq!(client.session_events().current().epoch, 1, "the session survives");
        assert!(held.iter().all(|guard| guard.is_held()), "what is held is held");
        assert_eq!(watches(&server).await, all);

        let began = Instant::now();
        let mut others = others.into_iter();
        for_all(count, |_| release(others.next().unwrap())).await;
        let mut granted = Vec::new();
        while let Some(waiter) = waiters.join_next().await {
            granted.push(waiter.unwrap().unwrap());
        }
        report(format!("{count} locks change hands in {:.2?}", began.elapsed()));
        assert!(granted.iter().all(|(_, guard)| guard.is_held()));
        assert!(held.iter().all(|guard| guard.is_held()));
        assert_eq!(client.session_events().current().epoch, 1);
        // Until no watches are left and the connections for them are closed.
        while watches(&server).await > 0.0 || server.mntr().await["num_alive_connections"] > 3.0 {
            sleep(Duration::from_millis(10)).await;
        }
        drop((granted, held));
        client.close().await.unwrap();
        holder.close().await.unwrap();
    };
    limit_to(LIMIT, body).await;
}

async fn watches(server: &ZooKeeper) -> f64 {
    server.mntr().await["watch_count"]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waits_on_long_paths_survive_a_restart() {
    wait_for_many(1000, 130, Break::Restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_waits_on_short_paths_survive_a_restart() {
    wait_for_many(2200, 12, Break::Restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_on_two_connections_survive_a_restart() {
    wait_for_many(3500, 40, Break::Restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waits_survive_a_cut_link() {
    wait_for_many(1000, 130, Break::Cut).await;
}

/// One client has more nodes than a single answer lists. An operator deletes some of them. Only the holders of the deleted
/// nodes notice a loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_one_of_thousands_of_nodes_is_noticed() {
    const HELD: usize = 2500;
    const WAITING: usize = 1500;
    const SESSION: Duration = Duration::from_secs(5);
    if !have_zookeeper() {
        return;
    }
    let body = async {
        let server = ZooKeeper::start().await;
        let started = Instant::now();
        let observer = Observer::connect(server.connect_string()).await;
        let client = connect(server.connect_string(), SESSION).await;
        let held = take_all(&client, HELD, |number| format!("/own/{number}")).await;
        let other = connect(server.connect_string(), SESSION).await;
        let crowded = other.mutex("/crowd").unwrap().acquire().await.unwrap();
        let mut waiters = JoinSet::new();
        for count in 1..=WAITING {
            let lock = client.mutex("/crowd").unwrap();
            waiters.spawn(async move { lock.acquire().await });
            while count % AT_A_TIME == 0
                && server.mntr().await["ephemerals_count"] < (HELD + 1 + count) as f64
            {
                sleep(Duration::from_millis(20)).await;
            }
        }
        observer.wait_for_children("/crowd", WAITING + 1).await;
        let queue = observer.children("/crowd").await;
        report(format!("{HELD} held and {WAITING} waiting after {:.2?}", started.elapsed()));
        let own = crowded.node().to_string();
        let deleted = [0, 1, 9, 10, 100, 999, 1000, 1001, 1700, 2499];
        let began = Instant::now();
        for number in deleted {
            let guard: &Guard = &held[number];
            observer.remove(&format!("/own/{number}/{}", guard.node())).await;
        }
        for name in queue.iter().filter(|name| **name != own).step_by(300) {
            observer.remove(&format!("/crowd/{name}")).await;
        }
        for number in deleted {
            assert_eq!(held[number].lost().await.kind(), ErrorKind::NodeDeleted, "{number}");
        }
        report(format!("{} holders of {HELD} learn it in {:.2?}", deleted.len(), began.elapsed()));
        for _ in 0..WAITING.div_ceil(300) {
            let error = waiters.join_next().await.unwrap().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NodeDeleted, "{error}");
        }
        report(format!("{} of {WAITING} waiters learn it in {:.2?}", WAITING.div_ceil(300), began.elapsed()));
        // More than enough time for the client to check all its nodes.
        sleep(3 * SESSION).await;
        for (number, guard) in held.iter().enumerate() {
            assert_eq!(guard.is_held(), !deleted.contains(&number), "{number}");
        }
        assert!(waiters.try_join_next().is_none(), "somebody else gave up");
        assert_eq!(client.session_events().current().epoch, 1);
        client.close().await.unwrap();
        other.close().await.unwrap();
    };
    limit_to(LIMIT, body).await;
}

/// The server accepts no connection for the watches that the session's own one has no room for. The waits go on without.
#[tokio::test]
async fn waits_without_a_watch_get_their_turn() {
    // The paths of the last ones are over what one connection watches, while the others wait.
    const WAITS: usize = 100;
    const LAST: usize = 20;
    limit_to_if(LIMIT, have_zookeeper(), async {
        let server = ZooKeeper::builder().config("maxClientCnxns=2").start().await;
        let holder = connect(server.connect_string(), SESSION).await;
        let client = connect(server.connect_string(), SESSION).await;
        let path = |number: usize| format!("/without/{number:0>900}");
        let mut held = take_all(&holder, WAITS, path).await;
        let wait = |number| {
            let lock = client.mutex(path(number)).unwrap();
            async move { lock.acquire().await.unwrap() }
        };
        let (mut first, mut last) = (JoinSet::new(), JoinSet::new());
        for number in 0..WAITS - LAST {
            first.spawn(wait(number));
        }
        sleep(Duration::from_secs(2)).await;
        for number in WAITS - LAST..WAITS {
            last.spawn(wait(number));
        }
        sleep(Duration::from_secs(2)).await;
        for guard in held.split_off(WAITS - LAST) {
            guard.release().await.unwrap();
        }
        let mut granted = Vec::new();
        let all = async {
            while let Some(guard) = last.join_next().await {
                granted.push(guard.unwrap());
            }
        };
        let done = timeout(SESSION, all).await.is_ok();
        assert!(done, "{} of {LAST} waits got their free lock", granted.len());
        first.abort_all();
    })
    .await;
}
