//! Sessions: their begin, their heartbeats and their end.

use std::time::Duration;

use zlock_core::SessionId;
use zlock_ledger::{
    Beat, Begin, Calm as _, Cond, End, Ended, Fault, Kind, Lane as _, Ledger as _, Seen, Wire, Write,
};
use zlock_testkit::limit;

use crate::setup::{
    Client, REST, Store, TIMEOUT, append, beginning, delete, id, ignored, is_busy, is_over, queue,
    random_session, scope, tx, value,
};

fn beat(number: u64) -> Beat {
    Beat { number, timeout: TIMEOUT, known: Vec::new(), watched: None }
}

async fn end(client: &Client, session: SessionId, beat: Option<u64>) -> Ended {
    client.calm.end(&[End { session, beat }], &[]).await.unwrap()[0]
}

/// The IDs are random. One that is taken is refused, and nothing happens to its session.
#[tokio::test]
async fn two_sessions_never_share_an_id() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (client, other) = (store.client().await, store.client().await);
        client.calm.beat(client.session, &beat(7)).await.unwrap();
        let again = other.calm.begin(&beginning(client.session)).await;
        assert!(again.is_err(), "{again:?}");
        let seen = other.calm.look(&[client.session]).await.unwrap();
        assert_eq!(seen.iter().map(|seen| seen.beat).collect::<Vec<_>>(), [7]);
    })
    .await;
}

#[tokio::test]
async fn a_heartbeat_shows_what_is_owned() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (client, other) = (store.client().await, store.client().await);
        let (mine, theirs) = (id(), id());
        client.create("/q", &mine).await;
        other.create("/q", &theirs).await;
        let member = Write::Append { key: "m".into(), owned: true, label: None, data: Vec::new() };
        client.transact(tx(scope(Kind::Group, "/g"), &[], &[member])).await.unwrap();
        let known = [
            (queue("/q"), mine.clone()),
            (queue("/q"), theirs.clone()),
            (scope(Kind::Group, "/g"), "m".into()),
            (scope(Kind::Group, "/h"), "m".into()),
            (queue("/q"), id()),
        ];
        let beat = Beat { known: known.into(), ..beat(1) };
        let beaten = client.calm.beat(client.session, &beat).await.unwrap();
        assert_eq!(beaten.exists, [true, false, true, false, false]);
        let history = client.history;
        assert_eq!(
            (beaten.swept, beaten.history.incarnation, beaten.added),
            (history.incarnation, history.incarnation, false)
        );
        assert_eq!((beaten.history.watched, beaten.history.quiet), (None, Duration::from_secs(30)));
        assert!(beaten.history.number > history.number && beaten.history.position > history.position);
        let all = client.calm.nodes(client.session).await.unwrap();
        assert_eq!(all, (history.incarnation, vec![mine]));
    })
    .await;
}

#[tokio::test]
async fn heartbeats_count_and_never_go_back() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (client, other) = (store.client().await, store.client().await);
        let look = async || other.calm.look(&[client.session, random_session()]).await.unwrap();
        let seen = |beat, timeout| Seen { session: client.session, beat, timeout, watched: Duration::ZERO };
        assert_eq!(look().await, [seen(0, REST)]);
        client.calm.beat(client.session, &beat(5)).await.unwrap();
        assert_eq!(look().await, [seen(5, TIMEOUT)]);
        for number in [5, 4] {
            let late = Beat { timeout: REST, ..beat(number) };
            assert!(client.calm.beat(client.session, &late).await.is_ok());
            assert_eq!(look().await, [seen(5, TIMEOUT)]);
        }
        is_over(&client.calm.beat(random_session(), &beat(9)).await);
    })
    .await;
}

