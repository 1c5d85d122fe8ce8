//! The cost of a job that runs once per tick, by the server's own counters.

use zlock::job::RecurringJob;
use zlock_testkit::zk::{FOREVER, Meter, connect, cost};
use zlock_testkit::{have_zookeeper, limit_if, report};

use crate::call;

async fn machine(meter: &Meter) -> RecurringJob {
    connect(meter.hosts(), FOREVER).await.recurring_job("/app/job").unwrap()
}

#[tokio::test]
async fn a_machine_that_finds_the_tick_done_takes_one_request_and_the_one_that_runs_it_five() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let machines = [machine(&meter).await, machine(&meter).await];
        // The first claims of the sessions, which create the record, the parents and the receipts.
        for tick in 0..4 {
            assert!(call(&machines[tick as usize % 2], tick).await);
        }
        let mut winners = Vec::new();
        for tick in 4..24 {
            // The same machine, and then another one at each tick.
            let first = if tick < 14 { 0 } else { tick as usize % 2 };
            let before = meter.counts().await;
            assert!(call(&machines[first], tick).await);
            let between = meter.counts().await;
            assert!(!call(&machines[1 - first], tick).await);
            assert!(!call(&machines[first], tick).await);
            assert_eq!(cost(between, meter.counts().await), (2, 0), "two that find it done");
            winners.push(cost(before, between));
        }
        report(format!("requests and writes of those that run it: {winners:?}"));
        // Create, claim, and the end with the release.
        assert!(winners.iter().all(|(_, writes)| *writes == 3), "{winners:?}");
        // A client that finds itself alone leaves a watch once, which then saves it a request each time.
        let more = winners.iter().filter(|(requests, _)| *requests > 5).count();
        let requests: u64 = winners.iter().map(|(requests, _)| requests).sum();
        assert!(more <= 1 && requests <= 5 * 20, "{winners:?}");
    })
    .await;
}

/// Returns the requests of this many jobs of a client at each of six ticks.
async fn requests(jobs: u32) -> Vec<u64> {
    let mut meter = Meter::start().await;
    let client = connect(meter.hosts(), FOREVER).await;
    let jobs: Vec<_> = (0..jobs).map(|n| client.recurring_job(format!("/app/job{n}")).unwrap()).collect();
    let mut requests = Vec::new();
    for tick in 0..6 {
        let before = meter.counts().await;
        for job in &jobs {
            assert!(call(job, tick).await);
        }
        requests.push(cost(before, meter.counts().await).0);
    }
    requests
}

/// Each value has a receipt of its own, which is kept.
#[tokio::test]
async fn each_of_a_hundred_jobs_of_a_client_costs_as_much_as_one() {
    limit_if(have_zookeeper(), async {
        let (one, hundred) = tokio::join!(requests(1), requests(100));
        report(format!("requests for each tick: {one:?}, of 100 jobs {hundred:?}"));
        // The first runs create the parents, the records and the receipts.
        let each: Vec<_> = one[1..].iter().map(|requests| 100 * requests).collect();
        assert_eq!(hundred[1..], each);
        assert!(hundred[1..].iter().sum::<u64>() <= 5 * 500, "{hundred:?}");
    })
    .await;
}
