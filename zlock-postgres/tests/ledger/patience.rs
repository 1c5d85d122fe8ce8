//! The patient lane.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock_ledger::{Lane as _, Ledger as _, Wire, Write};
use zlock_testkit::limit;

use crate::setup::{Store, append, delete, id, is_busy, keys, queue, tx};

#[tokio::test]
async fn waits_for_a_moment() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        let patient = client.ledger.lane(client.session, Wire::Patient).await.unwrap();
        let ids: Vec<_> = (0..4).map(|_| id()).collect();
        client.create("/q", &ids[0]).await;
        let mut user = store.connect("zlock").await;
        let open = user.transaction().await.unwrap();
        open.execute("SELECT zlock.fence($1)", &[&format!("{} lock", ids[0])]).await.unwrap();
        let relabel = Write::Update { key: ids[0].clone(), label: Some("read".into()), data: None };
        let began = Instant::now();
        // Each waits by itself, and the others are not busy with it.
        let txs = [
            delete("/q", &ids[0]),
            append("/r", &ids[1]),
            tx(queue("/q"), &[], &[relabel]),
            append("/q", &ids[2]),
        ];
        let outcomes = patient.transact(&txs).await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
        is_busy(&outcomes[0]);
        is_busy(&outcomes[2]);
        assert_eq!(keys(&outcomes[1].as_ref().unwrap().read[0]), ids[1..2]);
        assert_eq!(keys(&outcomes[3].as_ref().unwrap().read[0]), [ids[0].clone(), ids[2].clone()]);

        let deletes = [delete("/q", &ids[0])];
        let waits = patient.transact(&deletes);
        let (outcomes, ()) = tokio::join!(waits, async {
            sleep(Duration::from_millis(60)).await;
            open.commit().await.unwrap();
        });
        assert!(outcomes.unwrap()[0].as_ref().unwrap().written[0].is_some());

        // A queue that somebody locks.
        let operator = store.connect("postgres").await;
        operator.batch_execute("BEGIN; SELECT FROM zlock.stripe FOR UPDATE").await.unwrap();
        let creates = [append("/q", &ids[3])];
        is_busy(&patient.transact(&creates).await.unwrap()[0]);
        let (outcomes, ()) = tokio::join!(patient.transact(&creates), async {
            sleep(Duration::from_millis(60)).await;
            operator.batch_execute("COMMIT").await.unwrap();
        });
        assert_eq!(keys(&outcomes.unwrap()[0].as_ref().unwrap().read[0]), ids[2..4]);
    })
    .await;
}
