//! Restarts, failovers and what they may have lost.

use std::time::Duration;

use zlock_core::Class;
use zlock_ledger::{
    Beat, Beaten, Begin, Calm as _, Cond, Fault, History, Kind, Lane as _, Ledger as _, Range, Read, Wire,
    Write,
};
use zlock_postgres::{Fence, PostgresOptions, Replication};
use zlock_testkit::{PgBouncer, PostgresServer, have_pgbouncer, have_postgres, limit_if, until};

use crate::setup::{
    Client, Store, TIMEOUT, append, beginning, delete, id, ignored, is_busy, is_over, put, queue,
    random_session, scope, tx, value,
};

const LONGEST: Duration = Duration::from_secs(3);

/// A server of its own, with a store of this class.
async fn store_of(class: Class) -> Store {
    let server = PostgresServer::builder().parameter("wal_writer_delay", "10s").start().await;
    let store = Store::on(&server).await;
    store.execute("UPDATE zlock.setting SET longest = '3 s', overlap = '500 ms'").await;
    store.client().await.calm.set_class(class).await.unwrap();
    store
}

/// Reconnects a session after a restart.
async fn reconnected(client: Client) -> Client {
    let calm = client.ledger.calm(Some(client.session), ignored()).await.unwrap();
    let lane = client.ledger.lane(client.session, Wire::Fast).await.unwrap();
    Client { calm, lane, ..client }
}

async fn beat(client: &Client, number: u64, watched: Option<(u64, Duration, Duration)>) -> Beaten {
    let beat = Beat { number, timeout: TIMEOUT, known: Vec::new(), watched };
    client.calm.beat(client.session, &beat).await.unwrap()
}

async fn fence(store: &Store, node: &str) -> Result<(), String> {
    let answer = store.connect("zlock").await.execute(Fence::SQL, &[&node]).await;
    answer.map(drop).map_err(|error| error.code().unwrap().code().to_owned())
}

#[tokio::test]
async fn a_lossy_restart_ends_all_sessions_and_opens_quiet_time() {
    limit_if(have_postgres(), async {
        let store = store_of(Class::Lossy).await;
        let client = store.client().await;
        let node_id = id();
        let token = client.create("/q", &node_id).await[0].created;
        assert_eq!(client.history.watched, None);
        store.server.stop();
        store.server.restart().await;

        let next = store.client().await;
        let History { incarnation, watched, quiet, number, .. } = next.history;
        assert_ne!(incarnation, client.history.incarnation);
        assert_eq!((watched, quiet), (Some(Duration::ZERO), Duration::from_millis(3500)));
        let clock = store.number("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").await;
        assert!(
            number > token + 1_000_000 && number.abs_diff(clock.cast_unsigned()) < 20_000_000,
            "{number} {clock}"
        );
        // The sessions are over for everybody at once.
        assert_eq!(fence(&store, &node_id).await, Err(Fence::LOST.into()));
        assert_eq!(next.calm.look(&[client.session]).await.unwrap(), []);
        let calm = client.ledger.calm(Some(client.session), ignored()).await.unwrap();
        is_over(&calm.nodes(client.session).await);
        let late = Beat { number: 9, timeout: TIMEOUT, known: Vec::new(), watched: None };
        is_over(&calm.beat(client.session, &late).await);
        is_over(&client.ledger.lane(client.session, Wire::Fast).await);
        // What it reads may be older than what it has seen.
        let read = Read { scope: value("/v"), range: Range::All, floor: 0, data: true };
        is_over(&calm.read(client.session, &read).await);

        // Nothing that would have an owner is created, neither alone nor beside others.
        let member = Write::Append { key: "m".into(), owned: true, label: None, data: Vec::new() };
        let txs = [append("/q", &id()), tx(scope(Kind::Group, "/g"), &[], &[member]), put("/v", b"1")];
        let outcomes = next.lane.transact(&txs).await.unwrap();
        assert!(matches!(outcomes[..], [Err(Fault::Quiet), Err(Fault::Quiet), Ok(_)]), "{outcomes:?}");
        let outcomes = next.lane.transact(&[delete("/q", &node_id), append("/q", &id())]).await.unwrap();
        assert!(matches!(outcomes[..], [Ok(_), Err(Fault::Quiet)]), "{outcomes:?}");

        // It ends when it was watched for long enough.
        let span = Duration::from_millis(2000);
        let added = beat(&next, 1, Some((incarnation, Duration::ZERO, span))).await;
        assert_eq!((added.added, added.history.watched), (true, Some(span)));
        for wrong in [(incarnation, Duration::ZERO, span), (incarnation ^ 1, span, span)] {
            let other = beat(&next, wrong.0.wrapping_add(2) % 7 + 2, Some(wrong)).await;
            assert_eq!((other.added, other.history.watched), (false, Some(span)));
        }
        // A heartbeat that counts for nothing adds nothing.
        assert!(!beat(&next, 1, Some((incarnation, span, span))).await.added);
        let other = store.client().await;
        assert_eq!(other.history.watched, Some(span));
        assert_eq!(beat(&other, 1, Some((incarnation, span, span))).await.history.watched, None);
        assert_eq!(other.create("/q", &id()).await.len(), 1);
        assert!(next.transact(append("/q", &id())).await.is_ok());
        assert_eq!(store.client().await.history.watched, None);
    })
    .await;
}

