//! Entering a held lock again, for locks that allow it.

use std::time::Duration;

use zlock_core::{ErrorKind, SessionState};
use zlock_recipes::{Lock, LockGuard, Release};

use crate::case::LONG;
use crate::{Case, Tasks};

const SHORT: Duration = Duration::from_millis(200);

/// MX-07: three levels inside a scope: held after the first two releases, free after the third. Another client's timed
/// acquire fails throughout.
pub async fn mx_07_reentrant<M: Tasks>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (lock, others) = (case.lock::<M>(&a, "lock"), case.lock::<M>(&b, "lock"));
    let refused = async |when: &str| {
        let error = others.acquire_timeout(SHORT).await.expect_err(when);
        assert_eq!(error.kind(), ErrorKind::Busy, "{when}");
    };
    let first = lock.acquire().await.unwrap();
    let token = first.guards()[0].fencing_token();
    let (second, third) = first
        .scope(async {
            let second = lock.acquire().await.unwrap();
            let third = second.scope(async { lock.acquire_timeout(SHORT).await.unwrap() }).await;
            (second, third)
        })
        .await;
    assert_eq!((second.guards()[0].fencing_token(), third.guards()[0].fencing_token()), (token, token));
    refused("three deep").await;
    assert_eq!(first.release().await.unwrap(), Release::StillHeld);
    refused("two deep").await;
    assert!(third.is_held() && lock.is_acquired_in_this_process());
    assert_eq!(third.release().await.unwrap(), Release::StillHeld);
    refused("one deep").await;
    assert_eq!(second.release().await.unwrap(), Release::Released);
    assert_eq!(others.acquire_timeout(SHORT).await.unwrap().release().await.unwrap(), Release::Released);
}

/// MX-07: a try inside the scope enters again, too; another instance on the same path is the same lock.
pub async fn mx_07_reentrant_by_try_and_by_another_instance<M: Tasks>(case: &Case<'_>) {
    let process = case.process().await;
    let (lock, other) = (case.lock::<M>(&process, "lock"), case.lock::<M>(&process, "lock"));
    let guard = lock.acquire().await.unwrap();
    let creates = process.faults.total();
    let again = guard.scope(async { other.try_acquire().await.unwrap().unwrap() }).await;
    assert_eq!(process.faults.total(), creates, "no request");
    assert_eq!(guard.release().await.unwrap(), Release::StillHeld);
    assert_eq!(again.release().await.unwrap(), Release::Released);
}

/// T18: reentry after the loss of the session is an error, by scope, by guard and by try.
pub async fn t18_no_reentry_after_the_loss<M: Tasks>(case: &Case<'_>) {
    let a = case.process().await;
    let lock = case.lock::<M>(&a, "lock");
    let guard = lock.acquire().await.unwrap();
    case.links().cut(&a.connection).await;
    case.until_session(&a, 1, SessionState::Lost).await;
    let refused = async || {
        let calls = a.faults.total();
        let errors = guard
            .scope(async {
                [
                    lock.acquire().await.map(|_| ()),
                    lock.try_acquire().await.map(|_| ()),
                    lock.acquire_timeout(LONG).await.map(|_| ()),
                    guard.reenter().map(|_| ()),
                ]
            })
            .await;
        assert!(errors.into_iter().all(|e| e.unwrap_err().kind() == ErrorKind::SessionLost));
        assert_eq!(a.faults.total(), calls, "no request");
    };
    refused().await;
    case.links().heal(&a.connection).await;
    case.until_session(&a, 2, SessionState::Connected).await;
    refused().await;
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
}
