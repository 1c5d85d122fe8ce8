//! The cost of a job that runs once per tick, by the server's own counters.

use zlock_recipes::Client;
use zlock_recipes::job::RecurringJob;
use zlock_testkit::{Etcd, Metrics, have_etcd, limit_if, report};

use super::requests::{backend, cost};
use crate::call;

async fn machine(server: &Etcd) -> RecurringJob {
    Client::new(backend(server).await).recurring_job("/app/job").unwrap()
}

/// Returns the number of requests between two snapshots.
fn requests(before: &Metrics, after: &Metrics) -> u64 {
    cost(before, after).0.values().sum()
}

#[tokio::test]
async fn a_machine_that_finds_the_tick_done_takes_one_request_and_the_one_that_runs_it_four() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let machines = [machine(&server).await, machine(&server).await];
        for tick in 0..4 {
            assert!(call(&machines[tick as usize % 2], tick).await);
        }
        let mut winners = Vec::new();
        for tick in 4..24 {
            // The same machine, and then another one at each tick.
            let first = if tick < 14 { 0 } else { tick as usize % 2 };
            let before = server.metrics().await;
            assert!(call(&machines[first], tick).await);
            let between = server.metrics().await;
            assert!(!call(&machines[1 - first], tick).await);
            assert!(!call(&machines[first], tick).await);
            assert_eq!(requests(&between, &server.metrics().await), 2, "two that find it done");
            winners.push(requests(&before, &between));
        }
        report(format!("requests of those that run it: {winners:?}"));
        assert!(winners.iter().all(|requests| *requests <= 4), "{winners:?}");
    })
    .await;
}
