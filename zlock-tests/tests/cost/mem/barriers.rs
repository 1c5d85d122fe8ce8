//! The cost of barriers, by the server's own counters.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use zlock::mem::{MemServer, Operation};
use zlock::{Client, ErrorKind};
use zlock_testkit::{limit, report};

const MEMBERS: u32 = 300;
const ROUND_TRIP: Duration = Duration::from_millis(4);

/// One member of many is missing, and all others withdraw at the same time. Each write of the rounds refuses those that are on
/// their way, but one refusal of a write that expected what the last one showed says as much as a success.
#[tokio::test(start_paused = true)]
async fn members_that_withdraw_together_do_not_wait_for_each_other() {
    limit(async {
        let server = MemServer::new();
        let mut members = JoinSet::new();
        for _ in 1..MEMBERS {
            let backend = server.connect();
            backend.link().delay(ROUND_TRIP / 2, ROUND_TRIP / 2);
            let barrier = Client::new(backend).barrier("/app/barrier", MEMBERS).unwrap();
            members.spawn(async move {
                let (began, time) = (Instant::now(), Duration::from_secs(8));
                let error = barrier.wait_timeout(time).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                began.elapsed() - time
            });
        }
        let mut longest = Duration::ZERO;
        while let Some(overrun) = members.join_next().await {
            longest = longest.max(overrun.unwrap());
        }
        let [writes, relabels, lists, reads] =
            [Operation::WriteValue, Operation::Relabel, Operation::List, Operation::Value]
                .map(|kind| server.requests(kind));
        report(format!(
            "overrun {longest:?}: {writes} writes, {relabels} relabels, {lists} listings, {reads} reads"
        ));
        // In paused time: a relabel and two writes.
        assert!(longest <= 3 * ROUND_TRIP, "{longest:?}");
        assert!(writes <= 2 * u64::from(MEMBERS), "{writes} writes");
        assert!(lists <= 2 * u64::from(MEMBERS), "{lists} listings");
    })
    .await;
}

/// The store falls silent while a member waits. The member does not wait longer than for one operation, and says what it does not know.
#[tokio::test(start_paused = true)]
async fn member_that_cannot_withdraw_says_so() {
    let backend = MemServer::new().connect();
    let link = backend.link();
    let (time, timeout) = (Duration::from_secs(1), Duration::from_secs(2));
    let client = Client::builder(backend).with_response_timeout(timeout).unwrap().build();
    let barrier = client.barrier("/app/barrier", 2).unwrap();
    let began = Instant::now();
    let waits = tokio::spawn(async move { barrier.wait_timeout(time).await });
    tokio::time::sleep(time / 2).await;
    link.mute();
    let error = waits.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.is_ambiguous()), (ErrorKind::Unavailable, true), "{error}");
    assert!(error.to_string().contains("may have counted"), "{error}");
    assert_eq!(began.elapsed().as_secs(), (time + timeout).as_secs());
    link.heal();
    while client.pending_cleanups() > 0 {
        tokio::time::sleep(time).await;
    }
}
