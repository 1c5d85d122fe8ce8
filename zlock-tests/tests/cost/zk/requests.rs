//! The cost of a lock for a real ZooKeeper server, by the server's own counters.
//!
//! Each test has its own server, so no other requests are counted. Heartbeats are not counted either: the sessions are so long
//! that the first one is due after nine minutes. Counts are exact.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use zlock::{Client, ErrorKind, Release};
use zlock_testkit::zk::{FOREVER, Meter, Observer, connect, cost, mutex, release};
use zlock_testkit::{have_zookeeper, limit_if, report};

const PATH: &str = "/app/lock";
#[tokio::test]
async fn an_uncontended_lock_is_two_requests_and_two_writes() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let mutex = mutex(meter.hosts(), FOREVER, PATH).await;
        // The first one makes the parents.
        release(mutex.acquire().await.unwrap()).await;
        let before = meter.counts().await;
        for _ in 0..100 {
            release(mutex.acquire().await.unwrap()).await;
        }
        let after = meter.counts().await;
        report(format!("100 uncontended: {:?} requests and writes", cost(before, after)));
        // Two of them list, and the second of these also watches the parent.
        assert_eq!(cost(before, after), (200 + 3, 200));
        assert_eq!(after.watches, 1);
        for _ in 0..100 {
            release(mutex.acquire_timeout(Duration::from_secs(5)).await.unwrap()).await;
        }
        assert_eq!(cost(after, meter.counts().await), (200, 200), "with a timeout");
    })
    .await;
}

#[tokio::test]
async fn a_contended_lock_is_at_most_five_requests_and_two_writes() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let mutexes = [mutex(meter.hosts(), FOREVER, PATH).await, mutex(meter.hosts(), FOREVER, PATH).await];
        let mut held = mutexes[0].acquire().await.unwrap();
        let before = meter.counts().await;
        // From one to the other and back: each waits for the one before.
        for round in 1..=100 {
            let next = mutexes[round % 2].clone();
            let waiting = tokio::spawn(async move { next.acquire().await.unwrap() });
            meter.wait_for_watches(1).await;
            release(held).await;
            held = waiting.await.unwrap();
        }
        let after = meter.counts().await;
        let (requests, writes) = cost(before, after);
        report(format!("100 contended: {:?} requests and writes", (requests, writes)));
        assert_eq!(writes, 200);
        assert!(requests <= 500, "{requests}");
        assert_eq!(after.told - before.told, 100);
        assert_eq!(after.watches, 0);
        release(held).await;
    })
    .await;
}

/// With many tasks of one session, each gets the lock from the task with the number right before its own. No task lists or
/// watches.
#[tokio::test]
async fn waiters_of_one_session_cost_a_create_and_a_removal_each() {
    limit_if(have_zookeeper(), async {
        let listings = listings_of_waiters_of_one_session("one thread").await;
        assert_eq!(listings, 0);
    })
    .await;
}

/// The responses to two creates may be handled in a different order. That costs a listing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_one_session_seldom_list_on_several_threads() {
    limit_if(have_zookeeper(), async {
        let listings = listings_of_waiters_of_one_session("two threads").await;
        assert!(listings <= 128, "{listings} listings for 1280 acquisitions");
    })
    .await;
}

/// Returns the number of requests other than creates and removals.
async fn listings_of_waiters_of_one_session(threads: &str) -> u64 {
    const TASKS: u64 = 64;
    const ROUNDS: u64 = 20;
    let mut meter = Meter::start().await;
    let mutex = mutex(meter.hosts(), FOREVER, PATH).await;
    let held = mutex.acquire().await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let mutex = mutex.clone();
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                release(mutex.acquire().await.unwrap()).await;
            }
        });
    }
    // They all came at once, and each has listed: the first one did not know what was right ahead of it.
    let mut before = meter.counts().await;
    loop {
        sleep(Duration::from_millis(5)).await;
        let now = meter.counts().await;
        if now.ephemerals == TASKS + 1 && cost(before, now) == (0, 0) {
            break;
        }
        before = now;
    }
    release(held).await;
    tasks.join_all().await;
    let after = meter.counts().await;
    let (requests, writes) = cost(before, after);
    assert_eq!(writes, 2 * TASKS * ROUNDS - TASKS + 1);
    assert_eq!((after.watches, after.told), (0, 0));
    report(format!(
        "{writes} creates and removals by {TASKS} tasks of one session on {threads}: {} requests more, {:.3} an acquisition",
        requests - writes,
        2.0 * requests as f64 / writes as f64
    ));
    requests - writes
}

