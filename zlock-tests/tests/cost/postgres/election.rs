//! The cost of an election, by the server's own counters.

use std::time::Duration;

use tokio::time::sleep;
use zlock_recipes::{Client, Election};
use zlock_testkit::postgres::{backend, observer};
use zlock_testkit::{PostgresServer, have_postgres, limit_if, report, until};

use super::requests::{calls, counts, quiet, sent, start};

async fn election(server: &PostgresServer, value: &str) -> Election {
    let client = Client::new(quiet(server).await);
    client.election("/app/leader").unwrap().with_value(value).unwrap()
}

async fn until_candidates(server: &PostgresServer, candidates: i64) {
    let observer = observer(server).await;
    let count = "SELECT count(*) FROM zlock.node";
    until("the candidates are there", async || {
        observer.query_one(count, &[]).await.unwrap().get::<_, i64>(0) == candidates
    })
    .await;
}

#[tokio::test]
async fn a_campaign_is_one_statement_and_a_takeover_is_three() {
    limit_if(have_postgres(), async {
        let server = start().await;
        let (one, two) = (election(&server, "one").await, election(&server, "two").await);
        one.campaign().await.unwrap().resign().await.unwrap();
        two.campaign().await.unwrap().resign().await.unwrap();
        let before = sent(&server).await;
        let led = one.campaign().await.unwrap();
        assert_eq!(calls(&before, &sent(&server).await), counts(&[("v1_create", 1)]), "a campaign");
        let waits = tokio::spawn(async move { two.campaign().await.unwrap() });
        until_candidates(&server, 2).await;
        // Long enough for a read after the watch.
        sleep(Duration::from_millis(200)).await;
        let before = sent(&server).await;
        led.resign().await.unwrap();
        let led = waits.await.unwrap();
        let takeover = calls(&before, &sent(&server).await);
        // The notification is a statement of its own.
        let expected = ["notify", "v1_children", "v1_delete"].map(|name| (name, 1));
        assert_eq!(takeover, counts(&expected), "a resignation and a takeover");
        led.resign().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_observer_is_two_reads_for_each_change_and_nothing_for_a_new_candidate() {
    const CHANGES: u64 = 5;
    limit_if(have_postgres(), async {
        let server = start().await;
        let (one, two) = (election(&server, "one").await, election(&server, "two").await);
        let led = one.campaign().await.unwrap();
        // Its polls are a second apart.
        let observer = Client::new(backend(&server).await).election("/app/leader").unwrap();
        let mut views = Vec::new();
        for _ in 0..200 {
            let mut leaders = observer.observe();
            leaders.changed().await.unwrap();
            views.push(leaders);
        }
        let before = sent(&server).await;
        let waits = tokio::spawn(async move { two.campaign().await.unwrap() });
        until_candidates(&server, 2).await;
        // Long enough for two polls.
        sleep(Duration::from_millis(2500)).await;
        let mut joined = calls(&before, &sent(&server).await);
        report(format!("200 observers, one new candidate: {joined:?}"));
        // The candidate looks at its predecessor.
        assert!(joined.remove("v1_node").unwrap_or(0) <= 1);
        assert_eq!(joined, counts(&[("v1_create", 1)]));
        waits.abort();
        let _ = waits.await;
        views.truncate(1);
        let mut leaders = views.pop().unwrap();
        until_candidates(&server, 1).await;
        let before = sent(&server).await;
        for n in 0..CHANGES {
            led.proclaim(format!("{n}")).await.unwrap();
            leaders.changed().await.unwrap();
        }
        let changes = calls(&before, &sent(&server).await);
        report(format!("{CHANGES} changes: {changes:?}"));
        let expected = ["v1_children", "v1_node", "v1_replace_data"].map(|name| (name, CHANGES));
        assert_eq!(changes, counts(&expected));
        led.resign().await.unwrap();
    })
    .await;
}
