//! Transactions of any kind: conditions, writes, reads.

use zlock_ledger::{Calm as _, Cond, Fault, Kind, Lane as _, Mark, Range, Read, Tx, Write};
use zlock_testkit::{limit, until};

use crate::setup::{Client, Store, append, delete, id, is_busy, keys, node, put, queue, scope, tx, value};

fn update(key: &str, label: Option<&str>, data: Option<&[u8]>) -> Write {
    Write::Update { key: key.into(), label: label.map(str::to_owned), data: data.map(<[u8]>::to_vec) }
}

#[tokio::test]
async fn conditions_fail_with_what_they_found_and_write_nothing() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        let made = client.put("/v", b"one").await;
        let key = String::new;
        let (created, changed) = (made.created, made.changed);
        let conds = [
            Cond::Missing { key: key() },
            Cond::Version { key: key(), created, changed: changed + 1 },
            Cond::Version { key: key(), created: created + 1, changed },
            Cond::Writes { key: key(), writes: 1 },
            Cond::Own { key: key() },
        ];
        for cond in conds {
            let outcome = client
                .transact(tx(value("/v"), std::slice::from_ref(&cond), &[update("", None, Some(b"two"))]))
                .await
                .unwrap();
            let (position, found) = outcome.failed.unwrap();
            assert_eq!((position, found.unwrap().data), (0, b"one".to_vec()), "{cond:?}");
        }
        // Of one that does not exist, nothing is found.
        let cond = Cond::Writes { key: key(), writes: 0 };
        let outcome = client.transact(tx(value("/w"), &[cond], &[])).await.unwrap();
        assert_eq!(outcome.failed, Some((0, None)));

        let good = [
            Cond::Version { key: key(), created, changed },
            Cond::Writes { key: key(), writes: 0 },
            Cond::Missing { key: "other".into() },
        ];
        let outcome =
            client.transact(tx(value("/v"), &good, &[update("", None, Some(b"two"))])).await.unwrap();
        let written = outcome.written[0].clone().unwrap();
        assert_eq!((outcome.failed, written.writes, written.created), (None, 1, created));
        assert!(written.changed > changed);
        // The first that fails counts.
        let conds = [good[2].clone(), good[0].clone(), good[1].clone()];
        let outcome = client.transact(tx(value("/v"), &conds, &[])).await.unwrap();
        assert_eq!(outcome.failed.unwrap().0, 1);
    })
    .await;
}

#[tokio::test]
async fn all_writes_of_a_transaction_have_one_number() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        let (node_id, read) = (id(), |key: &str| Read {
            scope: value("/v"),
            range: Range::Key(key.into()),
            floor: 0,
            data: true,
        });
        client.create("/q", &node_id).await;
        client.put("/v", b"one").await;
        let then = [
            update("", None, Some(b"two")),
            Write::Receipt { slot: 3, write: 7 },
            Write::Delete { scope: queue("/q"), key: node_id.clone() },
            Write::Delete { scope: queue("/q"), key: "none".into() },
        ];
        let all = Tx { read: vec![read(""), read("x")], ..tx(value("/v"), &[], &then) };
        let outcome = client.transact(all).await.unwrap();
        let number = outcome.written[0].as_ref().unwrap().changed;
        assert_eq!(outcome.written[1], None);
        assert_eq!(outcome.written[2].as_ref().map(|gone| gone.key.clone()), Some(node_id));
        assert_eq!(outcome.written[3], None);
        assert_eq!((outcome.read[0][0].data.as_slice(), outcome.read[1].len()), (&b"two"[..], 0));

        // The receipt has it, too.
        let cond = |slot, write| [Cond::NoReceipt { slot, write }];
        let outcome = client.transact(tx(value("/v"), &cond(3, 7), &[])).await.unwrap();
        let (position, found) = outcome.failed.unwrap();
        assert_eq!((position, found.unwrap().changed), (0, number));
        for (slot, write) in [(3, 6), (3, 8), (4, 7)] {
            assert_eq!(client.transact(tx(value("/v"), &cond(slot, write), &[])).await.unwrap().failed, None);
        }
        // The next one takes its place.
        client.transact(tx(value("/v"), &[], &[Write::Receipt { slot: 3, write: 8 }])).await.unwrap();
        assert_eq!(client.transact(tx(value("/v"), &cond(3, 7), &[])).await.unwrap().failed, None);
        let other = store.client().await;
        assert_eq!(other.transact(tx(value("/v"), &cond(3, 8), &[])).await.unwrap().failed, None);
    })
    .await;
}

