//! The cost of members and of slots, by the server's own counters.

use tokio::task::yield_now;
use zlock_recipes::Client;
use zlock_testkit::{have_postgres, limit_if, report};

use super::requests::{calls, counts, quiet, sent, start};
use crate::see;

const OBSERVERS: u64 = 3;

#[tokio::test]
async fn a_join_is_one_statement_and_each_observer_takes_one_read() {
    const JOINS: u64 = 2;
    limit_if(have_postgres(), async {
        let server = start().await;
        let mut clients = Vec::new();
        for _ in 0..OBSERVERS + 2 {
            clients.push(Client::new(quiet(&server).await));
        }
        let group = |n: usize| clients[n].members("/app/workers").unwrap();
        let _first = group(0).join("w0", "first").await.unwrap();
        let mut watches: Vec<_> = (2..clients.len()).map(|n| group(n).watch()).collect();
        see(&mut watches, 1).await;
        let before = sent(&server).await;
        for _ in 0..JOINS {
            let me = group(1).join("w1", "10.0.0.1:80").await.unwrap();
            see(&mut watches, 2).await;
            me.leave().await.unwrap();
            see(&mut watches, 1).await;
        }
        let cost = calls(&before, &sent(&server).await);
        report(format!("{JOINS} joins and leaves that {OBSERVERS} observers see: {cost:?}"));
        // A read for each change: polls only compare.
        let expected = [("v2_execute", 2 * JOINS), ("v2_read", 2 * JOINS * OBSERVERS)];
        assert_eq!(cost, counts(&expected));
    })
    .await;
}

/// Without other clients.
#[tokio::test]
async fn a_slot_is_five_statements() {
    const ROUNDS: u64 = 50;
    limit_if(have_postgres(), async {
        let server = start().await;
        let client = Client::new(quiet(&server).await);
        let slots = client.slots("/app/slots", 8).unwrap();
        let cycle = async || {
            slots.acquire().await.unwrap().release().await.unwrap();
            while client.pending_cleanups() > 0 {
                yield_now().await;
            }
        };
        cycle().await;
        let before = sent(&server).await;
        for _ in 0..ROUNDS {
            cycle().await;
        }
        // The number of the slot is read from its queue and its value.
        let expected =
            [("v2_append", ROUNDS), ("v2_delete", ROUNDS), ("v2_execute", ROUNDS), ("v2_read", 2 * ROUNDS)];
        assert_eq!(calls(&before, &sent(&server).await), counts(&expected));
    })
    .await;
}
