//! The cost of members, by the server's own counters.

use zlock_recipes::Client;
use zlock_testkit::{Etcd, have_etcd, limit_if, report};

use super::requests::{backend, cost};
use crate::see;

const OBSERVERS: usize = 3;

#[tokio::test]
async fn a_join_is_one_message_and_each_observer_takes_one_read() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let mut clients = Vec::new();
        for _ in 0..OBSERVERS + 2 {
            clients.push(Client::new(backend(&server).await));
        }
        let group = |n: usize| clients[n].members("/app/workers").unwrap();
        let _first = group(0).join("w0", "first").await.unwrap();
        let mut watches: Vec<_> = (2..clients.len()).map(|n| group(n).watch()).collect();
        see(&mut watches, 1).await;
        let before = server.metrics().await;
        let me = group(1).join("w1", "10.0.0.1:80").await.unwrap();
        see(&mut watches, 2).await;
        let after = server.metrics().await;
        let joined = cost(&before, &after);
        report(format!("a join that {OBSERVERS} observers see: {joined:?}"));
        let count = |counts: &std::collections::BTreeMap<String, u64>, method: &str| {
            counts.get(method).copied().unwrap_or(0)
        };
        assert_eq!((count(&joined.0, "Txn"), count(&joined.0, "Range"), joined.1), (1, OBSERVERS as u64, 1));
        me.leave().await.unwrap();
        see(&mut watches, 1).await;
        let left = cost(&after, &server.metrics().await);
        report(format!("a leave that {OBSERVERS} observers see: {left:?}"));
        assert_eq!((count(&left.0, "Txn"), count(&left.0, "Range"), left.1), (1, OBSERVERS as u64, 1));
    })
    .await;
}
