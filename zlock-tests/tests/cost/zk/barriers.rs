//! The cost of barriers and of a shared maximum, by the server's own counters.

use zlock_testkit::zk::{FOREVER, Meter, connect, cost};
use zlock_testkit::{have_zookeeper, limit_if};

use crate::round;

const ROUNDS: u64 = 20;

/// Curator's double barrier takes three requests to enter and at least three to leave, and one more to open.
#[tokio::test]
async fn a_member_of_a_round_takes_seven_requests_at_most() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let mut members = Vec::new();
        for _ in 0..3 {
            let client = connect(meter.hosts(), FOREVER).await;
            let barrier = client.barrier("/app/barrier", 3).unwrap();
            members.push((client, barrier));
        }
        for _ in 0..5 {
            round(&members).await;
        }
        let before = meter.counts().await;
        for _ in 0..ROUNDS {
            round(&members).await;
        }
        let (requests, writes) = cost(before, meter.counts().await);
        // Six each, but two members may both find that they are enough, and one of them is refused.
        assert!(requests <= 3 * 7 * ROUNDS, "{requests} requests in {ROUNDS} rounds");
        // A create and a removal each, and an opening, for which each makes an attempt at most. Refused ones have numbers, too.
        assert!(writes <= 3 * 3 * ROUNDS + 3, "{writes} writes in {ROUNDS} rounds");
        assert!(requests >= 3 * 5 * ROUNDS, "{requests} requests are not all");
    })
    .await;
}

#[tokio::test]
async fn permits_of_a_shared_maximum_take_three_requests_more() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let client = connect(meter.hosts(), FOREVER).await;
        let max = client.counter("/app/max").unwrap();
        max.add(2).await.unwrap();
        let shared = client.semaphore_with_shared_max("/app/shared", &max).unwrap();
        let fixed = client.semaphore("/app/fixed", 2).unwrap();
        let mut costs = Vec::new();
        for semaphore in [&fixed, &shared] {
            for _ in 0..5 {
                semaphore.acquire(1).await.unwrap().release().await.unwrap();
            }
            let before = meter.counts().await;
            for _ in 0..50 {
                semaphore.acquire(1).await.unwrap().release().await.unwrap();
            }
            costs.push(cost(before, meter.counts().await));
        }
        // The relabel, a read, and the listing that the only user of a lock saves, but not after a relabel.
        let (requests, writes) = (costs[1].0 - costs[0].0, costs[1].1 - costs[0].1);
        assert_eq!((requests, writes), (50 * 3, 50), "{costs:?}");
    })
    .await;
}
