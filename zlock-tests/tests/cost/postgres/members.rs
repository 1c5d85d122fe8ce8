//! The cost of members and of slots, by the server's own counters.

use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::sleep;
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

/// While nothing changes, one of many observers of a large group counts its members for all.
#[tokio::test]
async fn few_looks_at_a_large_group_read_its_rows() {
    const OBSERVERS: usize = 20;
    limit_if(have_postgres(), async {
        let server = start().await;
        let mut clients = Vec::new();
        for _ in 0..OBSERVERS {
            clients.push(Client::new(quiet(&server).await));
        }
        let (mut watches, mut members) = (Vec::new(), Vec::new());
        for client in &clients {
            watches.push(client.members("/app/workers").unwrap().watch());
        }
        let rows = async |members: usize, watches: &mut Vec<_>| {
            see(watches, members).await;
            let read = "SELECT idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'entry'";
            let look = async || {
                (sent(&server).await["v2_changed"], server.sql(read).await.trim().parse::<u64>().unwrap())
            };
            // Until the looks are a second apart again, and what was read is counted.
            sleep(Duration::from_secs(4)).await;
            let (looks, rows) = look().await;
            sleep(Duration::from_secs(4)).await;
            let (more_looks, more_rows) = look().await;
            assert!(more_looks >= looks + OBSERVERS as u64, "{looks} looks, then {more_looks}");
            (more_rows - rows) / (more_looks - looks)
        };
        let group = clients[0].members("/app/workers").unwrap();
        let mut join = async |from: usize, to: usize| {
            for number in from..to {
                members.push(group.join(format!("w{number}"), "data").await.unwrap());
            }
        };
        join(0, 10).await;
        let small = rows(10, &mut watches).await;
        join(10, 600).await;
        let large = rows(600, &mut watches).await;
        report(format!("rows for each look: {small} with 10 members, {large} with 600"));
        // It is counted at most five times in a second.
        assert!(large < 600 / 2, "{small} rows for a look, then {large}");
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
