//! The cost of members and of slots, by the server's own counters.

use tokio::task::yield_now;
use zlock_recipes::Client;
use zlock_testkit::{have_postgres, limit_if, report};

use super::requests::{calls, counts, quiet, sent, since, start};
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
        let after = sent(&server).await;
        // Each poll of an observer lists the members, too.
        let polls = since(&before, &after).get("v1_poll").copied().unwrap_or(0);
        let mut cost = calls(&before, &after);
        report(format!("{JOINS} joins and leaves that {OBSERVERS} observers see: {cost:?}, {polls} polls"));
        let reads = cost.remove("v1_members").unwrap_or(0) - polls;
        assert_eq!(cost, counts(&[("v1_join", JOINS), ("v1_leave", JOINS)]));
        // A poll of each observer may be half done at a look.
        assert!(reads.abs_diff(2 * JOINS * OBSERVERS) <= OBSERVERS, "{reads} reads");
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
        let expected = ["v1_children", "v1_create", "v1_delete", "v1_value", "v1_write_value"];
        assert_eq!(calls(&before, &sent(&server).await), counts(&expected.map(|name| (name, ROUNDS))));
    })
    .await;
}