#[tokio::test]
async fn a_failed_try_is_one_request_and_no_write() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let holder = mutex(meter.hosts(), FOREVER, PATH).await;
        let other = mutex(meter.hosts(), FOREVER, PATH).await;
        let held = holder.acquire().await.unwrap();
        let before = meter.counts().await;
        for _ in 0..100 {
            assert!(other.try_acquire().await.unwrap().is_none());
        }
        let after = meter.counts().await;
        report(format!("100 failed tries: {:?} requests and writes", cost(before, after)));
        assert_eq!(cost(before, after), (100, 0));
        let no_time = other.acquire_timeout(Duration::ZERO).await.unwrap_err();
        assert_eq!(no_time.kind(), ErrorKind::Busy);
        assert_eq!(cost(after, meter.counts().await), (1, 0), "no time is one try");
        assert_eq!(after.watches, 0);
        release(held).await;
    })
    .await;
}

#[tokio::test]
async fn permits_cost_two_requests_and_nine_when_one_waits() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let [a, b, c] = [
            connect(meter.hosts(), FOREVER).await,
            connect(meter.hosts(), FOREVER).await,
            connect(meter.hosts(), FOREVER).await,
        ];
        let [a, b, c] = [a, b, c].map(|client| client.semaphore(PATH, 2).unwrap());
        release(a.acquire(2).await.unwrap()).await;
        let before = meter.counts().await;
        for _ in 0..100 {
            release(a.acquire(2).await.unwrap()).await;
        }
        let after = meter.counts().await;
        report(format!("100 uncontended permits: {:?} requests and writes", cost(before, after)));
        assert_eq!(cost(before, after), (200 + 3, 200));
        // The one that reports when the parent is removed.
        assert_eq!(after.watches, 1);

        // Always one in the middle: it waits for both, is granted with one behind it, and notifies that one.
        let before = after;
        for _ in 0..20 {
            let both = a.acquire(2).await.unwrap();
            let (middle, last) = (b.clone(), c.clone());
            let middle = tokio::spawn(async move { middle.acquire(1).await.unwrap() });
            meter.wait_for_watches(2).await;
            let last = tokio::spawn(async move { last.acquire(1).await.unwrap() });
            meter.wait_for_watches(3).await;
            release(both).await;
            let (middle, last) = (middle.await.unwrap(), last.await.unwrap());
            // The one in the middle has notified the last by now.
            release(last).await;
            release(middle).await;
        }
        let (requests, writes) = cost(before, meter.counts().await);
        report(format!("20 times three for two permits: {:?} requests and writes", (requests, writes)));
        assert_eq!(writes, 20 * (2 + 3 + 2));
        assert!(requests <= 20 * (3 + 9 + 5), "{requests}");
        assert_eq!(meter.counts().await.watches, 1);
    })
    .await;
}

/// There are many more tasks than permits, and each comes back at once. Every arrival and every grant is a change that
/// the first in line also looks at.
#[tokio::test]
async fn busy_permits_cost_at_most_nine_requests() {
    const TASKS: u64 = 32;
    const ROUNDS: u64 = 10;
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let semaphore = connect(meter.hosts(), FOREVER).await.semaphore(PATH, 8).unwrap();
        release(semaphore.acquire(8).await.unwrap()).await;
        let before = meter.counts().await;
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let semaphore = semaphore.clone();
            tasks.spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = semaphore.acquire(1).await.unwrap();
                    sleep(Duration::from_millis(3)).await;
                    release(guard).await;
                }
            });
        }
        tasks.join_all().await;
        let after = meter.counts().await;
        report(format!(
            "{} permits, many at a time: {:?} requests and writes",
            TASKS * ROUNDS,
            cost(before, after)
        ));
        assert!(cost(before, after).0 <= 9 * TASKS * ROUNDS);
        assert_eq!(after.watches, 0);
    })
    .await;
}

#[tokio::test]
async fn a_downgrade_is_one_request() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let lock = connect(meter.hosts(), FOREVER).await.read_write_lock(PATH).unwrap();
        release(lock.read().acquire().await.unwrap()).await;
        let before = meter.counts().await;
        for _ in 0..100 {
            release(lock.read().acquire().await.unwrap()).await;
            release(lock.write().acquire().await.unwrap().into()).await;
        }
        let after = meter.counts().await;
        assert_eq!(cost(before, after), (400 + 3, 400));
        for _ in 0..100 {
            release(lock.write().acquire().await.unwrap().downgrade().await.unwrap()).await;
        }
        // The first one is alone as before, and needs no listing. The others are behind a number that was a relabel's.
        assert_eq!(cost(after, meter.counts().await), (399, 300), "one more for each downgrade");
    })
    .await;
}

#[tokio::test]
async fn entering_again_and_looking_is_no_request() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let client = connect(meter.hosts(), FOREVER).await;
        let mutex = client.mutex(PATH).unwrap();
        let held = mutex.acquire().await.unwrap();
        let before = meter.counts().await;
        held.scope(async {
            for _ in 0..100 {
                let inner = mutex.acquire().await.unwrap();
                // By another instance on the same path.
                let other = client.mutex(PATH).unwrap();
                let innermost = other.try_acquire().await.unwrap().unwrap();
                assert!(inner.is_held() && innermost.is_held() && mutex.is_acquired_in_this_process());
                assert_eq!(inner.fencing_token(), innermost.fencing_token());
                assert_eq!(innermost.release().await.unwrap(), Release::StillHeld);
                drop(inner);
            }
        })
        .await;
        let again = held.reenter().unwrap();
        assert_eq!(cost(before, meter.counts().await), (0, 0));
        drop(held);
        assert!(again.is_held());
        release(again).await;
        assert_eq!(cost(before, meter.counts().await), (1, 1), "the last one out releases");
    })
    .await;
}

