//! The cost of values, by the server's own counters.

use futures_util::future::join_all;
use zlock_testkit::zk::{FOREVER, Meter, connect, cost};
use zlock_testkit::{have_zookeeper, limit_if};

const PATH: &str = "/app/counter";

#[tokio::test]
async fn an_addition_is_one_request_and_two_more_for_each_conflict() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let one = connect(meter.hosts(), FOREVER).await.counter(PATH).unwrap();
        let two = connect(meter.hosts(), FOREVER).await.counter(PATH).unwrap();
        for counter in [&one, &two] {
            counter.add(1).await.unwrap();
        }
        one.get().await.unwrap();
        let before = meter.counts().await;
        for _ in 0..100 {
            one.add(1).await.unwrap();
        }
        let after = meter.counts().await;
        assert_eq!(cost(before, after), (100, 100), "uncontended");
        two.get().await.unwrap();
        let before = meter.counts().await;
        for _ in 0..50 {
            one.add(1).await.unwrap();
            two.add(1).await.unwrap();
        }
        // But for the first, each finds a write of the other: a refused transaction, and a read.
        assert_eq!(cost(before, meter.counts().await).0, 100 + 2 * 99, "contended");
        assert_eq!(one.get().await.unwrap(), 202);
    })
    .await;
}

#[tokio::test]
async fn a_burst_of_first_writes_leaves_few_receipts() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let client = connect(meter.hosts(), FOREVER).await;
        let write = async |n: u32| {
            client.shared_value(format!("/burst/{n}")).unwrap().compare_and_set(None, b"x").await.unwrap()
        };
        join_all((0..2000).map(write)).await;
        let left = meter.counts().await.ephemerals;
        assert!((1..=64).contains(&left), "{left} ephemeral nodes");
    })
    .await;
}
