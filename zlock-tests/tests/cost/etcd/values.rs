//! The cost of counters, by the server's own counters.

use std::collections::BTreeMap;

use zlock_recipes::{Client, Counter};
use zlock_testkit::{Etcd, have_etcd, limit};

use super::requests::{backend, cost};

async fn counter(server: &Etcd) -> Counter {
    Client::new(backend(server).await).counter("/app/counter").unwrap()
}

fn messages(count: u64) -> BTreeMap<String, u64> {
    [("Txn".to_owned(), count)].into()
}

#[tokio::test]
async fn an_addition_is_one_message_and_one_more_for_each_conflict() {
    if !have_etcd() {
        return;
    }
    limit(async {
        let server = Etcd::start().await;
        let (one, two) = (counter(&server).await, counter(&server).await);
        one.add(1).await.unwrap();
        let before = server.metrics().await;
        for _ in 0..100 {
            one.add(1).await.unwrap();
        }
        let after = server.metrics().await;
        assert_eq!(cost(&before, &after).0, messages(100), "uncontended");
        two.get().await.unwrap();
        let before = server.metrics().await;
        for _ in 0..50 {
            one.add(1).await.unwrap();
            two.add(1).await.unwrap();
        }
        let after = server.metrics().await;
        // But for the first, each finds a write of the other, which the refused transaction returns.
        assert_eq!(cost(&before, &after).0, messages(199), "contended");
        assert_eq!(one.get().await.unwrap(), 201);
    })
    .await;
}