#[tokio::test]
async fn an_entry_of_the_same_owner_stays_and_one_of_another_is_replaced() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (one, two) = (store.client().await, store.client().await);
        let group = || scope(Kind::Group, "/g");
        let member =
            |data: &[u8]| Write::Append { key: "m".into(), owned: true, label: None, data: data.to_vec() };
        let first =
            one.transact(tx(group(), &[], &[member(b"1")])).await.unwrap().written[0].clone().unwrap();
        let again =
            one.transact(tx(group(), &[], &[member(b"2")])).await.unwrap().written[0].clone().unwrap();
        assert_eq!(
            (again.created, again.changed, again.owner),
            (first.created, first.changed, Some(one.session))
        );
        let other =
            two.transact(tx(group(), &[], &[member(b"3")])).await.unwrap().written[0].clone().unwrap();
        assert!(other.created > first.created);
        let all = two.read(group(), Range::All).await;
        assert_eq!((all.len(), all[0].owner, all[0].data.as_slice()), (1, Some(two.session), &b"3"[..]));
        // A value has no owner.
        let value = one.put("/g/m", b"1").await;
        assert_eq!(two.put("/g/m", b"2").await.created, value.created);
        // A node that a lost request may have created is found by the same path.
        let node_id = id();
        let made = one.create("/q", &node_id).await;
        assert_eq!(one.create("/q", &node_id).await, made);
        let taken = two.transact(tx(
            queue("/q"),
            &[],
            &[node(&node_id, "lock"), Write::Receipt { slot: 1, write: 1 }],
        ));
        assert_eq!(taken.await.unwrap().written[0].as_ref().unwrap().owner, Some(two.session));
        // Of another path, it is no node's.
        is_busy(&two.transact(append("/r", &node_id)).await);
        let general = tx(queue("/r"), &[], &[node(&node_id, "lock"), Write::Receipt { slot: 1, write: 1 }]);
        let answer = two.transact(general).await;
        assert!(matches!(answer, Err(Fault::Unexpected(_))), "{answer:?}");
        assert_eq!(two.keys("/r").await, Vec::<String>::new());
    })
    .await;
}

#[tokio::test]
async fn ranges_are_read_in_order() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        let ids: Vec<_> = (0..5).map(|_| id()).collect();
        let mut numbers = Vec::new();
        for node_id in &ids {
            numbers.push(client.create("/q", node_id).await.last().unwrap().created);
        }
        client.create("/other", &id()).await;
        let read = async |range, floor| {
            let read = Read { scope: queue("/q"), range, floor, data: false };
            let entries = client.calm.read(client.session, &read).await.unwrap();
            assert!(entries.iter().all(|entry| entry.data.is_empty() && entry.time.is_some()));
            keys(&entries)
        };
        assert_eq!(read(Range::All, 0).await, ids);
        assert_eq!(read(Range::All, numbers[2]).await, ids[2..]);
        let last = |up_to, limit| Range::Last { up_to: Some(up_to), limit };
        assert_eq!(read(last(numbers[3], 2), 0).await, ids[2..4]);
        assert_eq!(read(last(numbers[3], 2), numbers[3]).await, ids[3..4]);
        assert_eq!(read(Range::Key(ids[1].clone()), 0).await, ids[1..2]);
        let of_another =
            Read { scope: queue("/other"), range: Range::Key(ids[1].clone()), floor: 0, data: false };
        assert_eq!(client.calm.read(client.session, &of_another).await.unwrap(), []);
        let unbounded =
            Read { scope: queue("/q"), range: Range::Last { up_to: None, limit: 1 }, floor: 0, data: false };
        let answer = client.calm.read(client.session, &unbounded).await;
        assert!(matches!(answer, Err(Fault::Invalid(_))), "{answer:?}");
        // In a transaction of the general kind, up to the appended one.
        let last =
            Read { scope: queue("/q"), range: Range::Last { up_to: None, limit: 2 }, floor: 0, data: true };
        let then = [node(&id(), "lock"), Write::Receipt { slot: 1, write: 1 }];
        let outcome = client.transact(Tx { read: vec![last], ..tx(queue("/q"), &[], &then) }).await.unwrap();
        let [before, own] = &outcome.read[0][..] else { panic!("{outcome:?}") };
        assert_eq!(
            (&before.key, Some(own.created)),
            (&ids[4], outcome.written[0].as_ref().map(|own| own.created))
        );
        assert_eq!(own.data, b"data");
    })
    .await;
}

