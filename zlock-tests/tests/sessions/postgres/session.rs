//! How a session on PostgreSQL ends, and what cannot end or delay it.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zlock_core::{ErrorKind, Label};
use zlock_postgres::PostgresBackend;
use zlock_suite::timed;
use zlock_testkit::postgres::{Linked, backend, create, linked_with, names, observer, options, path};
use zlock_testkit::{PostgresServer, have_postgres, limit, limit_if, postgres_or_skip, report, until};

/// A stranger with no rights in the schema holds advisory locks, which delay nobody.
#[tokio::test]
async fn a_stranger_blocks_no_lock() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        let (lock, stranger) = (path("stranger"), observer(server).await);
        for sql in
            ["SELECT pg_advisory_lock(hashtext($1))", "SELECT pg_advisory_lock(hashtextextended($1, 0))"]
        {
            stranger.execute(sql, &[&lock.as_str()]).await.unwrap();
        }
        let client = zlock_recipes::Client::new(backend(server).await);
        client.mutex(lock.as_str()).unwrap().acquire().await.unwrap().release().await.unwrap();
    })
    .await;
}

/// The holder's process has ended without a word. None of the processes that try the lock lives for long enough to watch it.
#[tokio::test]
async fn processes_that_live_shortly_free_a_dead_lock() {
    const DEAD: Duration = Duration::from_secs(1);
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        let Linked { proxy, backend: dead, .. } = linked_with(server, |options| options.with_ttl(DEAD)).await;
        let lock = path("short");
        let _held = zlock_recipes::Client::new(dead).mutex(lock.as_str()).unwrap().acquire().await.unwrap();
        proxy.freeze().await;
        let began = Instant::now();
        loop {
            let client = zlock_recipes::Client::new(backend(server).await);
            let mutex = client.mutex(lock.as_str()).unwrap();
            let tried = mutex.acquire_timeout(DEAD / 4).await;
            client.close().await.unwrap();
            if tried.is_ok() {
                break;
            }
            assert!(began.elapsed() < 10 * DEAD, "the lock stays held");
        }
        let took = began.elapsed();
        report(format!("free after {took:.1?}, with a session timeout of {DEAD:?}"));
        assert!(took >= DEAD / 2, "{took:?}: before the holder knows");
    })
    .await;
}

/// A waiter sees by its own clock that the holder is dead: after one session timeout, not two.
#[tokio::test]
async fn a_waiter_frees_a_dead_lock_after_one_timeout() {
    const DEAD: Duration = Duration::from_secs(6);
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        let Linked { proxy, backend: dead, .. } = linked_with(server, |options| options.with_ttl(DEAD)).await;
        let lock = path("watched");
        let _held = zlock_recipes::Client::new(dead).mutex(lock.as_str()).unwrap().acquire().await.unwrap();
        proxy.freeze().await;
        let client = zlock_recipes::Client::new(backend(server).await);
        let began = Instant::now();
        let guard = client.mutex(lock.as_str()).unwrap().acquire().await.unwrap();
        let took = began.elapsed();
        report(format!("free after {took:.1?}, with a session timeout of {DEAD:?}"));
        assert!(took < 2 * DEAD - Duration::from_secs(1), "{took:?}");
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

/// Many tasks on several threads wake a session that rests, each with a heartbeat. That these overtake each other is no sign of lost
/// commits, which would end all sessions of the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn heartbeats_that_overtake_each_other_end_no_session() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        for _ in 0..30 {
            let client = zlock_recipes::Client::new(backend(server).await);
            let mut tasks = JoinSet::new();
            for _ in 0..50 {
                let mutex = client.mutex(path("woken").as_str()).unwrap();
                tasks.spawn(async move { mutex.acquire().await.unwrap().release().await.unwrap() });
            }
            tasks.join_all().await;
            assert_eq!(client.session_events().current().epoch, 1);
        }
    })
    .await;
}