/// N sessions in one queue: each release notifies one of them, in queue order.
#[tokio::test]
async fn a_release_wakes_one_of_many_waiters() {
    const WAITERS: u64 = 10;
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        // Their sessions last to the end: closing one is a request, too.
        let mut mutexes = vec![mutex(meter.hosts(), FOREVER, PATH).await];
        let mut guard = mutexes[0].acquire().await.unwrap();
        let mut waiters = JoinSet::new();
        for n in 1..=WAITERS {
            let mutex = mutex(meter.hosts(), FOREVER, PATH).await;
            mutexes.push(mutex.clone());
            waiters.spawn(async move { (n, mutex.acquire().await.unwrap()) });
            meter.wait_for_watches(n).await;
        }
        let before = meter.counts().await;
        for n in 1..=WAITERS {
            let token = guard.fencing_token();
            release(guard).await;
            let (who, next) = waiters.join_next().await.unwrap().unwrap();
            assert_eq!(who, n, "in the order in which they came");
            assert!(next.fencing_token() > token);
            guard = next;
            let now = meter.counts().await;
            assert_eq!((now.told - before.told, now.told_of - before.told_of), (n, n), "one each");
            assert_eq!(now.watches, WAITERS - n);
        }
        let (requests, writes) = cost(before, meter.counts().await);
        report(format!("{WAITERS} hand-overs to {WAITERS} waiters: {requests} requests, {writes} writes"));
        assert_eq!(writes, WAITERS);
        assert!(requests <= 2 * WAITERS, "a delete and a look at the queue");
        assert_eq!(meter.counts().await.herd, 0, "nobody watches the queue as a whole");
        release(guard).await;
    })
    .await;
}

/// Rule 8 and T60, as far as the server sees them.
#[tokio::test]
async fn watches_are_flat_after_a_thousand_timeouts_and_a_thousand_hand_overs() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let holder = mutex(meter.hosts(), FOREVER, PATH).await;
        let client = connect(meter.hosts(), FOREVER).await;
        let held = holder.acquire().await.unwrap();
        let before = meter.counts().await;

        let waiting = timeouts(&client, 1000).await;
        idle(&client).await;
        let after = meter.counts().await;
        report(format!("1000 timeouts, {waiting} of them in the queue: {} watches left", after.watches));
        assert_eq!((after.watches, after.ephemerals), (0, before.ephemerals));
        assert!(waiting > 100, "only {waiting} had got as far as the queue");
        let observer = Observer::connect(meter.hosts()).await;
        assert_eq!(observer.children(PATH).await.len(), 1);

        release(held).await;
        let before = meter.counts().await;
        let other = client.mutex(PATH).unwrap();
        let mut tasks = JoinSet::new();
        for mutex in [&holder, &other].into_iter().cycle().take(10) {
            let mutex = mutex.clone();
            tasks.spawn(async move {
                for _ in 0..100 {
                    release(mutex.acquire().await.unwrap()).await;
                }
            });
        }
        while tasks.join_next().await.transpose().unwrap().is_some() {}
        idle(&client).await;
        let after = meter.counts().await;
        report(format!("1000 hand-overs: {} watches left", after.watches));
        assert_eq!((after.watches, after.ephemerals), (0, before.ephemerals));
        assert_eq!(after.writes - before.writes, 2000);
        assert!(after.requests - before.requests <= 5000);
        assert!(after.told - before.told <= 1000);
    })
    .await;
}

/// Runs acquisitions that time out. Returns how many of them had joined the queue.
async fn timeouts(client: &Client, count: usize) -> usize {
    let mut tasks = JoinSet::new();
    for n in 0..50 {
        let mutex = client.mutex(PATH).unwrap();
        tasks.spawn(async move {
            let mut waiting = 0;
            for _ in 0..count / 50 {
                let time = Duration::from_millis(200 + n);
                let kind = mutex.acquire_timeout(time).await.unwrap_err().kind();
                assert!(matches!(kind, ErrorKind::Timeout(_) | ErrorKind::Busy), "{kind}");
                waiting += usize::from(kind == ErrorKind::Busy);
            }
            waiting
        });
    }
    let mut waiting = 0;
    while let Some(n) = tasks.join_next().await {
        waiting += n.unwrap();
    }
    waiting
}

/// Waits until no background work is left.
async fn idle(client: &Client) {
    while client.pending_cleanups() > 0 {
        sleep(Duration::from_millis(5)).await;
    }
}
