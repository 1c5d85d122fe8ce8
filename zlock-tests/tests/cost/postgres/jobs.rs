//! The cost of a job that runs once per tick, by the server's own counters.

use zlock_recipes::Client;
use zlock_recipes::job::RecurringJob;
use zlock_testkit::{PostgresServer, have_postgres, limit_if};

use super::requests::{calls, calls_and_wakes, counts, quiet, sent, start};
use crate::call;

async fn machine(server: &PostgresServer) -> RecurringJob {
    Client::new(quiet(server).await).recurring_job("/app/job").unwrap()
}

#[tokio::test]
async fn a_machine_that_finds_the_tick_done_takes_one_statement_and_the_one_that_runs_it_five() {
    limit_if(have_postgres(), async {
        let server = start().await;
        let machines = [machine(&server).await, machine(&server).await];
        for tick in 0..20 {
            // The same machine, and then another one at each tick.
            let first = if tick < 10 { 0 } else { tick as usize % 2 };
            let before = sent(&server).await;
            assert!(call(&machines[first], tick).await);
            // The claim, and the end with the release and a notification of that.
            let winner = calls_and_wakes(&server, &before, 1).await;
            let expected = [("v2_append", 1), ("v2_read", 1), ("v2_execute", 2), ("v2_wake", 1)];
            assert_eq!(winner, counts(&expected), "the one that runs it");
            let before = sent(&server).await;
            assert!(!call(&machines[1 - first], tick).await);
            assert!(!call(&machines[first], tick).await);
            let losers = calls(&before, &sent(&server).await);
            assert_eq!(losers, counts(&[("v2_read", 2)]), "two that find it done");
        }
    })
    .await;
}
