//! A client that is the only user of a lock acquires it without a listing, whatever else happens under the path between two
//! uses. On a real ZooKeeper.
//!
//! Sessions are so long that no heartbeats are sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use zlock::{Client, ErrorKind, InterProcessMutex, Release};
use zlock_testkit::zk::{FOREVER, Meter, Observer, connect, cost, mutex, release};
use zlock_testkit::{Cut, FaultProxy, ZooKeeper, have_zookeeper, limit_if, limit_to_if, report};
use zookeeper_client::{Acls, CreateMode};

/// A time limit that suffices for a free lock.
const SHORT: Duration = Duration::from_millis(500);

/// Creates a node in a queue, like Curator's, that stays when its creator is gone.
async fn make_place(observer: &Observer, path: &str) -> String {
    let options = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
    let prefix = format!("{path}/_c_11111111-1111-1111-1111-111111111111-lock-");
    let (_, number) = observer.0.create(&prefix, b"", &options).await.unwrap();
    format!("{prefix}{number}")
}

/// Uses a lock until the client no longer lists it. The next number is 4.
async fn use_alone(meter: &mut Meter, mutex: &InterProcessMutex) {
    for requests in [3, 3, 4, 2] {
        let before = meter.counts().await;
        release(mutex.acquire().await.unwrap()).await;
        let (sent, _) = cost(before, meter.counts().await);
        // The first use makes the parents, too.
        assert!(sent == requests || requests == 3 && sent > 3, "{sent} requests");
    }
}

/// Returns the cost of one use of a lock.
async fn requests_of_a_use(meter: &mut Meter, mutex: &InterProcessMutex) -> u64 {
    let before = meter.counts().await;
    release(mutex.acquire().await.unwrap()).await;
    cost(before, meter.counts().await).0
}

/// The new parent has counted as far as the old one, so the number is the next one: only the pin shows the difference.
#[tokio::test]
async fn a_parent_that_was_made_again_is_listed() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let mutex = mutex(meter.hosts(), FOREVER, "/app/again").await;
        let observer = Observer::connect(meter.hosts()).await;
        for is_seen in [false, true] {
            use_alone(&mut meter, &mutex).await;
            observer.remove("/app/again").await;
            observer.make("/app/again").await;
            let mut last = String::new();
            for _ in 0..4 {
                if !last.is_empty() {
                    observer.remove(&last).await;
                }
                last = make_place(&observer, "/app/again").await;
            }
            assert!(last.ends_with("-lock-0000000003"));
            if is_seen {
                // Gives the client time to notice.
                sleep(Duration::from_millis(50)).await;
            }
            let error = mutex.acquire_timeout(SHORT).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
            observer.remove(&last).await;
            release(mutex.acquire().await.unwrap()).await;
            observer.wait_for_children("/app/again", 0).await;
            observer.remove("/app/again").await;
        }
    })
    .await;
}

/// Any other node has used a number, even if it is gone.
#[tokio::test]
async fn whatever_was_created_meanwhile_is_looked_at() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let client = connect(meter.hosts(), FOREVER).await;
        let observer = Observer::connect(meter.hosts()).await;
        for (path, name) in
            [("/app/place", None), ("/app/nested", Some("nested")), ("/app/x", Some("lock-0000000000"))]
        {
            let mutex = client.mutex(path).unwrap();
            use_alone(&mut meter, &mutex).await;
            let created = match name {
                None => make_place(&observer, path).await,
                Some(name) => {
                    observer.make(&format!("{path}/{name}")).await;
                    format!("{path}/{name}")
                }
            };
            match mutex.acquire_timeout(SHORT).await {
                // Nothing that is in the queue.
                Ok(guard) if name == Some("nested") => release(guard).await,
                other => assert_eq!(other.unwrap_err().kind(), ErrorKind::Busy, "{path}"),
            }
            observer.remove(&created).await;
            // A place that is gone costs a listing. From then on the client is alone again.
            let requests = [
                requests_of_a_use(&mut meter, &mutex).await,
                requests_of_a_use(&mut meter, &mutex).await,
                requests_of_a_use(&mut meter, &mutex).await,
            ];
            report(format!("{path}: {requests:?} requests"));
            assert_eq!(requests[1..], [2, 2]);
        }
    })
    .await;
}

/// Another client comes and goes, and both clients queue up.
#[tokio::test]
async fn another_client_is_waited_for() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let ours = mutex(meter.hosts(), FOREVER, "/app/both").await;
        let theirs = mutex(meter.hosts(), FOREVER, "/app/both").await;
        use_alone(&mut meter, &ours).await;
        let held = theirs.acquire().await.unwrap();
        assert_eq!(ours.acquire_timeout(SHORT).await.unwrap_err().kind(), ErrorKind::Busy);
        assert!(held.is_held());
        release(held).await;
        for _ in 0..3 {
            release(ours.acquire().await.unwrap()).await;
            release(theirs.acquire().await.unwrap()).await;
        }
        let held = ours.acquire().await.unwrap();
        assert_eq!(theirs.acquire_timeout(SHORT).await.unwrap_err().kind(), ErrorKind::Busy);
        release(held).await;
    })
    .await;
}

