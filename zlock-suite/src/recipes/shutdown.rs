//! A client that is shut down, and what it says of its health.

use std::future::Future;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use zlock_core::{Close, ErrorKind, Result, SessionState};
use zlock_recipes::Release;

use crate::case::{LONG, soon};
use crate::{Call, Case, Mutual, TestGuard, TestLock};

/// Short beside a session timeout.
const MOMENT: Duration = Duration::from_millis(200);

/// Longer than any wait of a case, so that what ends only with the grace period is noticed.
const GRACE: Duration = Duration::from_secs(2 * LONG.as_secs());

/// Asserts that an acquisition ends because the client is shutting down.
async fn refused<T>(acquisition: impl Future<Output = Result<T>>) {
    match soon("an acquisition is refused", acquisition).await {
        Ok(_) => panic!("an acquisition was not refused"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ShuttingDown, "{error}"),
    }
}

/// Waiters end at once and their places go; the holder is asked, and the client waits for its release.
pub async fn waiters_end_and_holders_are_asked<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let (mine, others) = (case.lock::<M>(&a, "lock"), case.lock::<M>(&b, "lock"));
    let guard = mine.acquire().await.unwrap();
    let waiter = tokio::spawn({
        let mine = mine.clone();
        async move { mine.acquire().await.map(drop) }
    });
    case.until_queued(&path, M::places(2, 1)).await;
    assert!(a.client.health().is_ready(), "{}", a.client.health());
    let asked = tokio::spawn(async move {
        guard.revocation_requested().await.unwrap();
        assert!(guard.is_held());
        guard
    });
    sleep(MOMENT).await;
    assert!(!asked.is_finished() && !waiter.is_finished());
    let shutdown = tokio::spawn({
        let client = a.client.clone();
        async move { client.shutdown(GRACE).await.unwrap() }
    });
    refused(async { waiter.await.unwrap() }).await;
    case.until_queued(&path, 1).await;
    let guard = soon("the holder is asked", asked).await.unwrap();
    let creates = a.faults.count(Call::Create);
    refused(mine.acquire()).await;
    refused(mine.try_acquire()).await;
    for time in [Duration::ZERO, LONG] {
        refused(mine.acquire_timeout(time)).await;
    }
    assert_eq!(a.faults.count(Call::Create), creates, "nothing was sent");
    let again = guard.reenter().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::StillHeld);
    sleep(MOMENT).await;
    assert!(!shutdown.is_finished() && again.is_held(), "it waits for the holder's last guard");
    assert!(!a.client.health().is_ready() && a.client.health().is_shutting_down);
    assert_eq!(again.release().await.unwrap(), Release::Released);
    let outcome = soon("the shutdown ends with the last guard", shutdown).await.unwrap();
    assert_eq!((outcome.still_held, outcome.close), (0, Close::Ended));
    refused(mine.acquire()).await;
    let guard = others.acquire_timeout(LONG).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// A holder that does not release its lock loses it at the end of the grace period, and is counted.
pub async fn the_grace_period_ends<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let outcome = soon("the grace period ends", a.client.shutdown(MOMENT)).await.unwrap();
    assert_eq!((outcome.still_held, outcome.close), (M::NODES, Close::Ended));
    assert!(!guard.is_held());
    assert_eq!(soon("the lock is lost", guard.lost()).await.kind(), ErrorKind::Closed);
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
    let outcome = soon("nothing is held any more", a.client.shutdown(GRACE)).await.unwrap();
    assert_eq!((outcome.still_held, outcome.close), (0, Close::Ended), "again");
    let guard = case.lock::<M>(&b, "lock").acquire_timeout(LONG).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// Dropping the future leaves a client that acquires nothing, keeps what it has, and can be shut down again.
pub async fn a_dropped_shutdown<M: Mutual>(case: &Case<'_>) {
    let a = case.process().await;
    let lock = case.lock::<M>(&a, "lock");
    let guard = lock.acquire().await.unwrap();
    assert!(timeout(MOMENT, a.client.shutdown(GRACE)).await.is_err());
    refused(lock.acquire()).await;
    assert!(guard.is_held());
    soon("the holder is asked", guard.revocation_requested()).await.unwrap();
    drop(guard);
    let outcome = soon("nothing is held any more", a.client.shutdown(GRACE)).await.unwrap();
    assert_eq!((outcome.still_held, outcome.close), (0, Close::Ended));
}

/// A client that hears nothing from the store is not ready before it loses its locks, and ready again afterwards.
pub async fn unready_before_the_loss<M: Mutual>(case: &Case<'_>) {
    let a = case.process().await;
    let lock = case.lock::<M>(&a, "lock");
    let guard = lock.acquire().await.unwrap();
    assert!(a.client.health().is_ready());
    case.links().freeze(&a.connection).await;
    case.until("the client is not ready", async || !a.client.health().is_ready()).await;
    assert!(guard.is_held(), "not after the loss: {}", a.client.health());
    let loss = timeout(LONG + 2 * case.store.session_timeout(), guard.lost());
    assert_eq!(loss.await.unwrap().kind(), ErrorKind::SessionLost);
    assert!(!a.client.health().is_ready());
    case.links().heal(&a.connection).await;
    case.until_session(&a, 2, SessionState::Connected).await;
    case.until("the client is ready", async || a.client.health().is_ready()).await;
    drop(guard);
}
