//! The promotion of a replica that lacks what the primary has confirmed.

use std::time::Duration;

use tokio::time::Instant;
use zlock_core::ErrorKind;
use zlock_postgres::{PostgresBackend, PostgresOptions};
use zlock_recipes::{Client, Release};
use zlock_testkit::postgres::{backend, path};
use zlock_testkit::{PostgresServer, have_postgres, limit_if, report};

/// The longest session timeout that the database allows, for which nothing is granted after a failover.
const QUIET: Duration = Duration::from_secs(3);

/// Starts a server with the schema, and a replica of it.
async fn pair() -> (PostgresServer, PostgresServer) {
    let primary = PostgresServer::start().await;
    drop(backend(&primary).await);
    primary.sql(&format!("UPDATE zlock.setting SET longest = '{} s'", QUIET.as_secs())).await;
    let replica = primary.replica().await;
    (primary, replica)
}

fn both(primary: &PostgresServer, replica: &PostgresServer) -> PostgresOptions {
    PostgresOptions::new([primary, replica].map(|server| server.addr().to_string()))
        .with_user("zlock", None)
        .with_database("zlock")
        .with_ttl(Duration::from_secs(2))
}

/// Waits out failovers and quiet time.
async fn eventually<T>(mut attempt: impl AsyncFnMut() -> zlock_core::Result<T>) -> T {
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Unavailable | ErrorKind::SessionLost | ErrorKind::Settling
                ) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Confirmed locks are lost with the primary. Their holders know that before anybody else is granted one, and no token is given
/// out twice.
#[tokio::test]
async fn a_promotion_that_loses_locks_gives_none_to_two() {
    limit_if(have_postgres(), async {
        let (primary, replica) = pair().await;
        let (one, two) = (both(&primary, &replica), both(&primary, &replica));
        let one = Client::new(PostgresBackend::connect(one).await.unwrap());
        let two = Client::new(PostgresBackend::connect(two).await.unwrap());
        let (lost, kept) = (path("lost"), path("kept"));
        let kept = one.mutex(kept.as_str()).unwrap().acquire().await.unwrap();
        replica.catch_up(&primary).await;
        replica.cut_off().await;
        // The replica knows nothing of these numbers.
        let mut last = 0;
        for _ in 0..50 {
            let guard = two.mutex(lost.as_str()).unwrap().acquire().await.unwrap();
            last = guard.fencing_token().number();
            guard.release().await.unwrap();
        }
        let held = one.mutex(lost.as_str()).unwrap().acquire().await.unwrap();
        assert!(held.fencing_token().number() > last);
        primary.stop();
        replica.promote().await;
        let promoted = Instant::now();
        let holder = async {
            let error = held.lost().await;
            assert!(error.is_lock_lost(), "{error}");
            promoted.elapsed()
        };
        let next = async {
            let mutex = two.mutex(lost.as_str()).unwrap();
            let guard = eventually(async || mutex.acquire().await).await;
            (promoted.elapsed(), guard)
        };
        let (knew, (granted, next)) = tokio::join!(holder, next);
        report(format!("after the promotion: lost after {knew:.1?}, granted again after {granted:.1?}"));
        assert!(knew < granted, "two clients held");
        assert!(granted >= QUIET, "a holder may not know yet");
        assert!(!kept.is_held(), "all sessions end");
        let (before, after) = (held.fencing_token(), next.fencing_token());
        assert!(after > before, "{after} after {before}");
        next.release().await.unwrap();
    })
    .await;
}

