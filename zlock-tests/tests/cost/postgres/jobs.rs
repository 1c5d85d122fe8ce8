//! The cost of a job that runs once per tick, by the server's own counters.

use zlock_recipes::Client;
use zlock_recipes::job::RecurringJob;
use zlock_testkit::{PostgresServer, have_postgres, limit_if};

use super::requests::{calls, counts, quiet, sent, start};
use crate::call;

async fn machine(server: &PostgresServer) -> RecurringJob {
    Client::new(quiet(server).await).recurring_job("/app/job").unwrap()
}

#[tokio::test]
async fn a_machine_that_finds_the_tick_done_takes_one_statement_and_the_one_that_runs_it_four() {
    limit_if(have_postgres(), async {
        let server = start().await;
        let machines = [machine(&server).await, machine(&server).await];
        for tick in 0..20 {
            // The same machine, and then another one at each tick.
            let first = if tick < 10 { 0 } else { tick as usize % 2 };
            let before = sent(&server).await;
            assert!(call(&machines[first], tick).await);
            let between = sent(&server).await;
            assert!(!call(&machines[1 - first], tick).await);
            assert!(!call(&machines[first], tick).await);
            let after = sent(&server).await;
            assert_eq!(calls(&between, &after), counts(&[("v1_value", 2)]), "two that find it done");
            // The claim, and the end with the release.
            let winner = counts(&[("v1_create", 1), ("v1_value", 1), ("v1_write_value", 2)]);
            assert_eq!(calls(&before, &between), winner, "the one that runs it");
        }
    })
    .await;
}
