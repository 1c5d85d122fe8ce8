//! Waiters behind a place of their own client, whose release hands the lock over to them.

use std::pin::pin;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use zlock_core::{ErrorKind, LockPath, Result};
use zlock_recipes::{Guard, InterProcessMutex, Release};

use crate::case::LONG;
use crate::{Call, Case, Process, Side};

pub(super) type Waiter = JoinHandle<Result<Guard>>;

pub(super) fn at(process: &Process, path: &LockPath) -> InterProcessMutex {
    process.client.mutex(path).unwrap()
}

/// Waits in a task. Returns when the waiter knows what is ahead of it.
pub(super) async fn waiter(case: &Case<'_>, process: &Process, path: &LockPath, places: usize) -> Waiter {
    let lock = at(process, path);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    case.until_queued(path, places).await;
    case.until("its requests are answered", async || process.faults.under_way() == 0).await;
    waiting
}

pub(super) async fn release(guard: Guard) {
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

pub(super) async fn granted(waiter: Waiter) -> Guard {
    let guard = timeout(LONG, waiter).await.expect("it comes in").unwrap().unwrap();
    assert!(guard.is_held());
    guard
}

/// A process whose releases wait only a second for their answers.
async fn hasty(case: &Case<'_>) -> Process {
    case.process_with(|builder| builder.with_response_timeout(Duration::from_secs(1)).unwrap()).await
}

/// A place of another process in between is not passed over.
pub async fn others_in_between(case: &Case<'_>) {
    let ([a, b], path) = (case.processes().await, case.path("lock"));
    let held = at(&a, &path).acquire().await.unwrap();
    let own = waiter(case, &a, &path, 2).await;
    let other = waiter(case, &b, &path, 3).await;
    let last = waiter(case, &a, &path, 4).await;
    release(held).await;
    let own = granted(own).await;
    assert!(!other.is_finished() && !last.is_finished());
    release(own).await;
    let other = granted(other).await;
    assert!(!last.is_finished());
    release(other).await;
    release(granted(last).await).await;
}

/// A waiter that gives up hands nothing over: it never held the lock.
pub async fn who_gives_up_does_not_hand_over(case: &Case<'_>) {
    let ([a, b], path) = (case.processes().await, case.path("lock"));
    let held = at(&b, &path).acquire().await.unwrap();
    let gives_up = waiter(case, &a, &path, 2).await;
    let last = waiter(case, &a, &path, 3).await;
    gives_up.abort();
    case.until_queued(&path, 2).await;
    case.until("it watches the holder", async || a.faults.under_way() == 0).await;
    assert!(held.is_held() && !last.is_finished());
    release(held).await;
    release(granted(last).await).await;
}

/// Another client deleted the next node: the lock is handed to the one behind it.
pub async fn a_deleted_successor_is_passed_over(case: &Case<'_>) {
    let ([a, b], path) = (case.processes().await, case.path("lock"));
    let held = at(&a, &path).acquire().await.unwrap();
    let deleted = waiter(case, &a, &path, 2).await;
    let mut names = case.store.names(&path).await;
    names.retain(|name| *name != held.node().to_string());
    let last = waiter(case, &b, &path, 3).await;
    case.store.remove(&path, &names[0]).await;
    release(held).await;
    let last = granted(last).await;
    let deleted = timeout(LONG, deleted).await.expect("it hears of it").unwrap();
    assert_eq!(deleted.unwrap_err().kind(), ErrorKind::NodeDeleted);
    assert!(last.is_held());
    release(last).await;
}

/// Another client deleted the holder's node: the next waiter detects it.
pub async fn a_deleted_holder_is_found_out(case: &Case<'_>) {
    let (a, path) = (case.process().await, case.path("lock"));
    let held = at(&a, &path).acquire().await.unwrap();
    let next = waiter(case, &a, &path, 2).await;
    case.store.remove(&path, held.node().as_str()).await;
    let next = granted(next).await;
    assert!(!held.is_held());
    assert_eq!(held.release().await.unwrap(), Release::AlreadyLost);
    release(next).await;
}

/// The release is dropped before it is answered.
pub async fn a_dropped_release(case: &Case<'_>) {
    for side in [Side::Before, Side::After] {
        let (a, path) = (case.process().await, case.path("lock"));
        let held = at(&a, &path).acquire().await.unwrap();
        let next = waiter(case, &a, &path, 2).await;
        let gate = a.faults.hold(Call::Delete, side);
        tokio::select! {
            biased;
            released = held.release() => panic!("{released:?} through a closed gate"),
            () = gate.reached() => {}
        }
        release(granted(next).await).await;
    }
}

/// The release is neither polled nor dropped when its response arrives: the next waiter lists the queue itself.
pub async fn a_release_that_is_not_polled(case: &Case<'_>) {
    let (a, path) = (hasty(case).await, case.path("lock"));
    let held = at(&a, &path).acquire().await.unwrap();
    let next = waiter(case, &a, &path, 2).await;
    let gate = a.faults.hold(Call::Delete, Side::After);
    let mut releasing = pin!(held.release());
    tokio::select! {
        biased;
        released = &mut releasing => panic!("{released:?} through a closed gate"),
        () = gate.reached() => {}
    }
    let next = granted(next).await;
    gate.open();
    drop(releasing.await);
    assert!(next.is_held());
    release(next).await;
}

/// The answer is an error, after the node was removed or before.
pub async fn an_answer_that_fails(case: &Case<'_>) {
    for side in [Side::Before, Side::After] {
        let (a, path) = (case.process().await, case.path("lock"));
        let held = at(&a, &path).acquire().await.unwrap();
        let next = waiter(case, &a, &path, 2).await;
        a.faults.fail(Call::Delete, side, 1, ErrorKind::Unavailable);
        assert_eq!(held.release().await.unwrap(), Release::Pending);
        release(granted(next).await).await;
    }
}

/// The session ends before the response arrives.
pub async fn a_session_that_ends_meanwhile(case: &Case<'_>) {
    let (a, path) = (case.process().await, case.path("lock"));
    let held = at(&a, &path).acquire().await.unwrap();
    let next = waiter(case, &a, &path, 2).await;
    let gate = a.faults.hold(Call::Delete, Side::After);
    let releasing = tokio::spawn(held.release());
    gate.reached().await;
    case.store.expire(&a.connection).await;
    let next = timeout(2 * case.store.session_timeout() + LONG, next).await.expect("it hears of it").unwrap();
    assert_eq!(next.unwrap_err().kind(), ErrorKind::SessionLost);
    gate.open();
    releasing.await.unwrap().unwrap();
}