#[tokio::test]
async fn what_was_watched_is_added_once() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (client, one, two) = (store.client().await, store.client().await, store.client().await);
        let look = async || one.calm.look(&[client.session]).await.unwrap()[0];
        let span = Duration::from_millis(700);
        let first = look().await;
        one.calm.watched(&[(first, span)]).await.unwrap();
        assert_eq!(look().await.watched, span);
        // What was seen before is no longer so.
        two.calm.watched(&[(first, span)]).await.unwrap();
        assert_eq!(look().await.watched, span);
        let (second, unknown) = (look().await, Seen { session: random_session(), ..first });
        two.calm.watched(&[(second, span), (unknown, span)]).await.unwrap();
        assert_eq!(look().await.watched, span * 2);
        one.calm.watched(&[(look().await, Duration::from_micros(999))]).await.unwrap();
        assert_eq!(look().await.watched, span * 2);
        // With each heartbeat, it begins anew.
        let before = look().await;
        client.calm.beat(client.session, &beat(1)).await.unwrap();
        let now = Seen { beat: 1, timeout: TIMEOUT, watched: Duration::ZERO, ..first };
        for wrong in [before, first, Seen { watched: span, ..now }, Seen { timeout: REST, ..now }] {
            one.calm.watched(&[(wrong, span)]).await.unwrap();
            assert_eq!(look().await, now, "{wrong:?}");
        }
        one.calm.watched(&[(look().await, span)]).await.unwrap();
        assert_eq!(look().await.watched, span);
    })
    .await;
}

#[tokio::test]
async fn the_end_takes_all_that_is_owned() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (client, other) = (store.client().await, store.client().await);
        let (mine, theirs) = (id(), id());
        client.create("/q", &mine).await;
        other.create("/q", &theirs).await;
        client.put("/v", b"stays").await;
        let then = [Write::Receipt { slot: 1, write: 1 }];
        client.transact(tx(value("/v"), &[], &then)).await.unwrap();
        client.calm.beat(client.session, &beat(3)).await.unwrap();
        assert_eq!(end(&other, client.session, Some(2)).await, Ended::Alive);
        assert_eq!(client.keys("/q").await.len(), 2);
        assert_eq!(end(&other, client.session, Some(3)).await, Ended::Over);
        assert_eq!(other.keys("/q").await, [theirs]);
        assert_eq!(other.read(value("/v"), zlock_ledger::Range::All).await.len(), 1);

        is_over(&client.calm.beat(client.session, &beat(4)).await);
        is_over(&client.calm.nodes(client.session).await);
        is_over(&client.calm.changed(client.session, &[]).await);
        is_over(&client.calm.sweep(client.session, client.history.incarnation, &[]).await);
        is_over(&client.lane.transact(&[append("/q", &id())]).await);
        is_over(&client.lane.transact(&[delete("/q", &mine)]).await);
        is_over(&client.ledger.lane(client.session, Wire::Fast).await);
        assert_eq!(other.calm.look(&[client.session]).await.unwrap(), []);
        for table in ["session", "beat", "lane", "receipt", "watched"] {
            let column = if table == "session" { "id" } else { "session" };
            let sql = format!("SELECT count(*) FROM zlock.{table} WHERE {column} = {}", client.session.get());
            assert_eq!(store.number(&sql).await, 0, "{table}");
        }
        // Again, and one that never was.
        let ends = [client.session, random_session()].map(|session| End { session, beat: Some(3) });
        assert_eq!(other.calm.end(&ends, &[]).await.unwrap(), [Ended::Over; 2]);
    })
    .await;
}

#[tokio::test]
async fn a_session_with_much_ends_in_parts_the_wanted_first() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (client, other) = (store.client().await, store.client().await);
        let member =
            |n: usize| Write::Append { key: format!("m{n}"), owned: true, label: None, data: Vec::new() };
        let txs: Vec<_> = (0..1500).map(|n| tx(scope(Kind::Group, "/g"), &[], &[member(n)])).collect();
        for txs in txs.chunks(500) {
            assert!(client.lane.transact(txs).await.unwrap().iter().all(Result::is_ok));
        }
        let wanted = id();
        client.create("/wanted", &wanted).await;
        let one = End { session: client.session, beat: None };
        let ended = other.calm.end(&[one], &[queue("/wanted")]).await.unwrap();
        assert_eq!(ended, [Ended::More]);
        assert_eq!(other.keys("/wanted").await, Vec::<String>::new());
        is_over(&client.calm.nodes(client.session).await);
        assert_eq!(other.calm.end(&[one], &[]).await.unwrap(), [Ended::Over]);
        assert_eq!(store.number("SELECT count(*) FROM zlock.entry").await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_transaction_in_flight_puts_off_the_end() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (client, other) = (store.client().await, store.client().await);
        client.create("/q", &id()).await;
        let operator = store.connect("postgres").await;
        let flight =
            format!("BEGIN; SELECT FROM zlock.lane WHERE session = {} FOR SHARE", client.session.get());
        operator.batch_execute(&flight).await.unwrap();
        assert_eq!(end(&other, client.session, None).await, Ended::Busy);
        // So does the begin of the next one.
        let session = random_session();
        let begin = Begin { last: Some(client.session), ..beginning(session) };
        is_busy(&other.calm.begin(&begin).await);
        assert_eq!(other.keys("/q").await.len(), 1);
        assert!(client.calm.nodes(client.session).await.is_ok());
        operator.batch_execute("COMMIT").await.unwrap();
        other.calm.begin(&begin).await.unwrap();
        assert_eq!(other.keys("/q").await, Vec::<String>::new());
        is_over(&client.calm.nodes(client.session).await);
        assert!(other.calm.nodes(session).await.is_ok());

        // A heartbeat in flight, too.
        let operator = store.connect("postgres").await;
        let flight = format!("BEGIN; UPDATE zlock.beat SET beat = 8 WHERE session = {}", session.get());
        operator.batch_execute(&flight).await.unwrap();
        assert_eq!(end(&other, session, Some(0)).await, Ended::Busy);
        operator.batch_execute("COMMIT").await.unwrap();
        assert_eq!(end(&other, session, Some(0)).await, Ended::Alive);
    })
    .await;
}

