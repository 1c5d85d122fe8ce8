//! The cost of an election, by the server's own counters.

use std::time::Duration;

use tokio::time::sleep;
use zlock_recipes::{Client, Election};
use zlock_testkit::postgres::{backend, observer};
use zlock_testkit::{PostgresServer, have_postgres, limit_if, report, until};

use super::requests::{calls, calls_and_wakes, counts, quiet, sent, start};

async fn election(server: &PostgresServer, value: &str) -> Election {
    let client = Client::new(quiet(server).await);
    client.election("/app/leader").unwrap().with_value(value).unwrap()
}

async fn until_candidates(server: &PostgresServer, candidates: i64) {
    let observer = observer(server).await;
    let count = "SELECT count(*) FROM zlock.entry WHERE kind = 0";
    until("the candidates are there", async || {
        observer.query_one(count, &[]).await.unwrap().get::<_, i64>(0) == candidates
    })
    .await;
}

#[tokio::test]
async fn a_campaign_is_one_statement_and_a_takeover_is_two() {
    limit_if(have_postgres(), async {
        let server = start().await;
        let (one, two) = (election(&server, "one").await, election(&server, "two").await);
        one.campaign().await.unwrap().resign().await.unwrap();
        two.campaign().await.unwrap().resign().await.unwrap();
        let before = sent(&server).await;
        let led = one.campaign().await.unwrap();
        assert_eq!(calls(&before, &sent(&server).await), counts(&[("v2_append", 1)]), "a campaign");
        let waits = tokio::spawn(async move { two.campaign().await.unwrap() });
        until_candidates(&server, 2).await;
        // Long enough for a read after the watch.
        sleep(Duration::from_millis(200)).await;
        let before = sent(&server).await;
        led.resign().await.unwrap();
        let led = waits.await.unwrap();
        let takeover = calls(&before, &sent(&server).await);
        // The delete notifies.
        let expected = ["v2_delete", "v2_read"].map(|name| (name, 1));
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
        // The candidate reads its predecessor, and who else is ahead of that.
        assert!(joined.remove("v2_read").unwrap_or(0) <= 2);
        assert_eq!(joined, counts(&[("v2_append", 1)]));
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
        let changes = calls_and_wakes(&server, &before, CHANGES).await;
        report(format!("{CHANGES} changes: {changes:?}"));
        let expected = [("v2_read", 2 * CHANGES), ("v2_execute", CHANGES), ("v2_wake", CHANGES)];
        assert_eq!(changes, counts(&expected));
        led.resign().await.unwrap();
    })
    .await;
}
