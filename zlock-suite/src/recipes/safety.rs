//! The safety rules (numbered as in `docs/scenarios.md`), and the guarantees of the queue.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use zlock_core::{ErrorKind, SessionState};
use zlock_recipes::Release;

use crate::case::LONG;
use crate::{Call, Case, Mutual, Side, Tasks, TestGuard, TestLock};

/// Rule 1: the session expires between the create and its answer: no grant on a node of a dead session.
pub async fn no_grant_on_a_dead_session<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let lock = case.lock::<M>(&a, "lock");
    let gate = a.faults.hold(Call::Create, Side::After);
    let attempt = tokio::spawn(async move { lock.acquire().await.map(|_| ()) });
    gate.reached().await;
    case.store.expire(&a.connection).await;
    let guard = case.lock::<M>(&b, "lock").acquire_timeout(LONG).await.unwrap();
    case.until_session(&a, 2, SessionState::Connected).await;
    gate.open();
    assert_eq!(attempt.await.unwrap().unwrap_err().kind(), ErrorKind::SessionLost);
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// Rule 1: the same for a try.
pub async fn no_grant_by_try_on_a_dead_session<M: Mutual>(case: &Case<'_>) {
    let a = case.process().await;
    let lock = case.lock::<M>(&a, "lock");
    let gate = a.faults.hold(Call::Create, Side::After);
    let attempt = tokio::spawn(async move { lock.try_acquire().await.map(|_| ()) });
    gate.reached().await;
    case.store.expire(&a.connection).await;
    case.until_session(&a, 2, SessionState::Connected).await;
    gate.open();
    assert_eq!(attempt.await.unwrap().unwrap_err().kind(), ErrorKind::SessionLost);
}

/// Rule 1: a listing that was requested in an earlier epoch, and shows the node at the head, does not grant.
pub async fn no_grant_on_a_stale_listing<M: Tasks>(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let first = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let lock = case.lock::<M>(&b, "lock");
    let gate = b.faults.hold(Call::Children, Side::After);
    let waiter = case.waiting::<M>(&b, lock).await;
    assert_eq!(first.release().await.unwrap(), Release::Released);
    gate.reached().await;
    case.store.expire(&b.connection).await;
    let guard = case.lock::<M>(&c, "lock").acquire_timeout(LONG).await.unwrap();
    case.until_session(&b, 2, SessionState::Connected).await;
    gate.open();
    assert_eq!(waiter.await.unwrap().unwrap_err().kind(), ErrorKind::SessionLost);
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// Rule 1: a waiter whose node an operator deleted gives up, and does not hold when its predecessor leaves.
pub async fn no_grant_without_a_node<M: Mutual>(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let path = case.path("lock");
    let first = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let [before] = names(case, &path).await.try_into().unwrap();
    let (lock, last) = (case.lock::<M>(&b, "lock"), case.lock::<M>(&c, "lock"));
    let waiter = tokio::spawn(async move { lock.acquire().await.map(|_| ()) });
    case.until_queued(&path, 2).await;
    let mine = names(case, &path).await.into_iter().find(|n| *n != before).unwrap();
    let last = tokio::spawn(async move { last.acquire().await.unwrap() });
    case.until_queued(&path, 3).await;
    case.store.remove(&path, &mine).await;
    assert_eq!(first.release().await.unwrap(), Release::Released);
    let guard = last.await.unwrap();
    assert_eq!(waiter.await.unwrap().unwrap_err().kind(), ErrorKind::NodeDeleted);
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// An acquisition whose node is deleted before the create returns queues again.
pub async fn a_place_that_is_deleted_at_once_is_replaced<M: Tasks>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    for is_free in [true, false] {
        let other = case.lock::<M>(&b, "lock");
        let held = if is_free { None } else { Some(other.acquire_timeout(LONG).await.unwrap()) };
        let others = names(case, &path).await;
        let gate = a.faults.hold(Call::Create, Side::After);
        let lock = case.lock::<M>(&a, "lock");
        let acquiring = tokio::spawn(async move { lock.acquire().await });
        gate.reached().await;
        for name in names(case, &path).await.iter().filter(|name| !others.contains(name)) {
            case.store.remove(&path, name).await;
        }
        // By then, the backend has noticed it.
        sleep(case.store.session_timeout()).await;
        gate.open();
        if let Some(held) = held {
            assert_eq!(held.release().await.unwrap(), Release::Released);
        }
        let guard = timeout(LONG, acquiring).await.expect("it queues again").unwrap().unwrap();
        assert!(guard.is_held());
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

/// Rule 5: a waiter whose node an operator deleted learns of it within a heartbeat, while its predecessor stays.
pub async fn removed_waiter_wakes<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let [before] = names(case, &path).await.try_into().unwrap();
    let lock = case.lock::<M>(&b, "lock");
    let waiter = tokio::spawn(async move { lock.acquire().await.map(|_| ()) });
    case.until_waiting(&b, 1).await;
    let mine = names(case, &path).await.into_iter().find(|n| *n != before).unwrap();
    case.store.remove(&path, &mine).await;
    let ended = timeout(case.store.session_timeout(), waiter).await.expect("within a heartbeat");
    assert_eq!(ended.unwrap().unwrap_err().kind(), ErrorKind::NodeDeleted);
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// Rule 4: a holder that lost its node releases, and its successor's node stays.
pub async fn release_spares_the_successor<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let first = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    for path in M::paths(&path) {
        let [mine] = names(case, &path).await.try_into().unwrap();
        case.store.remove(&path, &mine).await;
        // ZooKeeper counts from zero again in a parent that was created again.
        case.store.remove_parent(&path).await;
    }
    let second = case.lock::<M>(&b, "lock").acquire_timeout(LONG).await.unwrap();
    let successor = names(case, &path).await;
    let _ = first.release().await.unwrap();
    case.until("the release is done", async || a.client.pending_cleanups() == 0).await;
    assert_eq!(names(case, &path).await, successor);
    assert!(second.is_held());
    assert_eq!(second.release().await.unwrap(), Release::Released);
}

/// A holder whose node was deleted by hand, unnoticed so far, gets `AlreadyLost` from its release: the lock is not free,
/// another client holds it.
pub async fn release_without_a_node_is_already_lost<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let first = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    for path in M::paths(&path) {
        let [mine] = names(case, &path).await.try_into().unwrap();
        case.store.remove(&path, &mine).await;
    }
    let second = case.lock::<M>(&b, "lock").acquire_timeout(LONG).await.unwrap();
    assert_eq!(first.release().await.unwrap(), Release::AlreadyLost);
    assert!(second.is_held());
    assert_eq!((names(case, &path).await.len(), a.client.pending_cleanups()), (1, 0));
    assert_eq!(second.release().await.unwrap(), Release::Released);
}

/// Rule 4: a holder whose session expired releases in its new session, and its successor's node stays.
pub async fn release_after_the_session_spares_the_successor<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let lock = case.lock::<M>(&a, "lock");
    let (first, again) = (lock.acquire().await.unwrap(), lock.clone());
    case.store.expire(&a.connection).await;
    let second = case.lock::<M>(&b, "lock").acquire_timeout(LONG).await.unwrap();
    case.until_session(&a, 2, SessionState::Connected).await;
    let successor = names(case, &path).await;
    assert_eq!(first.release().await.unwrap(), Release::AlreadyLost);
    case.until("the release is done", async || a.client.pending_cleanups() == 0).await;
    assert_eq!(names(case, &path).await, successor);
    assert!(again.try_acquire().await.unwrap().is_none() && second.is_held());
    assert_eq!(second.release().await.unwrap(), Release::Released);
}

