//! The cost of slots, by the server's own counters.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::task::JoinSet;
use zlock::Client;
use zlock::mem::{MemServer, Operation};
use zlock_testkit::{limit, report};

const SLOTS: u32 = 200;

/// All write one table. A client whose write is refused finds its number in the table that refused it, at the second time at the latest.
#[tokio::test(start_paused = true)]
async fn a_crowd_takes_at_most_two_writes_for_each_slot() {
    for clients in [1, 10, SLOTS] {
        limit(async {
            let server = MemServer::new();
            let first = Client::new(server.connect()).slots("/app/slots", SLOTS).unwrap();
            first.acquire().await.unwrap().release().await.unwrap();
            server.reset_requests();
            let mut takers = JoinSet::new();
            for client in 0..clients {
                let backend = server.connect();
                let delay = Duration::from_millis(2 + u64::from(client % 7));
                backend.link().delay(delay, delay);
                let slots = Client::new(backend).slots("/app/slots", SLOTS).unwrap();
                for _ in 0..SLOTS / clients {
                    let slots = slots.clone();
                    takers.spawn(async move { slots.acquire_timeout(Duration::from_secs(10)).await.unwrap() });
                }
            }
            let held = takers.join_all().await;
            let numbers: BTreeSet<_> = held.iter().map(|slot| slot.number()).collect();
            assert_eq!(numbers, (0..SLOTS).collect());
            let [creates, reads, lists, writes] =
                [Operation::Create, Operation::Value, Operation::List, Operation::WriteValue]
                    .map(|kind| server.requests(kind) as f64 / f64::from(SLOTS));
            report(format!(
                "{clients} clients, for each slot: {creates} creates, {reads} reads, {lists} listings, {writes} writes"
            ));
            // The create of a permit lists the queue, too.
            assert!(creates <= 1.0 && reads <= 1.0 && lists <= 3.0 && writes <= 2.0);
        })
        .await;
    }
}
