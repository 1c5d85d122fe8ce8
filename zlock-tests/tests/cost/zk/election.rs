//! The cost of an election, by the server's own counters.

use zlock::Election;
use zlock_testkit::zk::{FOREVER, Meter, connect, cost};
use zlock_testkit::{have_zookeeper, limit_if, report};

const PATH: &str = "/app/leader";

async fn election(meter: &Meter, value: &str) -> Election {
    connect(meter.hosts(), FOREVER).await.election(PATH).unwrap().with_value(value).unwrap()
}

#[tokio::test]
async fn a_campaign_is_two_requests_and_a_takeover_is_one() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let (one, two) = (election(&meter, "one").await, election(&meter, "two").await);
        // The first one makes the parents. After another client, nothing is known of the queue.
        one.campaign().await.unwrap().resign().await.unwrap();
        two.campaign().await.unwrap().resign().await.unwrap();
        let before = meter.counts().await;
        let led = one.campaign().await.unwrap();
        let after = meter.counts().await;
        let campaign = cost(before, after);
        let waits = tokio::spawn(async move { two.campaign().await.unwrap() });
        meter.wait_for_watches(after.watches + 1).await;
        let before = meter.counts().await;
        led.resign().await.unwrap();
        let led = waits.await.unwrap();
        let takeover = cost(before, meter.counts().await);
        report(format!("requests and writes: campaign {campaign:?}, resignation and takeover {takeover:?}"));
        // A create and a listing, and perhaps a watch on the parent that saves later listings.
        assert!(campaign == (2, 1) || campaign == (3, 1), "{campaign:?}");
        // The delete, and the listing of the next one.
        assert_eq!(takeover, (2, 1));
        led.resign().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_observer_is_two_requests_for_each_change_and_none_for_a_new_candidate() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let (one, two) = (election(&meter, "one").await, election(&meter, "two").await);
        let led = one.campaign().await.unwrap();
        let joins = async |meter: &mut Meter, two: Election| {
            let before = meter.counts().await;
            let waits = tokio::spawn(async move { two.campaign().await.unwrap() });
            meter.wait_for_watches(before.watches + 1).await;
            let joined = cost(before, meter.counts().await);
            waits.abort();
            let _ = waits.await;
            joined
        };
        let alone = joins(&mut meter, two.clone()).await;
        while two.candidates().await.unwrap().len() > 1 {}
        let observer = election(&meter, "observer").await;
        let mut views = Vec::new();
        for _ in 0..200 {
            let mut leaders = observer.observe();
            leaders.changed().await.unwrap();
            views.push(leaders);
        }
        let observed = joins(&mut meter, two.clone()).await;
        assert_eq!(observed, alone, "200 observers, one new candidate");
        while two.candidates().await.unwrap().len() > 1 {}
        views.truncate(1);
        let mut leaders = views.pop().unwrap();
        let before = meter.counts().await;
        for n in 0..50 {
            led.proclaim(format!("{n}")).await.unwrap();
            leaders.changed().await.unwrap();
        }
        // A write, a listing and a read.
        assert_eq!(cost(before, meter.counts().await), (150, 50));
        led.resign().await.unwrap();
    })
    .await;
}