/// Tokens stay below the clock however often the server is restarted before it grants anything.
#[tokio::test]
async fn tokens_are_lifted_once_before_anything_is_granted() {
    limit_if(have_postgres(), async {
        let store = store_of(Class::Lossy).await;
        store.client().await.create("/q", &id()).await;
        let mut number = 0;
        for _ in 0..6 {
            store.server.stop();
            store.server.restart().await;
            number = store.client().await.history.number;
        }
        let clock = store.number("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").await;
        let ahead = number.cast_signed() - clock;
        assert!(ahead < i64::try_from((LONGEST / 2).as_micros()).unwrap(), "{ahead} us ahead of the clock");
    })
    .await;
}

#[tokio::test]
async fn one_servers_restart_ends_no_session_but_makes_it_sweep() {
    limit_if(have_postgres(), async {
        let store = store_of(Class::OneServer).await;
        let client = store.client().await;
        let (held, released) = (id(), id());
        let created = client.create("/q", &held).await[0].created;
        client.create("/r", &released).await;
        // The release is not durable yet.
        client.delete("/r", &released).await;
        assert_eq!(client.keys("/r").await, Vec::<String>::new());
        store.server.stop();
        store.server.restart().await;

        let client = reconnected(client).await;
        let alive = || Cond::Alive { scope: queue("/q"), key: held.clone(), created };
        let guarded = async || client.transact(tx(queue("/x"), &[alive()], &[])).await;
        let answer = guarded().await;
        assert!(matches!(answer, Err(Fault::Unswept)), "{answer:?}");
        assert_eq!(fence(&store, &held).await, Err(Fence::RETRY.into()));
        // All else goes on, for others too, without quiet time.
        let other = store.client().await;
        assert_eq!(other.history.watched, None);
        assert!(other.create("/q", &id()).await.last().unwrap().created < created + 1000);
        assert_eq!(other.calm.look(&[client.session]).await.unwrap().len(), 1);
        client.create("/s", &id()).await;
        let beaten = beat(&client, 1, None).await;
        let incarnation = beaten.history.incarnation;
        assert_eq!((beaten.swept, incarnation), (client.history.incarnation, other.history.incarnation));
        assert_ne!(beaten.swept, incarnation);

        // The release was undone.
        let (now, mut nodes) = client.calm.nodes(client.session).await.unwrap();
        assert_eq!((now, nodes.len(), nodes.contains(&released)), (incarnation, 3, true));
        nodes.retain(|node| *node == released);
        assert!(!client.calm.sweep(client.session, beaten.swept, &nodes).await.unwrap());
        assert_eq!(client.keys("/r").await, nodes);
        let operator = store.connect("postgres").await;
        operator.batch_execute("BEGIN; SELECT FROM zlock.entry WHERE path = '/r' FOR SHARE").await.unwrap();
        is_busy(&client.calm.sweep(client.session, incarnation, &nodes).await);
        assert_eq!(fence(&store, &held).await, Err(Fence::RETRY.into()));
        operator.batch_execute("COMMIT").await.unwrap();
        assert!(client.calm.sweep(client.session, incarnation, &nodes).await.unwrap());
        assert_eq!(client.keys("/r").await, Vec::<String>::new());
        assert_eq!(guarded().await.unwrap().failed, None);
        fence(&store, &held).await.unwrap();
        assert_eq!(fence(&store, &released).await, Err(Fence::LOST.into()));
        assert_eq!(beat(&client, 2, None).await.swept, incarnation);
    })
    .await;
}

