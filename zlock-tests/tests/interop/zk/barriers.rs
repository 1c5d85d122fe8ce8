//! Curator's barrier and shared count beside ours, and what its double barrier costs.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use zlock::CounterFormat;
use zlock_testkit::zk::{FOREVER, Meter, connect, cost};
use zlock_testkit::{ZooKeeper, have, have_zookeeper, limit_if, report};

use super::peer::{Kind, Peer};

const PATH: &str = "/peers/barriers";
const SESSION: Duration = Duration::from_secs(20);
const ROUNDS: usize = 20;
const MEMBERS: usize = 3;

fn have_both() -> bool {
    have_zookeeper() && have(Kind::Curator.missing().as_deref())
}

#[tokio::test]
async fn curators_shared_count_is_a_maximum_and_its_barrier_a_latch() {
    limit_if(have_both(), async {
        let server = ZooKeeper::shared().await;
        let mut peer = Peer::start(Kind::Curator, server, PATH, SESSION).await;
        let client = connect(server.connect_string(), SESSION).await;

        let max = client.counter(format!("{PATH}-max")).unwrap().with_format(CounterFormat::Int);
        let workers = client.semaphore_with_shared_max(format!("{PATH}-workers"), &max).unwrap();
        let waiter = workers.clone();
        let waiting = tokio::spawn(async move { waiter.acquire(2).await.unwrap() });
        peer.ask("maximum 2", "set").await;
        let both = waiting.await.unwrap();
        peer.ask("maximum 1", "set").await;
        both.release().await.unwrap();
        assert!(workers.try_acquire(2).await.unwrap().is_none());
        workers.try_acquire(1).await.unwrap().unwrap().release().await.unwrap();

        let latch = client.latch(format!("{PATH}-barrier")).unwrap();
        latch.wait().await.unwrap();
        peer.ask("barrier set", "done").await;
        let mut waiting = tokio::spawn(async move { latch.wait().await });
        assert!(timeout(Duration::from_millis(300), &mut waiting).await.is_err(), "went on at a set barrier");
        peer.ask("barrier remove", "done").await;
        waiting.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_double_barrier_takes_no_more_requests_than_curators() {
    limit_if(have_both(), async {
        let mut meter = Meter::start().await;
        let mut peer = Peer::start(Kind::Curator, &meter.server, PATH, FOREVER).await;
        peer.ask(&format!("rounds 3 {MEMBERS}"), "done").await;
        let before = meter.counts().await;
        peer.ask(&format!("rounds {ROUNDS} {MEMBERS}"), "done").await;
        let theirs = cost(before, meter.counts().await).0;

        let client = connect(meter.hosts(), FOREVER).await;
        let barrier = client.double_barrier(format!("{PATH}-ours"), MEMBERS as u32).unwrap();
        let round = async || {
            let members =
                (0..MEMBERS).map(|_| async { barrier.enter().await.unwrap().leave().await.unwrap() });
            join_all(members).await;
        };
        for _ in 0..3 {
            round().await;
        }
        let before = meter.counts().await;
        for _ in 0..ROUNDS {
            round().await;
        }
        let ours = cost(before, meter.counts().await).0;
        report(format_args!(
            "REQUESTS of {ROUNDS} rounds of {MEMBERS} members: Curator {theirs}, zlock {ours}"
        ));
        assert!(ours <= theirs, "{ours} requests, Curator {theirs}");
    })
    .await;
}
