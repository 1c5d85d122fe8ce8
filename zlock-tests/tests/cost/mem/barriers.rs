//! The cost of barriers, by the server's own counters.

use std::time::Duration;

use tokio::task::JoinSet;
use zlock::mem::{MemServer, Operation};
use zlock::{Client, ErrorKind};
use zlock_testkit::{limit, report};

const MEMBERS: u32 = 200;

/// One member of many is missing, and all others withdraw at the same time. Each write of the rounds refuses those that are on
/// their way, so without pauses there would be a write for each pair.
#[tokio::test(start_paused = true)]
async fn members_that_withdraw_together_do_not_multiply() {
    limit(async {
        let server = MemServer::new();
        let mut members = JoinSet::new();
        for _ in 1..MEMBERS {
            let backend = server.connect();
            backend.link().delay(Duration::from_millis(2), Duration::from_millis(2));
            let barrier = Client::new(backend).barrier("/app/barrier", MEMBERS).unwrap();
            members.spawn(async move { barrier.wait_timeout(Duration::from_secs(5)).await });
        }
        while let Some(waited) = members.join_next().await {
            assert_eq!(waited.unwrap().unwrap_err().kind(), ErrorKind::Busy);
        }
        let [writes, lists, reads] =
            [Operation::WriteValue, Operation::List, Operation::Value].map(|kind| server.requests(kind));
        report(format!("{writes} writes, {lists} listings, {reads} reads"));
        assert!(writes <= 8 * u64::from(MEMBERS), "{writes} writes");
        assert!(lists <= 2 * u64::from(MEMBERS), "{lists} listings");
    })
    .await;
}