#[tokio::test]
async fn a_poll_shows_what_has_changed() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        let (node_id, other) = (id(), id());
        let number = client.create("/q", &node_id).await[0].created;
        let key = |key: &str, changed| Mark::Key { scope: queue("/q"), key: key.into(), changed };
        let whole = |count, changed| Mark::Scope { scope: queue("/q"), count, changed };
        let marks = [key(&node_id, number), key(&other, 0), whole(1, number), whole(2, number), whole(1, 0)];
        let changed = async |marks: &[Mark]| client.calm.changed(client.session, marks).await.unwrap();
        assert_eq!(changed(&marks).await, (client.history.incarnation, vec![3, 4]));
        assert_eq!(changed(&[]).await.1, Vec::<usize>::new());
        // A change of its data.
        client.transact(tx(queue("/q"), &[], &[update(&node_id, None, Some(b"x"))])).await.unwrap();
        assert_eq!(changed(&marks[..3]).await.1, [0, 2]);
        client.create("/q", &other).await;
        client.delete("/q", &node_id).await;
        assert_eq!(changed(&marks[..3]).await.1, [0, 1, 2]);
        assert_eq!(changed(&[key(&node_id, 0)]).await.1, Vec::<usize>::new());
    })
    .await;
}

/// What is in a large scope is counted once for all who ask, and each change is seen all the same.
#[tokio::test]
async fn a_poll_of_a_large_scope_shows_what_has_changed() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (client, other) = (store.client().await, store.client().await);
        let (first, last) = (id(), id());
        for node_id in std::iter::once(first.clone()).chain((0..148).map(|_| id())).chain([last.clone()]) {
            client.create("/large", &node_id).await;
        }
        let highest = async || {
            let entries = client.read(queue("/large"), Range::All).await;
            entries.iter().map(|entry| entry.changed).max().unwrap()
        };
        let changed = async |client: &Client, count, changed| {
            let mark = Mark::Scope { scope: queue("/large"), count, changed };
            !client.calm.changed(client.session, &[mark]).await.unwrap().1.is_empty()
        };
        let number = highest().await;
        for client in [&client, &other, &client] {
            assert!(!changed(client, 150, number).await);
            assert!(changed(client, 149, number).await);
            assert!(changed(client, 150, number - 1).await);
        }
        client.delete("/large", &first).await;
        assert!(!changed(&other, 149, number).await, "what was counted before is no reason");
        assert!(changed(&client, 150, number).await);
        client.delete("/large", &last).await;
        let before = number;
        let number = highest().await;
        until("it is counted again", async || changed(&client, 149, before).await).await;
        assert!(!changed(&other, 148, number).await);
        // What was counted in a former history is not used.
        store
            .execute(
                "UPDATE zlock.tally SET incarnation = incarnation + 1, count = 1, counted = now() + '1 hour'",
            )
            .await;
        assert!(!changed(&other, 148, number).await);
    })
    .await;
}

#[tokio::test]
async fn alive_is_about_the_node_and_its_session() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (client, other) = (store.client().await, store.client().await);
        let node_id = id();
        let created = other.create("/q", &node_id).await[0].created;
        let alive = |created| [Cond::Alive { scope: queue("/q"), key: node_id.clone(), created }];
        let write = async |created| {
            client
                .transact(tx(value("/v"), &alive(created), &[Write::Receipt { slot: 1, write: 1 }]))
                .await
                .unwrap()
        };
        assert_eq!(write(created).await.failed, None);
        assert_eq!(write(created + 1).await.failed.unwrap().0, 0);
        other.delete("/q", &node_id).await;
        assert_eq!(write(created).await.failed, Some((0, None)));
    })
    .await;
}

/// A transaction that is busy or fails has no effect, and the others of its batch have.
#[tokio::test]
async fn transactions_of_a_batch_have_outcomes_of_their_own() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        client.put("/a", b"1").await;
        let missing = || [Cond::Missing { key: String::new() }];
        let txs = [
            tx(value("/a"), &missing(), &[update("", None, Some(b"2"))]),
            Tx { when: missing().into(), ..put("/b", b"1") },
            tx(value("/b"), &[], &[update("", None, Some(b"2"))]),
            append("/q", &id()),
        ];
        let outcomes = client.lane.transact(&txs).await.unwrap();
        assert!(outcomes[0].as_ref().unwrap().failed.is_some());
        let written = |n: usize| outcomes[n].as_ref().unwrap().written[0].clone().unwrap();
        assert!(written(1).created < written(2).changed && written(2).changed < written(3).created);
        assert_eq!(client.read(value("/a"), Range::All).await[0].data, b"1");
        assert_eq!(client.read(value("/b"), Range::All).await[0].data, b"2");
    })
    .await;
}

#[tokio::test]
async fn sizes_are_bounded() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        let data = vec![7; 1_000_000];
        client.put("/v", &data).await;
        assert_eq!(client.read(value("/v"), Range::All).await[0].data, data);
        let answer = client.transact(put("/w", &vec![7; 1_200_000])).await;
        assert!(matches!(answer, Err(Fault::Invalid(_))), "{answer:?}");
        assert_eq!(client.read(value("/w"), Range::All).await, []);
        client.delete("/none", &id()).await;
        let none = client.transact(delete("/none", &id())).await.unwrap();
        assert_eq!(none.written, [None]);
    })
    .await;
}
