//! The promotion of a replica, and an old primary that comes back.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock_mysql::{MysqlBackend, MysqlOptions};
use zlock_recipes::{Client, Guard};
use zlock_testkit::mysql::{catch_up, cut_off, eventually, follow, path, promote, release, sql};
use zlock_testkit::{MariaDb, have_mariadb, limit_if, report};

/// The longest session timeout that the database allows, for which nothing is granted after a failover.
const QUIET: Duration = Duration::from_secs(3);

/// Connects with the first of these servers that accepts writes.
async fn connect(servers: [&MariaDb; 2]) -> Client {
    connect_as("zlock", servers).await
}

async fn connect_as(user: &str, servers: [&MariaDb; 2]) -> Client {
    let options = MysqlOptions::new(servers.map(|server| server.addr().to_string()))
        .with_user(user, None)
        .with_database("zlock")
        .with_create_schema(true)
        .with_ttl(Duration::from_secs(2));
    Client::new(MysqlBackend::connect(options).await.unwrap())
}

/// Starts a server and a replica of it, and creates the schema.
async fn pair() -> (MariaDb, MariaDb) {
    let start = async |id| MariaDb::start(&["--log-bin", "--log-slave-updates", id]).await;
    let (primary, replica) = tokio::join!(start("--server-id=1"), start("--server-id=2"));
    follow(&replica, &primary).await;
    drop(connect_as("root", [&replica, &primary]).await);
    sql::<u8>(&primary, &format!("UPDATE zlock_setting SET longest = {}", QUIET.as_millis()), ()).await;
    catch_up(&replica, &primary).await;
    (primary, replica)
}

/// Waits until the guard is lost, and until another client is granted its lock: later, after quiet time, and with a greater token.
async fn taken_over(what: &str, held: &Guard, by: &Client, lock: &str) -> Guard {
    let began = Instant::now();
    let holder = async {
        let error = held.lost().await;
        assert!(error.is_lock_lost(), "{error}");
        began.elapsed()
    };
    let next = async {
        let guard = eventually(by, lock).await;
        (began.elapsed(), guard)
    };
    let (knew, (granted, next)) = tokio::join!(holder, next);
    report(format!("{what}: lost after {knew:.1?}, granted again after {granted:.1?}"));
    assert!(knew < granted && granted >= QUIET, "lost after {knew:?}, granted after {granted:?}");
    let (before, after) = (held.fencing_token(), next.fencing_token());
    assert!(after > before, "{after} after {before}");
    next
}

/// Confirmed locks are lost with the primary. Their holders know that before anybody else is granted one, and no token is given
/// out twice.
#[tokio::test]
async fn a_promotion_that_loses_locks_gives_none_to_two() {
    limit_if(have_mariadb(), async {
        let (primary, replica) = pair().await;
        let (one, two) = (connect([&replica, &primary]).await, connect([&replica, &primary]).await);
        let (lost, kept) = (path("lost"), path("kept"));
        let kept = one.mutex(kept.as_str()).unwrap().acquire().await.unwrap();
        catch_up(&replica, &primary).await;
        cut_off(&replica).await;
        // The replica knows nothing of these numbers.
        for _ in 0..50 {
            release(two.mutex(lost.as_str()).unwrap().acquire().await.unwrap()).await;
        }
        let held = one.mutex(lost.as_str()).unwrap().acquire().await.unwrap();
        let nodes: Vec<i64> = sql(&replica, "SELECT COUNT(*) FROM zlock_entry WHERE kind = 0", ()).await;
        assert_eq!(nodes, [1], "only the lock that is kept was replicated");
        primary.stop();
        promote(&replica).await;
        let next = taken_over("after the promotion", &held, &two, lost.as_str()).await;
        assert!(!kept.is_held(), "all sessions end");
        release(next).await;
    })
    .await;
}

/// The promoted server dies, too, and the old primary is started again: a server with an older history.
#[tokio::test]
async fn an_old_primary_that_is_started_again_gives_none_to_two() {
    limit_if(have_mariadb(), async {
        let (primary, replica) = pair().await;
        let (one, two) = (connect([&primary, &replica]).await, connect([&primary, &replica]).await);
        let lock = path("back");
        primary.stop();
        promote(&replica).await;
        let held = eventually(&one, lock.as_str()).await;
        replica.stop();
        primary.restart().await;
        let next = taken_over("after the old primary is back", &held, &two, lock.as_str()).await;
        release(next).await;
    })
    .await;
}

/// The old primary is started again beside the new one, and accepts writes. Who names the new one first has nothing to do with it.
#[tokio::test]
async fn an_old_primary_beside_the_new_one_gets_no_client_that_names_it_last() {
    limit_if(have_mariadb(), async {
        let (primary, replica) = pair().await;
        let (one, two) = (connect([&replica, &primary]).await, connect([&replica, &primary]).await);
        let lock = path("beside");
        primary.stop();
        promote(&replica).await;
        let held = eventually(&one, lock.as_str()).await;
        primary.restart().await;
        let three = connect([&replica, &primary]).await;
        // Long enough for sessions to end.
        sleep(QUIET).await;
        for client in [&two, &three] {
            let guard = client.mutex(lock.as_str()).unwrap().try_acquire().await.unwrap();
            assert!(guard.is_none() && held.is_held(), "it is held");
        }
        let token = held.fencing_token();
        release(held).await;
        let next = eventually(&three, lock.as_str()).await;
        assert!(next.fencing_token() > token);
        release(next).await;
        let lives: Vec<i64> = sql(&primary, "SELECT n FROM zlock_incarnation", ()).await;
        assert_eq!(lives, [1], "a client has used the old primary");
    })
    .await;
}

/// An operator makes the replica the primary, and the primary a replica. Nothing is lost, and neither is started again.
async fn switch(primary: &MariaDb, replica: &MariaDb) {
    sql::<u8>(primary, "SET GLOBAL read_only = 1", ()).await;
    catch_up(replica, primary).await;
    promote(replica).await;
    follow(primary, replica).await;
}

/// It is the same life of the server, and others have held locks meanwhile.
#[tokio::test]
async fn a_primary_that_was_a_replica_meanwhile_gives_no_lock_to_two() {
    limit_if(have_mariadb(), async {
        let (primary, replica) = pair().await;
        let (one, two) = (connect([&primary, &replica]).await, connect([&primary, &replica]).await);
        let lock = path("again");
        // Its connections know the first life, and stay.
        release(eventually(&two, lock.as_str()).await).await;
        switch(&primary, &replica).await;
        let held = eventually(&one, lock.as_str()).await;
        switch(&replica, &primary).await;
        let next = taken_over("after the switch back", &held, &two, lock.as_str()).await;
        release(next).await;
    })
    .await;
}
