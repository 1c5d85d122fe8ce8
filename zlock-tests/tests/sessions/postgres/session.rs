//! How a session on PostgreSQL begins and ends, and what arrives too late.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::Client;
use zlock_core::{ErrorKind, Label};
use zlock_postgres::{PostgresBackend, PostgresOptions};
use zlock_suite::timed;
use zlock_testkit::postgres::{
    RawNode, backend, begin_session, create, create_node, names, observer, options, path, sqlstate, token,
};
use zlock_testkit::{PostgresServer, have_postgres, limit, limit_if, postgres_or_skip, report, until};

const TTL: Duration = Duration::from_secs(60);

async fn server() -> Option<(&'static PostgresServer, Client)> {
    let server = postgres_or_skip().await?;
    drop(backend(server).await);
    Some((server, observer(server).await))
}

/// In another isolation level, a listing could be old. The error has the statement that changes it.
#[tokio::test]
async fn another_isolation_level_is_refused_with_the_remedy() {
    limit(async {
        let Some((server, mut operator)) = server().await else { return };
        for level in ["repeatable read", "serializable"] {
            let setting = format!("-c%20default_transaction_isolation={}", level.replace(' ', "%5C%20"));
            let url = format!("{}?create_schema=true&options={setting}", server.url());
            let options = PostgresOptions::from_url(&url).unwrap();
            let error = PostgresBackend::connect(options).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            let text = error.to_string();
            assert!(text.contains(level) && text.contains("ALTER ROLE zlock SET"), "{text}");

            let (session, lock, id) = (begin_session(&operator).await, path("level"), token().to_string());
            let transaction = operator.transaction().await.unwrap();
            transaction.execute(&format!("SET TRANSACTION ISOLATION LEVEL {level}"), &[]).await.unwrap();
            let node = RawNode { session, path: lock.as_str(), id: &id, ttl: TTL, renews: true };
            assert_eq!(sqlstate(create_node(&transaction, node).await), "ZL005");
        }
    })
    .await;
}

/// A service that hides the timelines of its storage is refused, until the operator says that no failover loses a commit.
#[tokio::test]
async fn without_timelines_the_operator_has_to_vouch_for_failovers() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::start().await;
        drop(backend(&server).await);
        for function in ["pg_current_wal_lsn", "pg_control_system"] {
            server.sql(&format!("REVOKE EXECUTE ON FUNCTION {function}() FROM PUBLIC")).await;
        }
        let without_schema = options(&server.addr().to_string()).with_create_schema(false);
        let error = PostgresBackend::connect(without_schema.clone()).await.unwrap_err();
        assert!(error.to_string().contains("pg_current_wal_lsn"), "{error}");
        // As on the first day: otherwise this counts as a failover.
        server.sql("UPDATE zlock.setting SET static_term = true; DELETE FROM zlock.term").await;
        let backend = PostgresBackend::connect(without_schema).await.unwrap();
        let lock = path("static");
        let node = create(&backend, &lock, Label::Lock).await.node;
        assert_eq!(names(&observer(&server).await, &lock).await, [node.id.to_string()]);
        assert_eq!(
            server.sql("SELECT system, timeline FROM zlock.term ORDER BY n DESC LIMIT 1").await,
            "0|static\n"
        );
    })
    .await;
}

/// The rows of the database have moved to another cluster, whose timeline has the same number.
#[tokio::test]
async fn a_session_does_not_move_to_another_system() {
    limit(async {
        let Some((server, observer)) = server().await else { return };
        let client = zlock_recipes::Client::new(backend(server).await);
        let guard = client.mutex(path("moved").as_str()).unwrap().acquire().await.unwrap();
        let mine = "UPDATE zlock.session s SET timeline = s.timeline || '0' FROM zlock.node n
            WHERE n.session = s.id AND n.id = $1::text::uuid AND s.timeline LIKE '% ' || (SELECT system_identifier FROM pg_control_system())";
        assert_eq!(observer.execute(mine, &[&guard.node().as_str()]).await.unwrap(), 1);
        assert_eq!(guard.lost().await.kind(), ErrorKind::SessionLost);
    })
    .await;
}

/// An operator deletes the row of a session. Its node is a dead one: it keeps nobody waiting, and nobody looks at it for ever.
#[tokio::test]
async fn a_node_without_a_session_is_removed() {
    limit(async {
        let Some((server, observer)) = server().await else { return };
        let (session, lock, id) = (begin_session(&observer).await, path("orphan"), token().to_string());
        let node = RawNode { session, path: lock.as_str(), id: &id, ttl: TTL, renews: true };
        create_node(&observer, node).await.unwrap();
        observer.execute("DELETE FROM zlock.session WHERE id = $1", &[&session]).await.unwrap();
        let client = zlock_recipes::Client::new(backend(server).await);
        let guard = client.mutex(lock.as_str()).unwrap().acquire().await.unwrap();
        assert_eq!(names(&observer, &lock).await, [guard.node().as_str()]);
        guard.release().await.unwrap();
    })
    .await;
}