/// The promoted server dies, too, and the old primary is started again: a server with an older history, and with the same timeline.
#[tokio::test]
async fn an_old_primary_that_is_started_again_gives_none_to_two() {
    limit_if(have_postgres(), async {
        let (primary, replica) = pair().await;
        let connect = async || Client::new(PostgresBackend::connect(both(&primary, &replica)).await.unwrap());
        let (one, two) = (connect().await, connect().await);
        let lock = path("back");
        // Looks at what the store is, which has a replica.
        one.mutex(lock.as_str()).unwrap().acquire().await.unwrap().release().await.unwrap();
        primary.stop();
        replica.promote().await;
        let mutex = one.mutex(lock.as_str()).unwrap();
        let held = eventually(async || mutex.acquire().await).await;
        replica.stop();
        primary.restart().await;
        let back = Instant::now();
        let holder = async {
            assert!(held.lost().await.is_lock_lost());
            back.elapsed()
        };
        let mutex = two.mutex(lock.as_str()).unwrap();
        let next = async {
            let guard = eventually(async || mutex.acquire().await).await;
            (back.elapsed(), guard)
        };
        let (knew, (granted, next)) = tokio::join!(holder, next);
        report(format!("after the old primary is back: lost after {knew:.1?}, granted after {granted:.1?}"));
        assert!(knew < granted && granted >= QUIET, "lost after {knew:?}, granted after {granted:?}");
        let (before, after) = (held.fencing_token(), next.fencing_token());
        assert!(after > before, "{after} after {before}");
        next.release().await.unwrap();
    })
    .await;
}

/// It accepts connections, and its commits wait for a replica, which follows nobody any more.
#[tokio::test]
async fn an_old_synchronous_primary_that_is_back_keeps_nobody_from_the_new_one() {
    limit_if(have_postgres(), async {
        let (primary, replica) = pair().await;
        primary.sql("UPDATE zlock.setting SET class = 'sync'").await;
        replica.catch_up(&primary).await;
        primary.set("synchronous_standby_names", "*").await;
        primary.stop();
        replica.promote().await;
        primary.restart().await;
        let client = Client::new(PostgresBackend::connect(both(&primary, &replica)).await.unwrap());
        client.mutex(path("new").as_str()).unwrap().acquire().await.unwrap().release().await.unwrap();
    })
    .await;
}

/// A store whose sessions outlast a failover, since its replica confirms what it must not lose. A release need not be confirmed, so the
/// failover brings its node back. Its client, whose session goes on, removes it again.
#[tokio::test]
async fn a_release_that_a_failover_undoes_blocks_nobody() {
    limit_if(have_postgres(), async {
        let (primary, replica) = pair().await;
        primary.sql("UPDATE zlock.setting SET class = 'sync', longest = '20 s'").await;
        replica.catch_up(&primary).await;
        primary.set("synchronous_standby_names", "*").await;
        // Longer than a failover takes.
        let patient = || both(&primary, &replica).with_ttl(Duration::from_secs(15));
        let connect = async || Client::new(PostgresBackend::connect(patient()).await.unwrap());
        let (one, two, lock) = (connect().await, connect().await, path("undone"));
        let held = one.mutex(lock.as_str()).unwrap().acquire().await.unwrap();
        replica.cut_off().await;
        assert_eq!(held.release().await.unwrap(), Release::Released);
        assert_eq!(replica.sql("SELECT count(*) FROM zlock.entry").await.trim(), "1", "it was confirmed");
        primary.stop();
        replica.promote().await;
        let promoted = Instant::now();
        let mutex = two.mutex(lock.as_str()).unwrap();
        let next = eventually(async || mutex.acquire().await).await;
        report(format!("granted {:.1?} after the promotion", promoted.elapsed()));
        assert_eq!(one.session_events().current().epoch, 1, "the node went with its session");
        next.release().await.unwrap();
    })
    .await;
}

/// A confirmed member is lost with the primary, and its process is cut off. It knows that it may not be registered any more before
/// another one gets its ID.
#[tokio::test]
async fn a_promotion_that_loses_a_member_gives_its_id_to_no_other_one_too_early() {
    limit_if(have_postgres(), async {
        let (primary, replica) = pair().await;
        let alone = PostgresOptions::new([primary.addr().to_string()])
            .with_user("zlock", None)
            .with_database("zlock")
            .with_ttl(Duration::from_secs(2));
        let one = Client::new(PostgresBackend::connect(alone).await.unwrap());
        let two = Client::new(PostgresBackend::connect(both(&primary, &replica)).await.unwrap());
        replica.catch_up(&primary).await;
        replica.cut_off().await;
        let group = path("members");
        let member = one.members(group.as_str()).unwrap().join("w7", "one").await.unwrap();
        primary.stop();
        replica.promote().await;
        let others = two.members(group.as_str()).unwrap();
        let next = eventually(async || others.join("w7", "two").await).await;
        assert!(!member.is_registered(), "two processes have the ID");
        next.leave().await.unwrap();
    })
    .await;
}
