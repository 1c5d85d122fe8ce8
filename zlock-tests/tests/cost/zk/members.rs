//! The cost of members and of slots, by the server's own counters.

use tokio::task::yield_now;
use zlock_testkit::zk::{FOREVER, Meter, connect, cost};
use zlock_testkit::{have_zookeeper, limit_if, report};

use crate::see;

const PATH: &str = "/app/workers";
const OBSERVERS: u64 = 3;

#[tokio::test]
async fn a_join_is_one_request_and_each_observer_takes_two() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let mut clients = Vec::new();
        for _ in 0..OBSERVERS + 2 {
            clients.push(connect(meter.hosts(), FOREVER).await);
        }
        let group = |n: usize| clients[n].members(PATH).unwrap();
        // The first one makes the parents.
        let _first = group(0).join("w0", "first").await.unwrap();
        let mut watches: Vec<_> = (2..clients.len()).map(|n| group(n).watch()).collect();
        see(&mut watches, 1).await;
        let before = meter.counts().await;
        let me = group(1).join("w1", "10.0.0.1:80").await.unwrap();
        let joined = meter.counts().await;
        see(&mut watches, 2).await;
        let seen = meter.counts().await;
        let total = cost(before, seen);
        report(format!("requests and writes: a join that {OBSERVERS} observers see {total:?}"));
        assert_eq!(total, (1 + 2 * OBSERVERS, 1));
        assert_eq!(joined.writes - before.writes, 1);
        // A look at the owner, and the delete. Each observer lists the group.
        me.leave().await.unwrap();
        see(&mut watches, 1).await;
        let left = cost(seen, meter.counts().await);
        report(format!("a leave that {OBSERVERS} observers see {left:?}"));
        assert_eq!(left, (2 + OBSERVERS, 1));
    })
    .await;
}

/// Without other clients. A permit of Curator's semaphore takes seven, see `interop/zk/members.rs`, and gives no number.
#[tokio::test]
async fn a_slot_is_six_requests_and_three_writes() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let client = connect(meter.hosts(), FOREVER).await;
        let slots = client.slots("/app/slots", 8).unwrap();
        let cycle = async || {
            slots.acquire().await.unwrap().release().await.unwrap();
            while client.pending_cleanups() > 0 {
                yield_now().await;
            }
        };
        for _ in 0..5 {
            cycle().await;
        }
        let before = meter.counts().await;
        for _ in 0..50 {
            cycle().await;
        }
        let (requests, writes) = cost(before, meter.counts().await);
        report(format!("50 slots: {requests} requests, {writes} writes"));
        assert_eq!((requests, writes), (50 * 6, 50 * 3));
    })
    .await;
}
