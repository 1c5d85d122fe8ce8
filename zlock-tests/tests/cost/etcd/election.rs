//! The cost of an election, by the server's own counters.

use std::time::Duration;

use tokio::time::sleep;
use zlock_recipes::{Client, Election};
use zlock_testkit::{Etcd, have_etcd, limit_if, report};

use super::requests::{backend, cost};

async fn election(server: &Etcd, value: &str) -> Election {
    let client = Client::new(backend(server).await);
    client.election("/app/leader").unwrap().with_value(value).unwrap()
}

async fn until_watches(server: &Etcd, watches: u64) {
    while server.metrics().await.watches() != watches {
        sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_campaign_is_one_message_and_a_takeover_is_one() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let (one, two) = (election(&server, "one").await, election(&server, "two").await);
        one.campaign().await.unwrap().resign().await.unwrap();
        two.campaign().await.unwrap().resign().await.unwrap();
        let before = server.metrics().await;
        let led = one.campaign().await.unwrap();
        let campaign = cost(&before, &server.metrics().await);
        assert_eq!(campaign, ([("Txn".to_owned(), 1)].into(), 1));
        let waits = tokio::spawn(async move { two.campaign().await.unwrap() });
        until_watches(&server, 1).await;
        // Long enough for a read after the watch.
        sleep(Duration::from_millis(200)).await;
        let before = server.metrics().await;
        led.resign().await.unwrap();
        let led = waits.await.unwrap();
        let takeover = cost(&before, &server.metrics().await);
        report(format!("campaign {campaign:?}, resignation and takeover {takeover:?}"));
        let count = |method: &str| takeover.0.get(method).copied().unwrap_or(0);
        // The delete, and the read of the next one.
        assert_eq!((count("Txn") + count("DeleteRange"), count("Range")), (1, 1), "{takeover:?}");
        led.resign().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_observer_is_one_read_for_each_change_and_nothing_for_a_new_candidate() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let (one, two) = (election(&server, "one").await, election(&server, "two").await);
        let led = one.campaign().await.unwrap();
        let observer = election(&server, "observer").await;
        let mut views = Vec::new();
        for _ in 0..200 {
            let mut leaders = observer.observe();
            leaders.changed().await.unwrap();
            views.push(leaders);
        }
        let watches = server.metrics().await.watches();
        let before = server.metrics().await;
        let waits = tokio::spawn(async move { two.campaign().await.unwrap() });
        until_watches(&server, watches + 1).await;
        sleep(Duration::from_millis(200)).await;
        let joined = cost(&before, &server.metrics().await);
        let reads = joined.0.get("Range").copied().unwrap_or(0);
        // Those of the candidate itself.
        assert!(reads <= 1, "200 observers, one new candidate: {joined:?}");
        waits.abort();
        let _ = waits.await;
        views.truncate(1);
        let mut leaders = views.pop().unwrap();
        while one.candidates().await.unwrap().len() > 1 {}
        let before = server.metrics().await;
        for n in 0..50 {
            led.proclaim(format!("{n}")).await.unwrap();
            leaders.changed().await.unwrap();
        }
        let changes = cost(&before, &server.metrics().await);
        report(format!("50 changes: {changes:?}"));
        let count = |method: &str| changes.0.get(method).copied().unwrap_or(0);
        assert_eq!((count("Txn"), count("Range"), changes.1), (50, 50, 50), "{changes:?}");
        led.resign().await.unwrap();
    })
    .await;
}