/// Rule 5: a waiter wakes on its turn, its timeout, its cancellation, a lost session and a closed client.
pub async fn every_waiter_wakes<M: Tasks>(case: &Case<'_>) {
    let [holder, turn, timeout, cancel, lost, closed] = case.processes().await;
    let path = case.path("lock");
    let guard = case.lock::<M>(&holder, "lock").acquire().await.unwrap();
    let wait = |process, time: Option<Duration>| {
        let lock = case.lock::<M>(process, "lock");
        tokio::spawn(async move {
            match time {
                Some(time) => lock.acquire_timeout(time).await,
                None => lock.acquire().await,
            }
        })
    };
    let cancel = wait(&cancel, None);
    let lost_task = wait(&lost, None);
    let closed_task = wait(&closed, None);
    case.until_queued(&path, 4).await;
    let timeout = wait(&timeout, Some(Duration::from_secs(1)));
    case.until_queued(&path, 5).await;
    let turn = wait(&turn, None);
    case.until_queued(&path, 6).await;
    case.until_waiting(&lost, 1).await;
    assert!(timeout.await.unwrap().unwrap_err().is_timeout());
    cancel.abort();
    assert!(cancel.await.unwrap_err().is_cancelled());
    case.store.expire(&lost.connection).await;
    assert_eq!(lost_task.await.unwrap().unwrap_err().kind(), ErrorKind::SessionLost);
    closed.client.close().await.unwrap();
    assert_eq!(closed_task.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    case.until_queued(&path, 2).await;
    assert!(!turn.is_finished());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    assert_eq!(turn.await.unwrap().unwrap().release().await.unwrap(), Release::Released);
}

/// T29: closing the client with a waiter that has no time limit: it gets `Closed`, its node is removed; and so does
/// everything later.
pub async fn t29_close_wakes_the_waiter<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let lock = case.lock::<M>(&b, "lock");
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    case.until_queued(&path, 2).await;
    b.client.close().await.unwrap();
    assert_eq!(waiter.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    case.until_queued(&path, 1).await;
    assert_eq!(lock.acquire().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(lock.try_acquire().await.unwrap_err().kind(), ErrorKind::Closed);
    assert!(guard.is_held());
    a.client.close().await.unwrap();
    assert!(!guard.is_held());
    assert_eq!(guard.lost().await.kind(), ErrorKind::Closed);
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
}

/// Rule 7: the fencing tokens of successive holders increase, even if the parent is removed in between.
pub async fn fencing_tokens_grow<M: Mutual>(case: &Case<'_>) {
    let processes: [_; 3] = case.processes().await;
    let path = case.path("lock");
    let mut last = None;
    for round in 0..12 {
        let guard = case.lock::<M>(&processes[round % 3], "lock").acquire().await.unwrap();
        let token = guard.fencing_token();
        assert!(last < Some(token), "{last:?} then {token:?}");
        last = Some(token);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        if round % 2 == 0 {
            case.store.remove_parent(&path).await;
        }
    }
    let first = case.lock::<M>(&processes[0], "lock").acquire().await.unwrap();
    let mut tasks = JoinSet::new();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for i in 0..9 {
        let (lock, tell) = (case.lock::<M>(&processes[i % 3], "lock"), tell.clone());
        tasks.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            tell.send(guard.fencing_token()).unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        });
    }
    case.until_queued(&path, M::places(10, 3)).await;
    assert!(last < Some(first.fencing_token()));
    last = Some(first.fencing_token());
    assert_eq!(first.release().await.unwrap(), Release::Released);
    tasks.join_all().await;
    while let Ok(token) = told.try_recv() {
        assert!(last < Some(token), "{last:?} then {token:?}");
        last = Some(token);
    }
}

async fn names(case: &Case<'_>, path: &zlock_core::LockPath) -> Vec<String> {
    case.store.names(path).await
}