/// A lock of the database is kept for long. Requests that were given up do not keep server processes.
#[tokio::test]
async fn requests_that_were_given_up_leave_no_processes() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::start().await;
        let (client, lock) = (backend(&server).await, path("kept"));
        let operator = observer(&server).await;
        let keep = "SELECT pg_advisory_lock(2053861219, hashtext($1))";
        operator.execute(keep, &[&lock.as_str()]).await.unwrap();
        let client = zlock_recipes::Client::new(client);
        let mutex = client.mutex(lock.as_str()).unwrap();
        let error = mutex.acquire_timeout(Duration::from_secs(12)).await.unwrap_err();
        let waiting =
            "SELECT count(*), count(*) FILTER (WHERE query_start < clock_timestamp() - interval '6 s')
            FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        let row = operator.query_one(waiting, &[]).await.unwrap();
        let (processes, old): (i64, i64) = (row.get(0), row.get(1));
        report(format!("{processes} processes wait after 12 s: {error}"));
        assert_eq!(old, 0, "the server ends each after 3 s");
    })
    .await;
}

/// A create arrives when its session is over; and one that was begun before that takes effect, and is removed with the session.
#[tokio::test]
async fn a_late_create_of_a_session_that_is_over_is_refused() {
    limit(async {
        let Some((server, mut one)) = server().await else { return };
        let (session, lock, ids) = (begin_session(&one).await, path("over"), [token(), token(), token()]);
        let ids = ids.map(|id| id.to_string());
        let node = |n: usize| RawNode { session, path: lock.as_str(), id: &ids[n], ttl: TTL, renews: true };
        let other = observer(server).await;
        let elsewhere = path("elsewhere");
        create_node(&one, RawNode { path: elsewhere.as_str(), ..node(0) }).await.unwrap();
        // This one does not write the session's row, so only a lock of the session keeps its end waiting.
        let open = one.transaction().await.unwrap();
        create_node(&open, RawNode { renews: false, ..node(1) }).await.unwrap();
        let end = async {
            other.execute("SELECT zlock.v1_end($1)", &[&session]).await.unwrap();
            while !other.query("SELECT * FROM zlock.v1_clean($1)", &[&session]).await.unwrap().is_empty() {}
        };
        let commit = async {
            sleep(Duration::from_millis(200)).await;
            open.commit().await.unwrap();
        };
        tokio::join!(end, commit);
        assert!(names(&other, &lock).await.is_empty(), "a node without a session is left");
        assert_eq!(sqlstate(create_node(&other, node(2)).await), "ZL001");
        assert!(names(&other, &lock).await.is_empty());
    })
    .await;
}

/// A heartbeat that arrives when its session was ended, or is gone, brings nothing back.
#[tokio::test]
async fn a_late_heartbeat_revives_nothing() {
    limit(async {
        let Some((_, observer)) = server().await else { return };
        let (session, lock, id) = (begin_session(&observer).await, path("late"), token().to_string());
        let node = RawNode { session, path: lock.as_str(), id: &id, ttl: TTL, renews: true };
        let beat = create_node(&observer, node).await.unwrap()[0].2;
        let send = async || -> i32 {
            let sql = "SELECT outcome FROM zlock.v1_beat($1, 60000, NULL, false, '{}')";
            observer.query_one(sql, &[&session]).await.unwrap().get(0)
        };
        let expire = async || -> bool {
            let sql = "SELECT zlock.v1_expire($1, $2)";
            observer.query_one(sql, &[&session, &beat]).await.unwrap().get(0)
        };
        assert_eq!(send().await, 0);
        assert!(!expire().await, "whoever has seen an older heartbeat only ends nothing");
        observer.execute("SELECT zlock.v1_end($1)", &[&session]).await.unwrap();
        assert_eq!(send().await, 1);
        while !observer.query("SELECT * FROM zlock.v1_clean($1)", &[&session]).await.unwrap().is_empty() {}
        assert_eq!(send().await, 1);
        let left = observer.query("SELECT 1 FROM zlock.session WHERE id = $1", &[&session]).await.unwrap();
        assert!(left.is_empty() && names(&observer, &lock).await.is_empty());
    })
    .await;
}

