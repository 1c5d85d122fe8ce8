//! The cost of barriers and of a shared maximum, by the server's own counters.

use std::time::Duration;

use zlock_recipes::Client;
use zlock_testkit::{have_postgres, limit_if, report, until};

use super::requests::{calls, counts, quiet, sent, start};
use crate::round;

const MEMBERS: u64 = 3;

/// Members see the opening with their next poll.
#[tokio::test]
async fn a_member_of_a_round_takes_four_or_five_statements() {
    const ROUNDS: u64 = 5;
    limit_if(have_postgres(), async {
        let server = start().await;
        let mut members = Vec::new();
        for _ in 0..MEMBERS {
            let client = Client::new(quiet(&server).await);
            let barrier = client.barrier("/app/barrier", 3).unwrap();
            members.push((client, barrier));
        }
        round(&members).await;
        let before = sent(&server).await;
        for _ in 0..ROUNDS {
            round(&members).await;
        }
        let mut cost = calls(&before, &sent(&server).await);
        report(format!("{ROUNDS} rounds of {MEMBERS} members: {cost:?}"));
        // Two members may both find that they are enough. One of them is refused, and learns from that of the round.
        let (reads, writes) =
            (cost.remove("v1_value").unwrap_or(0), cost.remove("v1_write_value").unwrap_or(0));
        assert_eq!(reads + writes, 2 * MEMBERS * ROUNDS, "{reads} reads, {writes} writes");
        assert!((ROUNDS..=MEMBERS * ROUNDS).contains(&writes), "{writes} openings");
        // A member that leaves before the one behind it wakes that.
        assert!(cost.remove("notify").unwrap_or(0) <= (MEMBERS - 1) * ROUNDS);
        assert_eq!(cost, counts(&["v1_create", "v1_delete"].map(|name| (name, MEMBERS * ROUNDS))));

        // One that waits in vain arrives, and then withdraws by a relabel and a write, and gives up its node.
        let before = sent(&server).await;
        let (client, barrier) = &members[0];
        barrier.wait_timeout(Duration::from_millis(100)).await.unwrap_err();
        until("its node is removed", async || client.pending_cleanups() == 0).await;
        let expected = ["v1_create", "v1_delete", "v1_relabel", "v1_value", "v1_write_value"];
        assert_eq!(calls(&before, &sent(&server).await), counts(&expected.map(|name| (name, 1))), "in vain");
    })
    .await;
}

#[tokio::test]
async fn permits_of_a_shared_maximum_take_two_statements_more() {
    const PERMITS: u64 = 50;
    limit_if(have_postgres(), async {
        let server = start().await;
        let client = Client::new(quiet(&server).await);
        let max = client.counter("/app/max").unwrap();
        max.add(2).await.unwrap();
        let shared = client.semaphore_with_shared_max("/app/shared", &max).unwrap();
        let fixed = client.semaphore("/app/fixed", 2).unwrap();
        let mut costs = Vec::new();
        for semaphore in [&fixed, &shared] {
            semaphore.acquire(1).await.unwrap().release().await.unwrap();
            let before = sent(&server).await;
            for _ in 0..PERMITS {
                semaphore.acquire(1).await.unwrap().release().await.unwrap();
            }
            costs.push(calls(&before, &sent(&server).await));
        }
        let fixed = ["v1_create", "v1_delete"].map(|name| (name, PERMITS));
        let shared = ["v1_create", "v1_delete", "v1_relabel", "v1_value"].map(|name| (name, PERMITS));
        assert_eq!(costs, [counts(&fixed), counts(&shared)]);
    })
    .await;
}
