//! Notifications.

use std::time::Duration;

use tokio::time::sleep;
use zlock_ledger::{Beat, Begin, Calm as _, Ledger as _, Mark, Range, Scope, Wire, Write};
use zlock_testkit::{PgBouncer, PostgresServer, have_pgbouncer, limit, limit_if, until};

use crate::setup::{Client, Store, TIMEOUT, append, beginning, delete, id, node, queue, random_session, tx};

/// Makes a client listen, and waits until it hears itself.
async fn listens(client: &Client) {
    client.keys("/none").await;
    until("notifications arrive", async || client.hints.lock().unwrap().contains(&None)).await;
    client.hints.lock().unwrap().clear();
}

async fn hears(client: &Client, expected: &[(Scope, String)]) {
    let expected: Vec<_> = expected.iter().cloned().map(Some).collect();
    let heard = async || client.hints.lock().unwrap().len() >= expected.len();
    until("hints", heard).await;
    // Nothing else.
    sleep(Duration::from_millis(100)).await;
    assert_eq!(std::mem::take(&mut *client.hints.lock().unwrap()), expected);
}

fn labelled(key: &str, label: &str) -> zlock_ledger::Tx {
    tx(queue("/q"), &[], &[node(key, label)])
}

#[tokio::test]
async fn a_release_wakes_the_next() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (one, two, three) = (store.client().await, store.client().await, store.client().await);
        for client in [&one, &two, &three] {
            listens(client).await;
        }
        let ids: Vec<_> = (0..6).map(|_| id()).collect();
        for (client, n) in [(&one, 0), (&two, 1), (&three, 2)] {
            client.create("/q", &ids[n]).await;
        }
        let hint = |n: usize| (queue("/q"), ids[n].clone());
        one.delete("/q", &ids[0]).await;
        hears(&two, &[hint(0)]).await;
        // In a batch that commits durably, and in a transaction of another kind.
        use zlock_ledger::Lane as _;
        let outcomes = two.lane.transact(&[delete("/q", &ids[1]), append("/q", &ids[3])]).await.unwrap();
        assert!(outcomes.iter().all(Result::is_ok));
        hears(&three, &[hint(1)]).await;
        let gone = Write::Delete { scope: queue("/q"), key: ids[2].clone() };
        three.transact(tx(queue("/q"), &[], &[gone, Write::Receipt { slot: 1, write: 1 }])).await.unwrap();
        hears(&two, &[hint(2)]).await;
        // The end of a session.
        one.create("/q", &ids[4]).await;
        assert_eq!(
            three
                .calm
                .end(&[zlock_ledger::End { session: two.session, beat: None }], &[])
                .await
                .unwrap()
                .len(),
            1
        );
        hears(&one, &[hint(3)]).await;
        // Nobody hears of what is his own, or ahead of him.
        hears(&two, &[]).await;
        hears(&three, &[]).await;
    })
    .await;
}

/// The server's queue for notifications is full if somebody who listens does not receive them.
#[tokio::test]
async fn a_release_needs_no_notification() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        let node_id = id();
        client.create("/q", &node_id).await;
        // Only the request with notifications does not wait for the disk.
        store
            .execute(
                "CREATE FUNCTION full_queue() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     IF current_setting('synchronous_commit') = 'off' THEN
                         RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000';
                     END IF;
                     RETURN OLD;
                 END $$;
                 CREATE TRIGGER full_queue BEFORE DELETE ON zlock.entry FOR EACH ROW EXECUTE FUNCTION full_queue()",
            )
            .await;
        assert!(client.delete("/q", &node_id).await.is_some());
        assert_eq!(client.keys("/q").await, Vec::<String>::new());
    })
    .await;
}

/// Up to the first that excludes all others.
#[tokio::test]
async fn a_release_wakes_all_that_may_hold_beside_each_other() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let mut clients = Vec::new();
        for _ in 0..5 {
            clients.push(store.client().await);
            listens(&clients[clients.len() - 1]).await;
        }
        let ids: Vec<_> = (0..5).map(|_| id()).collect();
        for ((client, key), label) in clients.iter().zip(&ids).zip(["write", "read", "read", "write", "read"])
        {
            client.transact(labelled(key, label)).await.unwrap();
        }
        // A downgrade, and the release.
        let downgrade = Write::Update { key: ids[0].clone(), label: Some("read".into()), data: None };
        clients[0].transact(tx(queue("/q"), &[], &[downgrade])).await.unwrap();
        let hint = [(queue("/q"), ids[0].clone())];
        for client in &clients[1..4] {
            hears(client, &hint).await;
        }
        clients[0].delete("/q", &ids[0]).await;
        for client in &clients[1..4] {
            hears(client, &hint).await;
        }
        hears(&clients[4], &[]).await;
        // The owner of a node that another client writes to.
        let revoke = Write::Update { key: ids[4].clone(), label: None, data: Some(b"x".to_vec()) };
        clients[1].transact(tx(queue("/q"), &[], &[revoke])).await.unwrap();
        hears(&clients[4], &[(queue("/q"), ids[4].clone())]).await;
    })
    .await;
}