#[tokio::test]
async fn what_a_users_transaction_protects_stays_until_later() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (client, other) = (store.client().await, store.client().await);
        let (fenced, free) = (id(), id());
        client.create("/q", &fenced).await;
        client.create("/q", &free).await;
        let mut user = store.connect("zlock").await;
        let open = user.transaction().await.unwrap();
        open.execute("SELECT zlock.fence($1)", &[&fenced]).await.unwrap();
        assert_eq!(end(&other, client.session, None).await, Ended::Over);
        assert_eq!(other.keys("/q").await, [&*fenced]);
        open.commit().await.unwrap();
        // Its session is over, so no new transaction can rely on it.
        let late = user.execute("SELECT zlock.fence($1)", &[&fenced]).await.unwrap_err();
        assert_eq!(late.code().unwrap().code(), "ZL003");
        let created = other.read(queue("/q"), zlock_ledger::Range::All).await[0].created;
        let alive = Cond::Alive { scope: queue("/q"), key: fenced, created };
        assert_eq!(other.transact(tx(value("/v"), &[alive], &[])).await.unwrap().failed, Some((0, None)));
        assert_eq!(end(&other, client.session, None).await, Ended::Over);
        assert_eq!(other.keys("/q").await, Vec::<String>::new());
    })
    .await;
}

#[tokio::test]
async fn silent_sessions_are_those_of_which_nothing_was_heard() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let (client, other) = (store.client().await, store.client().await);
        assert_eq!(other.calm.silent(10).await.unwrap(), []);
        let age = |session: SessionId, seconds: u64| {
            let sql = "UPDATE zlock.beat SET renewed = clock_timestamp() - interval";
            format!("{sql} '{seconds} s' WHERE session = {}", session.get())
        };
        client.calm.beat(client.session, &beat(1)).await.unwrap();
        store.execute(&age(client.session, TIMEOUT.as_secs() - 1)).await;
        assert_eq!(other.calm.silent(10).await.unwrap(), []);
        store.execute(&age(client.session, TIMEOUT.as_secs() + 1)).await;
        assert_eq!(other.calm.silent(10).await.unwrap(), [client.session]);
        store.execute(&age(other.session, REST.as_secs() + 1)).await;
        assert_eq!(other.calm.silent(10).await.unwrap().len(), 2);
        assert_eq!(other.calm.silent(1).await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_timeout_above_the_longest_is_refused() {
    let Some(store) = Store::shared().await else { return };
    limit(async {
        let calm = store.ledger().calm(None, ignored()).await.unwrap();
        let begin = Begin { timeout: Duration::from_millis(30_001), ..beginning(random_session()) };
        let Err(Fault::Invalid(why)) = calm.begin(&begin).await else { panic!("it begins") };
        assert!(why.contains("30001 ms") && why.contains("00:00:30"), "{why}");
        store.execute("UPDATE zlock.setting SET longest = '31 s'").await;
        calm.begin(&begin).await.unwrap();
        // An ID is used once.
        let answer = calm.begin(&begin).await;
        assert!(matches!(answer, Err(Fault::Unexpected(_))), "{answer:?}");
    })
    .await;
}