/// The holder's process has ended without a word. None of the processes that try the lock lives for long enough to watch it.
#[tokio::test]
async fn processes_that_live_shortly_free_a_dead_lock() {
    const DEAD: Duration = Duration::from_secs(1);
    limit(async {
        let Some((server, observer)) = server().await else { return };
        let (session, lock, id) = (begin_session(&observer).await, path("short"), token().to_string());
        let began = Instant::now();
        let node = RawNode { session, path: lock.as_str(), id: &id, ttl: DEAD, renews: true };
        create_node(&observer, node).await.unwrap();
        loop {
            let client = zlock_recipes::Client::new(backend(server).await);
            let tried = client.mutex(lock.as_str()).unwrap().try_acquire().await.unwrap();
            let is_free = tried.is_some();
            drop(tried);
            client.close().await.unwrap();
            if is_free {
                break;
            }
            assert!(began.elapsed() < 10 * DEAD, "the lock stays held");
            sleep(DEAD / 5).await;
        }
        let took = began.elapsed();
        report(format!("free after {took:.1?}, with a session timeout of {DEAD:?}"));
        assert!(took >= 2 * DEAD, "{took:?}: one look at the server's clock was enough");
    })
    .await;
}

/// A waiter sees by its own clock that the holder is dead: after one session timeout, not two.
#[tokio::test]
async fn a_waiter_frees_a_dead_lock_after_one_timeout() {
    const DEAD: Duration = Duration::from_secs(6);
    limit(async {
        let Some((server, observer)) = server().await else { return };
        let (session, lock, id) = (begin_session(&observer).await, path("watched"), token().to_string());
        let node = RawNode { session, path: lock.as_str(), id: &id, ttl: DEAD, renews: true };
        create_node(&observer, node).await.unwrap();
        let client = zlock_recipes::Client::new(backend(server).await);
        let began = Instant::now();
        let guard = client.mutex(lock.as_str()).unwrap().acquire().await.unwrap();
        let took = began.elapsed();
        report(format!("free after {took:.1?}, with a session timeout of {DEAD:?}"));
        assert!(took >= DEAD, "{took:?}: before the holder knows");
        assert!(took < 2 * DEAD - Duration::from_secs(1), "{took:?}: by the server's clock");
        guard.release().await.unwrap();
    })
    .await;
}

/// The commits of heartbeats hang for longer than the session: the holder reports the loss in time.
#[tokio::test]
async fn a_heartbeat_whose_commit_hangs_keeps_nothing() {
    const TTL: Duration = Duration::from_secs(1);
    limit_if(have_postgres(), async {
        let server = PostgresServer::start().await;
        let options = options(&server.addr().to_string()).with_ttl(TTL);
        let holder = PostgresBackend::connect(options).await.unwrap();
        let guard = zlock_recipes::Client::new(holder).mutex("/hanging").unwrap().acquire().await.unwrap();
        sleep(TTL).await;
        assert!(guard.is_held());
        // No replica confirms a commit.
        server.set("synchronous_standby_names", "*").await;
        let (error, took) = timed(guard.lost()).await;
        assert_eq!(error.kind(), ErrorKind::SessionLost, "{error}");
        assert!(took <= TTL, "lost after {took:?}");
        sleep(2 * TTL).await;
        server.set("synchronous_standby_names", "").await;
        let other = backend(&server).await;
        let other = zlock_recipes::Client::new(other);
        let next = other.mutex("/hanging").unwrap().acquire().await.unwrap();
        assert!(next.is_held() && !guard.is_held());
    })
    .await;
}

/// The user's commits do not wait for the disk, but zlock's do: a node whose create was answered is there after a crash.
#[tokio::test]
async fn a_crash_loses_no_node_that_was_confirmed() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::builder().parameter("wal_writer_delay", "10s").start().await;
        drop(backend(&server).await);
        server.sql("ALTER ROLE zlock SET synchronous_commit = off; CREATE TABLE lost (n int)").await;
        server.sql("GRANT ALL ON lost TO zlock").await;
        let (holder, lock) = (backend(&server).await, path("crash"));
        let sql = "SELECT setting FROM pg_settings WHERE name = 'synchronous_commit'";
        let user = options(&server.addr().to_string()).connect_client().await.unwrap();
        assert_eq!(user.query_one(sql, &[]).await.unwrap().get::<_, String>(0), "off");
        let node = create(&holder, &lock, Label::Lock).await.node;
        server.stop();
        server.restart().await;
        until("the server is back", async || server.try_sql("SELECT 1").await.is_ok()).await;
        let observer = observer(&server).await;
        assert_eq!(names(&observer, &lock).await, [node.id.as_str()]);
    })
    .await;
}
