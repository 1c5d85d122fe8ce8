//! Batches of nodes.

use zlock_ledger::{Fault, Lane as _, Range, Read, Tx, Write};
use zlock_testkit::limit;

use crate::setup::{Store, append, delete, id, is_busy, keys, node, queue, tx};

/// Each sees the one before it, also one of the same batch.
#[tokio::test]
async fn two_creates_of_one_path_in_a_batch_see_each_other() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (client, other) = (store.client().await, store.client().await);
        let ids: Vec<_> = (0..4).map(|_| id()).collect();
        other.create("/q", &ids[0]).await;
        let batch = [append("/q", &ids[1]), append("/r", &ids[3]), append("/q", &ids[2])];
        let outcomes = client.lane.transact(&batch).await.unwrap();
        let read = |n: usize| keys(&outcomes[n].as_ref().unwrap().read[0]);
        assert_eq!((read(0), read(1), read(2)), (ids[..2].to_vec(), ids[3..].to_vec(), ids[1..3].to_vec()));
        for (n, node_id) in [(0, &ids[1]), (1, &ids[3]), (2, &ids[2])] {
            let written = outcomes[n].as_ref().unwrap().written[0].clone().unwrap();
            assert_eq!(
                (&written.key, written.owner, written.label.as_deref()),
                (node_id, Some(client.session), Some("lock"))
            );
        }
        assert_eq!(client.keys("/q").await, ids[..3]);
    })
    .await;
}

#[tokio::test]
async fn a_batch_deletes_and_creates() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        let ids: Vec<_> = (0..5).map(|_| id()).collect();
        client.create("/q", &ids[0]).await;
        client.create("/r", &ids[1]).await;
        let batch =
            [delete("/q", &ids[0]), append("/q", &ids[2]), delete("/r", &id()), append("/r", &ids[3])];
        let outcomes = client.lane.transact(&batch).await.unwrap();
        let outcome = |n: usize| outcomes[n].as_ref().unwrap();
        assert_eq!(outcome(0).written[0].as_ref().map(|gone| &gone.key), Some(&ids[0]));
        assert_eq!(keys(&outcome(1).read[0]), ids[2..3]);
        assert_eq!(outcome(2).written, [None]);
        assert_eq!(keys(&outcome(3).read[0]), [ids[1].clone(), ids[3].clone()]);
        // A create that is taken back in the same batch, in this order.
        let outcomes = client.lane.transact(&[append("/q", &ids[4]), delete("/q", &ids[4])]).await.unwrap();
        assert_eq!(outcomes[1].as_ref().unwrap().written[0].as_ref().map(|gone| &gone.key), Some(&ids[4]));
        assert_eq!(client.keys("/q").await, ids[2..3]);
        let outcomes = client.lane.transact(&[delete("/q", &ids[2]), delete("/r", &ids[1])]).await.unwrap();
        assert!(outcomes.iter().all(|outcome| outcome.as_ref().unwrap().written[0].is_some()));
        assert_eq!(client.keys("/q").await, Vec::<String>::new());
    })
    .await;
}

#[tokio::test]
async fn a_create_reads_what_it_asks_for() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        let ids: Vec<_> = (0..5).map(|_| id()).collect();
        let floor = client.create("/q", &ids[0]).await[0].created + 1;
        client.create("/q", &ids[1]).await;
        client.create("/q", &ids[2]).await;
        let create = |node_id: &str, range, floor| Tx {
            read: vec![Read { scope: queue("/q"), range, floor, data: false }],
            ..tx(queue("/q"), &[], &[node(node_id, "read")])
        };
        let outcome = client.transact(create(&ids[3], Range::All, floor)).await.unwrap();
        assert_eq!(keys(&outcome.read[0]), ids[1..4]);
        let last = Range::Last { up_to: None, limit: 3 };
        let outcome = client.transact(create(&ids[4], last, 0)).await.unwrap();
        assert_eq!(keys(&outcome.read[0]), ids[2..5]);
        // Repeated, it finds itself, and not those behind it.
        let outcome =
            client.transact(create(&ids[3], Range::Last { up_to: None, limit: 2 }, 0)).await.unwrap();
        assert_eq!(keys(&outcome.read[0]), ids[2..4]);
        let none = Tx { read: Vec::new(), ..append("/q", &ids[3]) };
        let outcome = client.transact(none).await.unwrap();
        assert_eq!((outcome.read.len(), outcome.written[0].as_ref().map(|own| &own.key)), (0, Some(&ids[3])));
    })
    .await;
}

