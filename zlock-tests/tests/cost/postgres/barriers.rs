//! The cost of barriers and of a shared maximum, by the server's own counters.

use std::time::Duration;

use zlock_recipes::Client;
use zlock_testkit::{have_postgres, limit_if, report, until};

use super::requests::{calls, calls_and_wakes, counts, quiet, sent, start};
use crate::round;

const MEMBERS: u64 = 3;

/// Members see the opening with their next poll.
#[tokio::test]
async fn a_member_of_a_round_takes_four_to_six_statements() {
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
        let mut sometimes = |name| cost.remove(name).unwrap_or(0);
        // Two members may both find that they are enough. One of them is refused, and learns from that of the round.
        let (reads, writes) = (sometimes("v2_read"), sometimes("v2_execute"));
        let openings = (2 * MEMBERS * ROUNDS).checked_sub(reads).expect("no other reads");
        assert!((ROUNDS..=MEMBERS * ROUNDS).contains(&openings), "{openings} openings");
        // If they write at the same time, that one is busy first, and repeats it over a second connection, which then stays.
        let repeated = writes.checked_sub(openings).expect("all of them");
        assert!(repeated <= (MEMBERS - 1) * ROUNDS, "{repeated} openings are repeated");
        assert!(sometimes("v2_raise") <= repeated.min(MEMBERS));
        // The delete of a member that leaves while another one arrives does not see that one, and is followed by a notification.
        assert!(sometimes("v2_wake") <= (MEMBERS - 1) * ROUNDS);
        assert_eq!(cost, counts(&["v2_append", "v2_delete"].map(|name| (name, MEMBERS * ROUNDS))));

        // One that waits in vain arrives, and then withdraws by a relabel and a write, and gives up its node.
        let before = sent(&server).await;
        let (client, barrier) = &members[0];
        barrier.wait_timeout(Duration::from_millis(100)).await.unwrap_err();
        until("its node is removed", async || client.pending_cleanups() == 0).await;
        // The notification is that of the relabel.
        let expected = ["v2_append", "v2_delete", "v2_read", "v2_execute", "v2_wake"].map(|name| (name, 1));
        let mut expected = counts(&expected);
        expected.insert("v2_execute".to_owned(), 2);
        assert_eq!(calls_and_wakes(&server, &before, 1).await, expected, "in vain");
    })
    .await;
}

#[tokio::test]
async fn permits_of_a_shared_maximum_take_three_statements_more() {
    const PERMITS: u64 = 50;
    limit_if(have_postgres(), async {
        let server = start().await;
        let client = Client::new(quiet(&server).await);
        let max = client.counter("/app/max").unwrap();
        max.add(2).await.unwrap();
        let shared = client.semaphore_with_shared_max("/app/shared", &max).unwrap();
        let fixed = client.semaphore("/app/fixed", 2).unwrap();
        let mut costs = Vec::new();
        for (semaphore, wakes) in [(&fixed, 0), (&shared, PERMITS)] {
            semaphore.acquire(1).await.unwrap().release().await.unwrap();
            let before = sent(&server).await;
            for _ in 0..PERMITS {
                semaphore.acquire(1).await.unwrap().release().await.unwrap();
            }
            costs.push(calls_and_wakes(&server, &before, wakes).await);
        }
        let fixed = ["v2_append", "v2_delete"].map(|name| (name, PERMITS));
        // A relabel and its notification, and a read of the maximum.
        let shared =
            ["v2_append", "v2_delete", "v2_execute", "v2_wake", "v2_read"].map(|name| (name, PERMITS));
        assert_eq!(costs, [counts(&fixed), counts(&shared)]);
    })
    .await;
}
