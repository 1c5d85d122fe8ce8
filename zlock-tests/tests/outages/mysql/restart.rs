//! Restarts of a server, and a dump that is put back.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock_core::SessionState;
use zlock_mysql::{MysqlBackend, MysqlOptions};
use zlock_recipes::Client;
use zlock_testkit::mysql::{eventually, path, release, sql};
use zlock_testkit::{MariaDb, have_mariadb, limit_if, report};

/// The longest session timeout that the database allows, for which nothing is granted after a restart that may have lost commits.
const QUIET: Duration = Duration::from_secs(3);

async fn connect(server: &MariaDb, ttl: u64) -> Client {
    let options =
        MysqlOptions::new([server.addr().to_string()]).with_database("zlock").with_user("zlock", None);
    let options = options.with_create_schema(true).with_ttl(Duration::from_secs(ttl));
    Client::new(MysqlBackend::connect(options).await.unwrap())
}

/// A server that flushes each commit and has no binary log loses nothing: the lock stays held, and others are granted at once.
#[tokio::test]
async fn locks_survive_a_restart_that_loses_nothing() {
    limit_if(have_mariadb(), async {
        let server = MariaDb::start(&[]).await;
        let client = connect(&server, 10).await;
        let (lock, other) = (path("held"), path("other"));
        let held = client.mutex(lock.as_str()).unwrap().acquire().await.unwrap();
        server.restart().await;
        let second = connect(&server, 10).await;
        release(eventually(&second, other.as_str()).await).await;
        let busy = second.mutex(lock.as_str()).unwrap().try_acquire().await.unwrap();
        assert!(busy.is_none() && held.is_held(), "it is held");
        assert_eq!(client.session_events().current().epoch, 1);
        let token = held.fencing_token();
        release(held).await;
        let next = eventually(&second, lock.as_str()).await;
        assert!(next.fencing_token() > token);
        release(next).await;
    })
    .await;
}

/// With a binary log there may be a replica, and a restart may be that of a server that had lost commits: all sessions end, whoever held
/// knows that before anybody else is granted the lock, and no token is given out twice.
#[tokio::test]
async fn a_restart_that_may_lose_commits_gives_no_lock_to_two() {
    limit_if(have_mariadb(), async {
        let server = MariaDb::start(&["--log-bin"]).await;
        let (one, two) = (connect(&server, 2).await, connect(&server, 2).await);
        sql::<u8>(&server, &format!("UPDATE zlock_setting SET longest = {}", QUIET.as_millis()), ()).await;
        let lock = path("lossy");
        release(two.mutex(lock.as_str()).unwrap().acquire().await.unwrap()).await;
        let held = one.mutex(lock.as_str()).unwrap().acquire().await.unwrap();
        // As after a failover to a replica that has seen nothing of it.
        sql::<u8>(&server, "UPDATE zlock_stripe SET last = 0", ()).await;
        // The server says only in which second it has started.
        sleep(Duration::from_secs(1)).await;
        server.restart().await;
        let back = Instant::now();
        let holder = async {
            let error = held.lost().await;
            assert!(error.is_lock_lost(), "{error}");
            back.elapsed()
        };
        let next = async {
            let guard = eventually(&two, lock.as_str()).await;
            (back.elapsed(), guard)
        };
        let (knew, (granted, next)) = tokio::join!(holder, next);
        report(format!("after the restart: lost after {knew:.1?}, granted after {granted:.1?}"));
        assert!(knew < granted && granted >= QUIET, "lost after {knew:?}, granted after {granted:?}");
        let (before, after) = (held.fencing_token(), next.fencing_token());
        assert!(after > before, "{after} after {before}");
        release(next).await;
    })
    .await;
}

/// An operator says that the tables were put back: all sessions are over.
#[tokio::test]
async fn restored_tables_end_all_sessions() {
    limit_if(have_mariadb(), async {
        let server = MariaDb::start(&[]).await;
        let client = connect(&server, 2).await;
        sql::<u8>(&server, &format!("UPDATE zlock_setting SET longest = {}", QUIET.as_millis()), ()).await;
        let lock = path("restored");
        let held = client.mutex(lock.as_str()).unwrap().acquire().await.unwrap();
        let restored = Instant::now();
        as_a_client(&server).await;
        assert!(held.lost().await.is_lock_lost());
        let next = eventually(&client, lock.as_str()).await;
        assert!(restored.elapsed() >= QUIET, "{:?}", restored.elapsed());
        assert!(next.fencing_token() > held.fencing_token());
        assert_eq!(client.session_events().current().state, SessionState::Connected);
        release(next).await;
    })
    .await;
}

/// Calls the procedure, for which the connection has to know the server.
async fn as_a_client(server: &MariaDb) {
    use mysql_async::prelude::Queryable;

    let options =
        MysqlOptions::new([server.addr().to_string()]).with_database("zlock").with_user("zlock", None);
    let mut conn = options.connect_client().await.unwrap();
    conn.query_drop("CALL zlock_open()").await.unwrap();
    conn.query_drop("CALL zlock_restored(NULL)").await.unwrap();
}