/// What another transaction holds is busy, and the rest of the batch is not.
#[tokio::test]
async fn the_fast_lane_waits_for_nobody() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        let ids: Vec<_> = (0..6).map(|_| id()).collect();
        client.create("/fenced", &ids[0]).await;
        client.create("/free", &ids[1]).await;
        let mut user = store.connect("zlock").await;
        let open = user.transaction().await.unwrap();
        open.execute("SELECT zlock.fence($1)", &[&ids[0]]).await.unwrap();
        let deletes = [delete("/fenced", &ids[0]), delete("/free", &ids[1])];
        let outcomes = client.lane.transact(&deletes).await.unwrap();
        is_busy(&outcomes[0]);
        assert!(outcomes[1].as_ref().unwrap().written[0].is_some());
        // Beside creates, and as a part of a transaction that then does nothing else either.
        let outcomes =
            client.lane.transact(&[delete("/fenced", &ids[0]), append("/free", &ids[2])]).await.unwrap();
        is_busy(&outcomes[0]);
        assert!(outcomes[1].is_ok());
        let gone = |key: &str, path: &str| Write::Delete { scope: queue(path), key: key.into() };
        let then = [gone(&ids[2], "/free"), gone(&ids[0], "/fenced")];
        is_busy(&client.transact(tx(queue("/free"), &[], &then)).await);
        assert_eq!(client.keys("/free").await, ids[2..3]);
        open.rollback().await.unwrap();
        assert!(client.transact(tx(queue("/free"), &[], &then)).await.is_ok());

        // All queues at once.
        let open = user.transaction().await.unwrap();
        drop(open);
        let operator = store.connect("postgres").await;
        operator.batch_execute("BEGIN; SELECT FROM zlock.stripe FOR UPDATE").await.unwrap();
        let outcomes = client.lane.transact(&[append("/a", &ids[3]), append("/b", &ids[4])]).await.unwrap();
        outcomes.iter().for_each(is_busy);
        is_busy(
            &client
                .transact(tx(
                    queue("/a"),
                    &[],
                    &[node(&ids[3], "lock"), Write::Receipt { slot: 1, write: 1 }],
                ))
                .await,
        );
        operator.batch_execute("COMMIT").await.unwrap();
        assert_eq!(client.keys("/a").await, Vec::<String>::new());
        assert_eq!(keys(&client.create("/a", &ids[3]).await), ids[3..4]);
    })
    .await;
}

/// The number of a lane is in the session's row.
#[tokio::test]
async fn another_number_of_the_lane_refuses_what_comes_over_the_old_one() {
    use zlock_ledger::{Ledger as _, Wire};
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        let ids: Vec<_> = (0..3).map(|_| id()).collect();
        let next = client.ledger.lane(client.session, Wire::Fast).await.unwrap();
        let general = tx(queue("/q"), &[], &[node(&ids[0], "lock"), Write::Receipt { slot: 1, write: 1 }]);
        for txs in [vec![append("/q", &ids[0])], vec![delete("/q", &ids[0])], vec![general]] {
            let answer = client.lane.transact(&txs).await;
            assert!(matches!(answer, Err(Fault::StaleLane)), "{answer:?}");
        }
        assert_eq!(client.keys("/q").await, Vec::<String>::new());
        assert!(next.transact(&[append("/q", &ids[1])]).await.unwrap()[0].is_ok());
        // The other wire has a number of its own.
        let patient = client.ledger.lane(client.session, Wire::Patient).await.unwrap();
        assert!(patient.transact(&[append("/q", &ids[2])]).await.unwrap()[0].is_ok());
        assert!(next.transact(&[delete("/q", &ids[2])]).await.unwrap()[0].is_ok());
    })
    .await;
}

/// 8 clients create on one path at once: numbers become visible in their order.
#[tokio::test]
async fn numbers_become_visible_in_their_order() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let observer = store.client().await;
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move {
                    let client = store.client().await;
                    let mut created = 0;
                    for _ in 0..200 {
                        match client.transact(append("/q", &id())).await {
                            Ok(outcome) => {
                                let read = &outcome.read[0];
                                assert!(read.windows(2).all(|pair| pair[0].created < pair[1].created));
                                created += 1;
                            }
                            Err(Fault::Busy) => {}
                            Err(fault) => panic!("{fault:?}"),
                        }
                    }
                    created
                })
            })
            .collect();
        let mut seen = Vec::<u64>::new();
        while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
            let now: Vec<u64> =
                observer.read(queue("/q"), Range::All).await.iter().map(|entry| entry.created).collect();
            assert!(now.starts_with(&seen), "a smaller number appears behind a larger one");
            seen = now;
        }
        let mut created = 0;
        for writer in writers {
            created += writer.await.unwrap();
        }
        assert_eq!(observer.keys("/q").await.len(), created);
        assert!(created > 0);
    })
    .await;
}