/// A node that an operator deleted was not removed by its release, so it proves nothing.
#[tokio::test]
async fn after_an_operators_delete_the_queue_is_listed() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let mutex = mutex(meter.hosts(), FOREVER, "/app/operator").await;
        let observer = Observer::connect(meter.hosts()).await;
        use_alone(&mut meter, &mutex).await;
        let held = mutex.acquire().await.unwrap();
        observer.remove(&format!("/app/operator/{}", held.node())).await;
        assert_eq!(held.release().await.unwrap(), Release::AlreadyLost);
        assert_eq!(requests_of_a_use(&mut meter, &mutex).await, 3);
    })
    .await;
}

/// On a new connection the queue is listed once more.
#[tokio::test]
async fn an_interruption_is_followed_by_a_listing() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let proxy = FaultProxy::start_zookeeper(meter.server.addr()).await;
        let client = connect(proxy.connect_string(), FOREVER).await;
        let mutex = client.mutex("/app/cut").unwrap();
        use_alone(&mut meter, &mutex).await;
        let held = mutex.acquire().await.unwrap();
        proxy.cut(Cut::Reset);
        // The connection is back when this is answered.
        while mutex.participants().await.is_err() {}
        release(held).await;
        let before = meter.counts().await;
        release(mutex.acquire().await.unwrap()).await;
        let (requests, _) = cost(before, meter.counts().await);
        assert!(requests >= 3, "{requests}");
        // A pin on the new connection.
        assert_eq!(requests_of_a_use(&mut meter, &mutex).await, 2);
    })
    .await;
}

/// Two clients that rarely meet, on links that are cut. Some of their tasks time out, the path is removed whenever it is empty,
/// and read locks on it are relabelled, which uses numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_seldom_meet_have_one_holder() {
    const PATH: &str = "/app/seldom";
    const TIME: Duration = Duration::from_secs(8);
    limit_to_if(Duration::from_secs(180), have_zookeeper(), async {
        let kind = ZooKeeper::builder().container_check_interval(Duration::from_millis(5));
        let server = kind.start().await;
        let (inside, visits) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
        let (mut tasks, mut proxies, mut clients) = (JoinSet::new(), Vec::new(), Vec::new());
        for _ in 0..2 {
            let proxy = FaultProxy::start_zookeeper(server.addr()).await;
            clients.push(connect(proxy.connect_string(), Duration::from_secs(20)).await);
            proxies.push(proxy);
        }
        for task in 0..4 {
            let lock = clients[task as usize % 2].read_write_lock(PATH).unwrap();
            let (inside, visits) = (inside.clone(), visits.clone());
            tasks.spawn(async move {
                let began = Instant::now();
                let mut round: u32 = 0;
                while began.elapsed() < TIME {
                    round += 1;
                    let guard = if (task + round).is_multiple_of(5) {
                        let patience = Duration::from_micros(u64::from(task * 37 + round * 53) % 3000);
                        match timeout(patience, lock.write().acquire()).await {
                            Ok(guard) => guard.unwrap(),
                            Err(_) => continue,
                        }
                    } else {
                        lock.write().acquire().await.unwrap()
                    };
                    assert_eq!(
                        inside.fetch_add(1, Ordering::SeqCst),
                        0,
                        "two holders, the second is {guard:?}"
                    );
                    tokio::task::yield_now().await;
                    visits.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    if round.is_multiple_of(7) {
                        guard.downgrade().await.unwrap().release().await.unwrap();
                    } else {
                        guard.release().await.unwrap();
                    }
                    // One after the other has the lock for itself for most of the time.
                    let turn = began.elapsed().as_millis() / 250 % 4;
                    let pause = if turn == task.into() { 0 } else { 40 + round % 30 };
                    sleep(Duration::from_millis(pause.into())).await;
                }
            });
        }
        let cutter = async {
            loop {
                for proxy in &proxies {
                    sleep(Duration::from_millis(900)).await;
                    proxy.cut(Cut::Reset);
                }
            }
        };
        tokio::select! {
            () = async { while tasks.join_next().await.transpose().unwrap().is_some() {} } => {}
            () = cutter => {}
        }
        report(format!("{} visits", visits.load(Ordering::SeqCst)));
    })
    .await;
}

/// Memory use is limited. A client that uses many locks in turn pins none. A client that uses each lock several times pins it
/// and later releases the pin.
#[tokio::test]
async fn many_locks_cost_little_more_than_their_listings() {
    const LOCKS: u64 = 120;
    const USES: u64 = 5;
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let client: Client = connect(meter.hosts(), FOREVER).await;
        let mutexes: Vec<_> =
            (0..LOCKS).map(|lock| client.mutex(format!("/app/many/{lock}")).unwrap()).collect();
        for mutex in &mutexes {
            release(mutex.acquire().await.unwrap()).await;
        }
        let before = meter.counts().await;
        for _ in 0..USES {
            for mutex in &mutexes {
                release(mutex.acquire().await.unwrap()).await;
            }
        }
        let after = meter.counts().await;
        report(format!("{LOCKS} locks in turn: {:?} requests and writes", cost(before, after)));
        assert_eq!(cost(before, after), (3 * LOCKS * USES, 2 * LOCKS * USES));
        assert_eq!(after.watches, 0);
        let before = after;
        for mutex in &mutexes {
            for _ in 0..USES {
                release(mutex.acquire().await.unwrap()).await;
            }
        }
        let after = meter.counts().await;
        let (requests, writes) = cost(before, after);
        report(format!("{USES} times each: {requests} requests, {} watches", after.watches));
        assert_eq!(writes, 2 * LOCKS * USES);
        assert!(requests < 3 * LOCKS * USES, "{requests}");
        assert!(after.watches <= 100, "{}", after.watches);
    })
    .await;
}