/// A create that has read the node before it, and has not committed when that is deleted.
#[tokio::test]
async fn a_create_in_flight_is_woken() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (one, two) = (store.client().await, store.client().await);
        listens(&two).await;
        let (first, second) = (id(), id());
        one.create("/q", &first).await;
        // As the create's transaction does, up to its commit.
        let operator = store.connect("postgres").await;
        let insert = format!(
            "BEGIN; SELECT FROM zlock.stripe FOR UPDATE;
             INSERT INTO zlock.entry (id, scope, created, changed, session, kind, label, path, key, data)
                SELECT '\\x00', e.scope, nextval('zlock.number'), e.created + 1, {}, 0, 'lock', e.path, '{second}', '' FROM zlock.entry e",
            two.session.get()
        );
        operator.batch_execute(&insert).await.unwrap();
        one.delete("/q", &first).await;
        hears(&two, &[]).await;
        operator.batch_execute("COMMIT").await.unwrap();
        hears(&two, &[(queue("/q"), first)]).await;
    })
    .await;
}

/// A create that finds its predecessor while a transaction is about to delete that.
#[tokio::test]
async fn a_create_looks_again_at_a_node_that_is_about_to_go() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (one, two) = (store.client().await, store.client().await);
        let (first, second) = (id(), id());
        one.create("/q", &first).await;
        let operator = store.connect("postgres").await;
        operator.batch_execute("BEGIN; DELETE FROM zlock.entry").await.unwrap();
        assert_eq!(two.create("/q", &second).await.len(), 2);
        hears(&two, &[(queue("/q"), first)]).await;
        operator.batch_execute("ROLLBACK").await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn nobody_listens_who_does_not_wait() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let client = store.client().await;
        let count = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()";
        client.create("/q", &id()).await;
        assert_eq!(store.number(count).await, 0);
        let mark = Mark::Key { scope: queue("/q"), key: id(), changed: 0 };
        client.calm.changed(client.session, std::slice::from_ref(&mark)).await.unwrap();
        until("notifications arrive", async || client.hints.lock().unwrap().contains(&None)).await;
        // Once for a connection.
        client.calm.changed(client.session, &[mark]).await.unwrap();
        sleep(Duration::from_millis(50)).await;
        assert_eq!(client.hints.lock().unwrap().len(), 1);
        // Until nothing was read for a while, as the next heartbeat finds.
        let beat = |number| Beat { number, timeout: TIMEOUT, known: Vec::new(), watched: None };
        for (number, pause, listeners) in [(1, 9, 1), (2, 11, 0)] {
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(pause)).await;
            tokio::time::resume();
            client.calm.beat(client.session, &beat(number)).await.unwrap();
            let listens = client.hints.clone();
            listens.lock().unwrap().clear();
            store.execute(&format!("SELECT pg_notify('zlock_{}', '')", client.session.get())).await;
            sleep(Duration::from_millis(100)).await;
            assert_eq!(listens.lock().unwrap().len(), listeners);
        }
        client.keys("/q").await;
        until("notifications arrive again", async || client.hints.lock().unwrap().contains(&None)).await;
        // A new connection of the same session.
        let hints = client.hints.clone();
        hints.lock().unwrap().clear();
        let seen = hints.clone();
        let on_hint = std::sync::Arc::new(move |hint| seen.lock().unwrap().push(hint));
        let calm = client.ledger.calm(Some(client.session), on_hint).await.unwrap();
        calm.changed(client.session, &[]).await.unwrap();
        until("notifications arrive", async || hints.lock().unwrap().contains(&None)).await;
    })
    .await;
}

#[tokio::test]
async fn a_connection_listens_for_the_session_that_began_last() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (client, other) = (store.client().await, store.client().await);
        listens(&client).await;
        let session = random_session();
        let begin = Begin { last: Some(client.session), ..beginning(session) };
        client.calm.begin(&begin).await.unwrap();
        let lane = client.ledger.lane(session, Wire::Fast).await.unwrap();
        let client = Client { session, lane, ..client };
        listens(&client).await;
        let (first, second) = (id(), id());
        other.create("/q", &first).await;
        client.create("/q", &second).await;
        other.delete("/q", &first).await;
        hears(&client, &[(queue("/q"), first)]).await;
    })
    .await;
}

/// Behind a pooler in transaction mode, everything works but hints.
#[tokio::test]
async fn a_pooler_may_be_in_between() {
    limit_if(have_pgbouncer(), async {
        let server = PostgresServer::start().await;
        let pooler = PgBouncer::start(&server).await;
        let options = zlock_postgres::PostgresOptions::new([pooler.addr().to_string()])
            .with_user("zlock", None)
            .with_database("zlock")
            .with_create_schema(true)
            .with_pooler(true);
        let ledger = || {
            zlock_postgres::PostgresLedger::new(options.clone(), tokio::runtime::Handle::current()).unwrap()
        };
        let (one, two) = (Client::new(ledger()).await, Client::new(ledger()).await);
        for round in 0..20 {
            let path = format!("/q{round}");
            let (first, second) = (id(), id());
            one.create(&path, &first).await;
            assert_eq!(two.create(&path, &second).await.len(), 2);
            one.put(&path, b"value").await;
            assert!(one.delete(&path, &first).await.is_some());
            let patient = two.ledger.lane(two.session, Wire::Patient).await.unwrap();
            use zlock_ledger::Lane as _;
            assert!(patient.transact(&[delete(&path, &second)]).await.unwrap()[0].is_ok());
            assert_eq!(one.read(queue(&path), Range::All).await, []);
        }
        assert_eq!(*one.hints.lock().unwrap(), []);
        // The statements do not rely on settings of the connection.
        assert_eq!(server.sql("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SET %'").await, "0\n");
    })
    .await;
}
