//! Steps of the server's clock.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock_core::{CoordinationBackend, Label};
use zlock_postgres::PostgresBackend;
use zlock_recipes::Client;
use zlock_testkit::postgres::{backend, create, options, path};
use zlock_testkit::{FaultProxy, PostgresServer, have_faketime, limit_if, report};

const TTL: Duration = Duration::from_secs(1);
const HOUR: i64 = 3600;

/// The clock steps forward by an hour while a holder is connected, which loses nothing; and back by two, after which the lock of a
/// holder that is cut off is free all the same.
#[tokio::test]
async fn no_step_ends_a_session_that_is_alive_or_keeps_one_that_is_dead() {
    limit_if(have_faketime(), async {
        let server = PostgresServer::builder().own_clock().start().await;
        let proxy = FaultProxy::start(server.addr()).await;
        let holder = options(&proxy.connect_string()).with_ttl(TTL);
        let holder = Client::new(PostgresBackend::connect(holder).await.unwrap());
        let lock = path("clock");
        let guard = holder.mutex(lock.as_str()).unwrap().acquire().await.unwrap();
        let waits = Client::new(backend(&server).await);
        let waits = waits.mutex(lock.as_str()).unwrap();
        let waiting = tokio::spawn(async move { waits.acquire().await.unwrap() });
        for step in [HOUR, -HOUR, 0] {
            server.step_clock(step);
            sleep(TTL * 3 / 2).await;
            assert!(guard.is_held() && !waiting.is_finished(), "after a step by {step} s");
        }
        assert_eq!(holder.session_events().current().epoch, 1);
        proxy.freeze().await;
        let began = Instant::now();
        // The session seems to be renewed just now, for an hour.
        server.step_clock(-HOUR);
        let next = waiting.await.unwrap();
        assert!(!guard.is_held());
        report(format!("the lock of a dead holder is free after {:.1?}", began.elapsed()));
        next.release().await.unwrap();
    })
    .await;
}

/// A client that only lists, too, ends the session of a dead holder after a step back.
#[tokio::test]
async fn after_a_step_back_a_dead_session_is_found_by_its_future() {
    limit_if(have_faketime(), async {
        let server = PostgresServer::builder().own_clock().start().await;
        let proxy = FaultProxy::start(server.addr()).await;
        let dead = PostgresBackend::connect(options(&proxy.connect_string()).with_ttl(TTL)).await.unwrap();
        let lock = path("future");
        create(&dead, &lock, Label::Lock).await;
        proxy.freeze().await;
        server.step_clock(-HOUR);
        let looks = backend(&server).await;
        let began = Instant::now();
        while !looks.children(&lock, None).await.unwrap().is_empty() {
            assert!(began.elapsed() < 10 * TTL, "the lock stays held");
            sleep(TTL / 5).await;
        }
        assert!(began.elapsed() >= TTL, "{:?}", began.elapsed());
    })
    .await;
}

/// The clock of a promoted server is set back by an hour, in its time without grants and after it. Once, nothing was granted until the
/// clock had caught up (`cargo xtask chaos --store postgres --minutes 7 --seed 420026` with the plan of then).
#[tokio::test]
async fn no_step_back_after_a_promotion_keeps_a_lock_from_being_granted() {
    limit_if(have_faketime(), async {
        let primary = PostgresServer::builder().own_clock().start().await;
        drop(backend(&primary).await);
        primary.sql("UPDATE zlock.setting SET longest = '1 s'").await;
        let replica = primary.replica().await;
        replica.catch_up(&primary).await;
        primary.stop();
        replica.promote().await;
        let client = options(&replica.addr().to_string()).with_ttl(TTL);
        let client = Client::new(PostgresBackend::connect(client).await.unwrap());
        let mutex = client.mutex(path("back").as_str()).unwrap();
        for step in [-HOUR, -2 * HOUR] {
            replica.step_clock(step);
            let acquired = async {
                loop {
                    if let Ok(guard) = mutex.acquire().await {
                        return guard;
                    }
                }
            };
            let guard = timeout(20 * TTL, acquired).await.expect("a grant");
            guard.release().await.unwrap();
        }
    })
    .await;
}