/// It loses asynchronous commits, and neither the start of the server nor the timeline show it.
#[tokio::test]
async fn the_crash_of_a_server_process_is_noticed_and_ends_no_session() {
    limit_if(have_postgres(), async {
        for class in [Class::Lossy, Class::OneServer, Class::Sync] {
            let store = store_of(class).await;
            let client = store.client().await;
            let held = id();
            client.create("/q", &held).await;
            let started = "SELECT extract(epoch FROM pg_postmaster_start_time())::bigint";
            let before = store.number(started).await;
            store.server.crash_process().await;
            assert!(client.calm.nodes(client.session).await.is_err());
            assert_eq!(store.number(started).await, before);

            let client = reconnected(client).await;
            let beaten = beat(&client, 1, None).await;
            assert_ne!(beaten.swept, beaten.history.incarnation, "{class}");
            assert_eq!(beaten.history.watched, None, "{class}");
            assert_eq!(fence(&store, &held).await, Err(Fence::RETRY.into()), "{class}");
            assert!(client.calm.sweep(client.session, beaten.history.incarnation, &[]).await.unwrap());
            fence(&store, &held).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn nothing_waits_in_a_store_that_nobody_has_used() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::start().await;
        let store = Store::without_schema(server, "").await;
        store.execute(&zlock_postgres::schema_sql()).await;
        store.execute("UPDATE zlock.setting SET class = 'lossy'; GRANT zlock_user TO zlock").await;
        store.server.stop();
        store.server.restart().await;
        let client = store.client().await;
        assert_eq!(client.history.watched, None);
        assert_eq!(client.create("/q", &id()).await.len(), 1);
        store.server.stop();
        store.server.restart().await;
        assert_eq!(store.client().await.history.watched, Some(Duration::ZERO));
    })
    .await;
}

/// An install again, as by each pod that starts, does not end quiet time.
#[tokio::test]
async fn only_the_first_install_grants_at_once() {
    limit_if(have_postgres(), async {
        let store = store_of(Class::Lossy).await;
        store.server.stop();
        store.server.restart().await;
        store.execute(&zlock_postgres::schema_sql()).await;
        let client = store.client().await;
        assert_eq!(client.history.watched, Some(Duration::ZERO));
        // A restart in quiet time begins it anew, also for the setting "one server", which only a failover opens.
        beat(&client, 1, Some((client.history.incarnation, Duration::ZERO, Duration::from_secs(1)))).await;
        client.calm.set_class(Class::OneServer).await.unwrap();
        store.server.stop();
        store.server.restart().await;
        let client = reconnected(client).await;
        let beaten = beat(&client, 2, None).await;
        assert_eq!(beaten.history.watched, Some(Duration::from_secs(1)), "it goes on");
        assert!(matches!(client.transact(append("/q", &id())).await, Err(Fault::Quiet)));
        let incarnation = beaten.history.incarnation;
        let span = (incarnation, Duration::from_secs(1), Duration::from_millis(2500));
        assert_eq!(beat(&client, 3, Some(span)).await.history.watched, None);
        assert!(client.transact(append("/q", &id())).await.is_ok());
    })
    .await;
}

fn both(primary: &PostgresServer, replica: &PostgresServer) -> PostgresOptions {
    PostgresOptions::new([primary, replica].map(|server| server.addr().to_string()))
        .with_user("zlock", None)
        .with_database("zlock")
        .with_ttl(TIMEOUT)
}

fn ledger(options: PostgresOptions) -> zlock_postgres::PostgresLedger {
    zlock_postgres::PostgresLedger::new(options, tokio::runtime::Handle::current()).unwrap()
}

#[tokio::test]
async fn a_promotion_is_lossy_unless_replication_is_synchronous() {
    limit_if(have_postgres(), async {
        for (class, goes_on) in
            [(Class::OneServer, false), (Class::Auto, false), (Class::Lossy, false), (Class::Sync, true)]
        {
            let store = store_of(class).await;
            let replica = store.server.replica().await;
            let client = Client::new(ledger(both(&store.server, &replica))).await;
            let held = id();
            let token = client.create("/q", &held).await[0].created;
            replica.catch_up(&store.server).await;
            // A standby is refused.
            let answer = ledger(both(&replica, &replica)).calm(None, ignored()).await;
            assert!(matches!(answer, Err(Fault::NotSent(_))), "{answer:?}");
            let error = replica.try_sql("SELECT zlock.v2_salt()").await.unwrap_err();
            assert!(error.contains("recovery"), "{error}");
            store.server.stop();
            replica.promote().await;

            let next = Client::new(ledger(both(&store.server, &replica))).await;
            let calm = client.ledger.calm(Some(client.session), ignored()).await.unwrap();
            if goes_on {
                assert_eq!(next.history.watched, None);
                assert!(calm.nodes(client.session).await.unwrap().1.contains(&held));
                assert!(next.create("/q", &id()).await.last().unwrap().created < token + 1000);
            } else {
                assert_eq!(next.history.watched, Some(Duration::ZERO), "{class}");
                is_over(&calm.nodes(client.session).await);
                assert!(next.history.number > token + 1_000_000, "{class}");
                assert!(matches!(next.transact(append("/q", &id())).await, Err(Fault::Quiet)));
            }
        }
    })
    .await;
}

#[tokio::test]
async fn auto_becomes_lossy_with_the_first_replica_for_good() {
    limit_if(have_postgres(), async {
        let store = store_of(Class::Auto).await;
        let client = store.client().await;
        let setup = client.calm.setup().await.unwrap();
        assert_eq!((setup.class, setup.is_lossy, setup.reason), (Class::Auto, false, None));
        assert_eq!((setup.longest, setup.overlap), (LONGEST, Duration::from_millis(500)));
        assert_eq!(setup.history.incarnation, client.history.incarnation);
        let replica = store.server.replica().await;
        // Some heartbeat looks, and so does each begin.
        let mut number = 0;
        until("a heartbeat has looked", async || {
            number += 1;
            beat(&client, number, None).await;
            client.calm.setup().await.unwrap().is_lossy
        })
        .await;
        drop(replica);
        until("the replica has gone", async || {
            store.number("SELECT count(*) FROM pg_stat_replication").await == 0
        })
        .await;
        let setup = store.client().await.calm.setup().await.unwrap();
        assert_eq!((setup.class, setup.is_lossy), (Class::Auto, true));
        assert_eq!(setup.reason.as_deref(), Some("a replica has been connected"));
        // Until it is set anew.
        client.calm.set_class(Class::Auto).await.unwrap();
        assert!(!client.calm.setup().await.unwrap().is_lossy);
        store.execute("SELECT pg_create_physical_replication_slot('standby')").await;
        let setup = store.client().await.calm.setup().await.unwrap();
        assert_eq!(setup.reason.as_deref(), Some("there is a slot for a replica"));
        store.server.stop();
        store.server.restart().await;
        is_over(&client.ledger.calm(None, ignored()).await.unwrap().nodes(client.session).await);
    })
    .await;
}

#[tokio::test]
async fn a_server_that_does_not_flush_is_lossy() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::builder().parameter("fsync", "off").start().await;
        let store = Store::on(&server).await;
        let calm = store.client().await.calm;
        let setup = calm.setup().await.unwrap();
        assert!(setup.is_lossy && setup.reason.unwrap().contains("fsync"));
        for class in [Class::OneServer, Class::Sync, Class::OneMachine] {
            let answer = calm.set_class(class).await;
            assert!(matches!(answer, Err(Fault::Invalid(_))), "{class}: {answer:?}");
        }
        assert_eq!(calm.setup().await.unwrap().class, Class::Auto);
        calm.set_class(Class::Lossy).await.unwrap();
        store.execute("UPDATE zlock.setting SET class = 'sync'").await;
        let answer = calm.begin(&beginning(random_session())).await;
        assert!(matches!(answer, Err(Fault::Invalid(_))), "{answer:?}");
    })
    .await;
}

