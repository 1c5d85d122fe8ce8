//! The cost of barriers and of a shared maximum, by the server's own counters.

use zlock_recipes::Client;
use zlock_testkit::{Etcd, Metrics, have_etcd, limit_if};

use super::requests::{backend, cost};
use crate::round;

const ROUNDS: u64 = 20;

/// Returns the requests between two snapshots, without those of the watches, which share a stream.
fn requests(before: &Metrics, after: &Metrics) -> u64 {
    cost(before, after).0.iter().filter(|(method, _)| *method != "Watch").map(|(_, count)| count).sum()
}

#[tokio::test]
async fn a_member_of_a_round_takes_four_requests_at_most() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let mut members = Vec::new();
        for _ in 0..3 {
            let client = Client::new(backend(&server).await);
            let barrier = client.barrier("/app/barrier", 3).unwrap();
            members.push((client, barrier));
        }
        for _ in 0..5 {
            round(&members).await;
        }
        let before = server.metrics().await;
        for _ in 0..ROUNDS {
            round(&members).await;
        }
        let requests = requests(&before, &server.metrics().await);
        assert!(requests <= 3 * 4 * ROUNDS, "{requests} requests in {ROUNDS} rounds");
        assert!(requests >= 3 * 3 * ROUNDS, "{requests} requests are not all");
    })
    .await;
}

#[tokio::test]
async fn permits_of_a_shared_maximum_take_two_requests_more() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let client = Client::new(backend(&server).await);
        let max = client.counter("/app/max").unwrap();
        max.add(2).await.unwrap();
        let shared = client.semaphore_with_shared_max("/app/shared", &max).unwrap();
        let fixed = client.semaphore("/app/fixed", 2).unwrap();
        let mut costs = Vec::new();
        for semaphore in [&fixed, &shared] {
            semaphore.acquire(1).await.unwrap().release().await.unwrap();
            let before = server.metrics().await;
            for _ in 0..50 {
                semaphore.acquire(1).await.unwrap().release().await.unwrap();
            }
            costs.push(requests(&before, &server.metrics().await));
        }
        // The relabel and a read.
        assert_eq!(costs[1] - costs[0], 50 * 2, "{costs:?}");
    })
    .await;
}
