//! An outage that the session survives costs the server the same, however often clients have retried meanwhile. Also tests the
//! background tasks, which are busy after an outage.

use std::time::Duration;

use tokio::time::sleep;
use zlock::job::RunState;
use zlock::mem::{MemLink, MemOptions, MemServer};
use zlock::{Client, ErrorKind, Guard};
use zlock_suite::outage::{Outage, outage, paths};
use zlock_suite::{Call, Case, Process, Side, run};
use zlock_testkit::mem::MemStore;

/// The maximum number of requests for each node and each grant. A node in a queue takes five: create, list, watch, list again,
/// delete. A node whose acquisition is given up takes one more, to remove its watch.
const REQUESTS: usize = 6;

async fn requests_after(how: Outage, break_link: impl FnOnce(&MemLink)) {
    let server = MemServer::new();
    // Silence is noticed after two thirds of a session.
    let options = MemOptions::default().with_session_timeout(Duration::from_secs(7));
    let options = options.with_margin(Duration::from_millis(100));
    let client = Client::new(server.connect_with(options));
    let link = server.link_of(client.session_events().current().id).unwrap();
    link.delay(Duration::from_millis(1), Duration::from_millis(1));
    let requests = async || server.request_counts().values().sum();
    let counted = outage(&client, how, async || break_link(&link), async || link.heal(), requests).await;
    for path in paths() {
        assert!(server.names(&path).is_empty());
    }
    counted.check(REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn a_link_that_is_cut() {
    requests_after(Outage::Cut, MemLink::suspend).await;
}

#[tokio::test(start_paused = true)]
async fn a_link_that_falls_silent() {
    requests_after(Outage::Mute, MemLink::cut).await;
}

#[tokio::test(start_paused = true)]
async fn a_link_on_which_no_answers_come() {
    requests_after(Outage::Mute, MemLink::mute).await;
}

const GUARDS: usize = 100;

/// A job has ended while no server answers. Its end is recorded once one does, since the lock is held all the time.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_job_outlasts_an_outage() {
    let server = MemServer::new();
    let options = MemOptions::default().with_session_timeout(Duration::from_secs(90));
    let client = Client::new(server.connect_with(options));
    let link = server.link_of(client.session_events().current().id).unwrap();
    let job = client.recurring_job("/app/job").unwrap();
    let run = job.begin("2026-11-24T21:00:00Z".parse().unwrap()).await.unwrap().unwrap();
    link.cut();
    let heal = async {
        sleep(Duration::from_secs(40)).await;
        link.heal();
    };
    let (ended, ()) = tokio::join!(run.done(), heal);
    ended.unwrap();
    assert_eq!(job.last().await.unwrap().unwrap().state, RunState::Done);
    assert!(server.names(job.path()).is_empty(), "released");
}

async fn guards(case: &Case<'_>, process: &Process) -> Vec<Guard> {
    let mut guards = Vec::new();
    for number in 0..GUARDS {
        let path = case.path(&number.to_string());
        guards.push(process.client.mutex(path).unwrap().acquire().await.unwrap());
    }
    guards
}

#[tokio::test(start_paused = true)]
async fn the_background_asks_for_few_things_at_once() {
    let store = MemStore::default();
    let server = store.server.clone();
    run(Some(store), true, "few", async |case: &Case<'_>| {
        let a = case.process().await;
        let guards = guards(case, &a).await;
        let link = server.link_of(a.session().id).unwrap();
        link.delay(Duration::from_millis(5), Duration::ZERO);
        drop(guards);
        sleep(Duration::from_millis(1)).await;
        assert_eq!((a.client.pending_cleanups(), a.faults.under_way()), (GUARDS, 64));
        link.delay(Duration::ZERO, Duration::ZERO);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_clean_up_that_is_refused_holds_up_no_other() {
    run(Some(MemStore::default()), true, "refused", async |case: &Case<'_>| {
        let a = case.process().await;
        let mut guards = guards(case, &a).await;
        let last = guards.pop();
        a.faults.fail(Call::Delete, Side::Before, GUARDS - 1, ErrorKind::Unavailable);
        drop(guards);
        drop(last);
        // The failed ones are retried after 50 ms.
        sleep(Duration::from_millis(10)).await;
        assert_eq!(a.client.pending_cleanups(), GUARDS - 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn clean_ups_without_an_answer_hold_up_others_for_a_second() {
    run(Some(MemStore::default()), true, "silent", async |case: &Case<'_>| {
        let a = case.process().await;
        let mut guards = guards(case, &a).await;
        let others = guards.split_off(80);
        let gates: Vec<_> = (0..80).map(|_| a.faults.hold(Call::Delete, Side::Before)).collect();
        drop(guards);
        drop(others);
        sleep(Duration::from_millis(2500)).await;
        assert_eq!(a.client.pending_cleanups(), 80);
        drop(gates);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn creates_whose_clean_up_is_refused_hold_up_no_other() {
    run(Some(MemStore::default()), true, "forbidden", async |case: &Case<'_>| {
        let a = case.process().await;
        let mutex = |name: &str| a.client.mutex(case.path(name)).unwrap();
        a.faults.fail(Call::Create, Side::After, 80, ErrorKind::NotAuthorized);
        a.faults.fail(Call::Delete, Side::Before, 400, ErrorKind::NotAuthorized);
        for _ in 0..80 {
            let error = mutex("forbidden").acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotAuthorized);
        }
        sleep(Duration::from_millis(1)).await;
        assert_eq!(a.client.pending_cleanups(), 80);
        drop(mutex("other").acquire_timeout(Duration::from_millis(100)).await.unwrap());
    })
    .await;
}
