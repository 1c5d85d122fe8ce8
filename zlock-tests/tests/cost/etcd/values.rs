//! The cost of values, by the server's own counters.

use std::collections::BTreeMap;

use etcd_client::GetOptions;
use futures_util::future::join_all;
use zlock_recipes::{Client, Counter};
use zlock_testkit::etcd::observer;
use zlock_testkit::{Etcd, have_etcd, limit_if};

use super::requests::{backend, cost};

async fn counter(server: &Etcd) -> Counter {
    Client::new(backend(server).await).counter("/app/counter").unwrap()
}

fn messages(count: u64) -> BTreeMap<String, u64> {
    [("Txn".to_owned(), count)].into()
}

#[tokio::test]
async fn an_addition_is_one_message_and_one_more_for_each_conflict() {
    limit_if(have_etcd(), async {
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

#[tokio::test]
async fn a_burst_of_first_writes_leaves_few_receipts() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let client = Client::new(backend(&server).await);
        let write = async |n: u32| {
            client.shared_value(format!("/burst/{n}")).unwrap().compare_and_set(None, b"x").await.unwrap()
        };
        join_all((0..2000).map(write)).await;
        let mut observer = observer(&server.connect_string()).await;
        let options = GetOptions::new().with_prefix().with_keys_only();
        let keys = observer.get("//fence/", Some(options)).await.unwrap();
        let keys = keys.kvs().iter().map(|kv| kv.key_str().unwrap());
        let left = keys.filter(|key| key.contains(".r")).count();
        assert!((1..=64).contains(&left), "{left} receipts");
    })
    .await;
}