#[tokio::test]
async fn a_client_that_relies_on_another_class_is_refused() {
    limit_if(have_postgres(), async {
        let store = store_of(Class::Auto).await;
        let begin = async |replication: Option<Replication>| {
            let options = replication.map_or(store.options(), |it| store.options().with_replication(it));
            let calm = ledger(options).calm(None, ignored()).await.unwrap();
            calm.begin(&beginning(random_session())).await.map(drop)
        };
        use Replication::{Async, Sync};
        for (class, fits) in [
            (Class::Auto, [true, false, false]),
            (Class::OneServer, [true, false, false]),
            (Class::Lossy, [true, true, false]),
            (Class::Sync, [true, false, true]),
        ] {
            store.client().await.calm.set_class(class).await.unwrap();
            for (replication, fits) in [None, Some(Async), Some(Sync)].into_iter().zip(fits) {
                match begin(replication).await {
                    Ok(()) => assert!(fits, "{class} {replication:?}"),
                    Err(Fault::Invalid(why)) => {
                        assert!(!fits && why.contains("the store is of the class"), "{why}")
                    }
                    Err(fault) => panic!("{fault:?}"),
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn tables_that_were_put_back_begin_a_new_incarnation() {
    limit_if(have_postgres(), async {
        let store = store_of(Class::Sync).await;
        let client = store.client().await;
        client.create("/q", &id()).await;
        let incarnation = client.history.incarnation;
        client.calm.restored(incarnation ^ 1).await.unwrap();
        assert!(client.calm.nodes(client.session).await.is_ok());
        client.calm.restored(incarnation).await.unwrap();
        // Nobody has looked at it since.
        let answer = client.transact(append("/q", &id())).await;
        assert!(matches!(answer, Err(Fault::NotSent(_))), "{answer:?}");
        let next = store.client().await;
        assert_eq!(next.history.watched, Some(Duration::ZERO));
        is_over(&client.transact(append("/q", &id())).await);
        is_over(&client.calm.nodes(client.session).await);
        // What another client asks for late is about the last one.
        next.calm.restored(incarnation).await.unwrap();
        assert!(next.calm.nodes(next.session).await.is_ok());
        let begin = Begin { last: Some(client.session), ..beginning(random_session()) };
        client.calm.begin(&begin).await.unwrap();
        assert_eq!(next.read(queue("/q"), Range::All).await, []);
    })
    .await;
}

/// The client's connection with the pooler survives the restart of the server.
#[tokio::test]
async fn nothing_is_granted_before_somebody_has_connected() {
    limit_if(have_pgbouncer(), async {
        let store = store_of(Class::Lossy).await;
        let pooler = PgBouncer::start(&store.server).await;
        let options = PostgresOptions::new([pooler.addr().to_string()])
            .with_user("zlock", None)
            .with_database("zlock")
            .with_pooler(true);
        let client = Client::new(ledger(options)).await;
        client.create("/q", &id()).await;
        store.server.stop();
        store.server.restart().await;
        let mut answer = client.transact(append("/q", &id())).await;
        until("the pooler has reconnected", async || {
            answer = client.transact(append("/q", &id())).await;
            matches!(&answer, Err(Fault::NotSent(why)) if why.contains("nobody has connected"))
        })
        .await;
        let number = store.number("SELECT last_value FROM zlock.number").await;
        let beat = Beat { number: 9, timeout: TIMEOUT, known: Vec::new(), watched: None };
        let answer = client.calm.beat(client.session, &beat).await;
        assert!(matches!(answer, Err(Fault::NotSent(_))), "{answer:?}");
        // What is refused does not lift the numbers, again and again.
        let begin = Begin { timeout: LONGEST * 2, ..beginning(random_session()) };
        let answer = client.calm.begin(&begin).await;
        assert!(matches!(answer, Err(Fault::Invalid(_))), "{answer:?}");
        assert_eq!(store.number("SELECT last_value FROM zlock.number").await, number);
        store.client().await;
        is_over(&client.transact(append("/q", &id())).await);
    })
    .await;
}

/// The server reports a success.
#[tokio::test]
async fn a_commit_that_no_replica_has_confirmed_has_an_unknown_outcome() {
    limit_if(have_postgres(), async {
        let store = store_of(Class::Sync).await;
        let client = store.client().await;
        client.put("/v", b"1").await;
        store.server.set("synchronous_standby_names", "*").await;
        let (answer, ()) = tokio::join!(client.transact(put("/w", b"1")), async {
            let waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
            until("the commit waits", async || store.number(&format!("SELECT count(*) {waits}")).await == 1)
                .await;
            store.execute(&format!("SELECT pg_cancel_backend(pid) {waits}")).await;
        });
        let Err(Fault::Unknown(why)) = answer else { panic!("{answer:?}") };
        assert!(why.contains("replica"), "{why}");
        store.server.set("synchronous_standby_names", "").await;
        let answer = client.transact(put("/w", b"1")).await;
        assert!(
            matches!(answer, Err(Fault::Unknown(_) | Fault::NotSent(_))),
            "the connection is given up: {answer:?}"
        );
    })
    .await;
}
