//! The cost of values, by the server's own counters.

use futures_util::future::join_all;
use zlock_recipes::{Client, Counter};
use zlock_testkit::postgres::observer;
use zlock_testkit::{PostgresServer, have_postgres, limit_if};

use super::requests::{calls, counts, quiet, sent, start};

async fn counter(server: &PostgresServer) -> Counter {
    Client::new(quiet(server).await).counter("/app/counter").unwrap()
}

#[tokio::test]
async fn an_addition_is_one_statement_and_one_more_for_each_conflict() {
    limit_if(have_postgres(), async {
        let server = start().await;
        let (one, two) = (counter(&server).await, counter(&server).await);
        one.add(1).await.unwrap();
        let before = sent(&server).await;
        for _ in 0..100 {
            one.add(1).await.unwrap();
        }
        let after = sent(&server).await;
        assert_eq!(calls(&before, &after), counts(&[("v2_execute", 100)]), "uncontended");
        two.get().await.unwrap();
        let before = sent(&server).await;
        assert_eq!(calls(&after, &before), counts(&[("v2_read", 1)]), "a look");
        for _ in 0..50 {
            one.add(1).await.unwrap();
            two.add(1).await.unwrap();
        }
        // But for the first, each finds a write of the other, which the refused one returns.
        let after = sent(&server).await;
        assert_eq!(calls(&before, &after), counts(&[("v2_execute", 199)]), "contended");
        assert_eq!(one.get().await.unwrap(), 201);
    })
    .await;
}

#[tokio::test]
async fn a_burst_of_first_writes_leaves_few_receipts() {
    limit_if(have_postgres(), async {
        let server = start().await;
        let client = Client::new(quiet(&server).await);
        let write = async |n: u32| {
            client.shared_value(format!("/burst/{n}")).unwrap().compare_and_set(None, b"x").await.unwrap()
        };
        join_all((0..500).map(write)).await;
        let rows =
            observer(&server).await.query_one("SELECT count(*) FROM zlock.receipt", &[]).await.unwrap();
        let left: i64 = rows.get(0);
        assert!((1..=64).contains(&left), "{left} receipts");
    })
    .await;
}
