//! Waiters of one client that share a place: they hand the lock to each other.

use std::time::Duration;

use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;
use zlock_core::{ErrorKind, LockPath, Result, SessionState};
use zlock_recipes::kind::{Read, Write};
use zlock_recipes::{Guard, Handoff, InterProcessMutex, MultiLock, Release, Scope};

use super::succession::{at, granted, release, waiter};
use crate::case::LONG;
use crate::{Call, Case, Inside, Process, Side};

/// So long that only the number of turns limits a batch.
const HOUR: Duration = Duration::from_secs(3600);

fn handed(process: &Process, path: &LockPath, turns: u32) -> InterProcessMutex {
    at(process, path).with_handoff(Handoff::within(HOUR).at_most(turns))
}

/// Adds a waiter to the local queue. It has joined the queue when this returns.
async fn local(lock: &InterProcessMutex) -> JoinHandle<Result<Guard>> {
    let lock = lock.clone();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    // Its first poll joins the queue.
    for _ in 0..3 {
        yield_now().await;
    }
    waiting
}

fn requests(process: &Process) -> usize {
    let calls = [Call::Create, Call::Children, Call::ChildrenWithWatch, Call::Exists, Call::Delete];
    calls.into_iter().map(|call| process.faults.count(call)).sum()
}

/// Local waiters are served in order, in one place, and without a request. Then the next place has its turn.
pub async fn one_place_for_all(case: &Case<'_>) {
    let ([a, b], path) = (case.processes().await, case.path("lock"));
    let lock = handed(&a, &path, u32::MAX);
    let mut held = lock.acquire().await.unwrap();
    let other = waiter(case, &b, &path, 2).await;
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(local(&lock).await);
    }
    assert_eq!(lock.participants().await.unwrap().len(), 2);
    let before = requests(&a);
    let node = held.node();
    for (turn, next) in (1..).zip(waiting) {
        let last = held.fencing_token();
        release(held).await;
        held = granted(next).await;
        assert_eq!((held.fencing_token().number(), held.fencing_token().turn()), (last.number(), turn));
        assert!(held.fencing_token() > last && held.node() == node);
        assert!(lock.is_acquired_in_this_process() && !other.is_finished());
    }
    assert_eq!(requests(&a), before, "requests were sent");
    let last = held.fencing_token();
    release(held).await;
    let other = granted(other).await;
    assert!(other.fencing_token() > last);
    release(other).await;
}

/// The time limit ends a batch: another client's place has its turn, and then the next place of the local queue.
pub async fn a_batch_is_bounded(case: &Case<'_>) {
    for (number, handoff) in
        [Handoff::within(HOUR).at_most(1), Handoff::within(Duration::ZERO)].into_iter().enumerate()
    {
        let ([a, b], path) = (case.processes().await, case.path(&format!("lock-of-{number}")));
        let lock = at(&a, &path).with_handoff(handoff);
        let turns = 1 - number;
        let held = lock.acquire().await.unwrap();
        let mut waiting = Vec::new();
        for _ in 0..2 {
            waiting.push(local(&lock).await);
        }
        let other = waiter(case, &b, &path, 2).await;
        release(held).await;
        for next in waiting.drain(..turns) {
            release(granted(next).await).await;
        }
        let other = granted(other).await;
        assert!(waiting.iter().all(|next| !next.is_finished()), "a batch goes on");
        case.until_queued(&path, 2).await;
        release(other).await;
        for next in waiting {
            release(granted(next).await).await;
        }
    }
}

/// A dropped guard hands over, too.
pub async fn by_a_dropped_guard(case: &Case<'_>) {
    let (a, path) = (case.process().await, case.path("lock"));
    let lock = handed(&a, &path, u32::MAX);
    let held = lock.acquire().await.unwrap();
    let (next, last) = (local(&lock).await, local(&lock).await);
    let before = a.faults.count(Call::Create);
    drop(held);
    drop(granted(next).await);
    let last = granted(last).await;
    assert_eq!(last.fencing_token().turn(), 2);
    assert_eq!(a.faults.count(Call::Create), before);
    drop(last);
    case.until_free(&path).await;
}

/// Cancelled waiters are passed over: in the queue, after the lock was handed to them, and when none is left.
pub async fn cancelled_waiters(case: &Case<'_>) {
    let ([a, b], path) = (case.processes().await, case.path("lock"));
    let lock = handed(&a, &path, u32::MAX);
    let held = lock.acquire().await.unwrap();
    let other = waiter(case, &b, &path, 2).await;
    let (first, second, third) = (local(&lock).await, local(&lock).await, local(&lock).await);
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    // Both happen before the waiter is polled.
    release(held).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let third = granted(third).await;
    assert!(!other.is_finished());
    // The last one is cancelled after the lock was handed to it: its place is given up.
    let last = local(&lock).await;
    release(third).await;
    last.abort();
    assert!(last.await.unwrap_err().is_cancelled());
    let other = granted(other).await;
    // All are cancelled while their place waits: it is given up.
    let waiting = [local(&lock).await, local(&lock).await];
    case.until_queued(&path, 2).await;
    for waiting in waiting {
        waiting.abort();
    }
    case.until_queued(&path, 1).await;
    release(other).await;
}

/// A timeout removes its own waiter and no other.
pub async fn a_timeout_removes_one_waiter(case: &Case<'_>) {
    let ([a, b], path) = (case.processes().await, case.path("lock"));
    let lock = handed(&a, &path, u32::MAX);
    let other = at(&b, &path).acquire().await.unwrap();
    let waiting = local(&lock).await;
    case.until_queued(&path, 2).await;
    case.until_waiting(&a, 1).await;
    let busy = lock.acquire_timeout(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    assert_eq!(lock.acquire_timeout(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::Busy);
    release(other).await;
    let held = granted(waiting).await;
    let busy = lock.acquire_timeout(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    release(held).await;
    release(lock.acquire_timeout(LONG).await.unwrap()).await;
}

/// A try never waits for local users, and sends requests only if there are none.
pub async fn a_try(case: &Case<'_>) {
    let ([a, b], path) = (case.processes().await, case.path("lock"));
    let lock = handed(&a, &path, u32::MAX);
    let held = lock.acquire().await.unwrap();
    let before = requests(&a);
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(requests(&a), before);
    release(held).await;
    let held = lock.try_acquire().await.unwrap().expect("it is free");
    assert!(at(&b, &path).try_acquire().await.unwrap().is_none());
    let next = local(&lock).await;
    case.until_queued(&path, 2).await;
    release(held).await;
    release(granted(next).await).await;
}

/// The batch ends when its holder is asked to release the lock.
pub async fn revocation_ends_the_batch(case: &Case<'_>) {
    let ([a, b], path) = (case.processes().await, case.path("lock"));
    let lock = handed(&a, &path, u32::MAX);
    let held = lock.acquire().await.unwrap();
    let next = local(&lock).await;
    let other = waiter(case, &b, &path, 2).await;
    assert_eq!(at(&b, &path).request_revocation().await.unwrap(), 1);
    held.revocation_requested().await.unwrap();
    release(held).await;
    let other = granted(other).await;
    assert!(!next.is_finished());
    release(other).await;
    let next = granted(next).await;
    assert!(timeout(Duration::from_millis(100), next.revocation_requested()).await.is_err());
    release(next).await;
}

/// The batch ends when its node is deleted, even while its holder continues.
pub async fn a_deleted_node_ends_the_batch(case: &Case<'_>) {
    let ([a, b], path) = (case.processes().await, case.path("lock"));
    let lock = handed(&a, &path, u32::MAX);
    let held = lock.acquire().await.unwrap();
    let next = local(&lock).await;
    case.store.remove(&path, held.node().as_str()).await;
    let other = at(&b, &path).acquire_timeout(LONG).await.unwrap();
    let lost = timeout(2 * case.store.session_timeout() + LONG, held.lost()).await.unwrap();
    assert_eq!(lost.kind(), ErrorKind::NodeDeleted);
    // The place that follows is acquired without the holder's help.
    case.until_queued(&path, 2).await;
    assert_eq!(held.release().await.unwrap(), Release::AlreadyLost);
    assert!(!next.is_finished());
    release(other).await;
    release(granted(next).await).await;
}

/// A lock whose node was deleted is not handed over, even if only the holder's client knows.
pub async fn a_lost_lock_is_not_handed_over(case: &Case<'_>) {
    let (a, path) = (case.process().await, case.path("lock"));
    let lock = handed(&a, &path, u32::MAX);
    let held = lock.acquire().await.unwrap();
    case.store.remove(&path, held.node().as_str()).await;
    timeout(2 * case.store.session_timeout() + LONG, held.lost()).await.unwrap();
    let number = held.fencing_token().number();
    let next = local(&lock).await;
    assert_eq!(held.release().await.unwrap(), Release::AlreadyLost);
    let next = granted(next).await;
    assert!(next.fencing_token().number() > number);
    release(next).await;
}

/// A holder that detects the loss before the client's next heartbeat does not hand over either.
pub async fn a_loss_that_the_holder_finds_is_not_handed_over(case: &Case<'_>) {
    let (a, path) = (case.process().await, case.path("lock"));
    let lock = handed(&a, &path, u32::MAX);
    let held = lock.acquire().await.unwrap();
    let next = local(&lock).await;
    let number = held.fencing_token().number();
    case.store.remove(&path, held.node().as_str()).await;
    let lost = held.revocation_requested().await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::NodeDeleted);
    assert_eq!(held.release().await.unwrap(), Release::AlreadyLost);
    let next = granted(next).await;
    assert!(next.fencing_token().number() > number);
    release(next).await;
}

/// A guard that is kept after the loss does not prevent tries.
pub async fn a_try_after_the_loss(case: &Case<'_>) {
    let (a, path) = (case.process().await, case.path("lock"));
    let lock = handed(&a, &path, u32::MAX);
    let kept = lock.acquire().await.unwrap();
    case.store.expire(&a.connection).await;
    case.until_session(&a, 2, SessionState::Connected).await;
    let held = lock.try_acquire().await.unwrap().expect("it is free");
    release(held).await;
    let held = lock.acquire_timeout(Duration::ZERO).await.unwrap();
    assert!(held.is_held() && !kept.is_held());
    release(held).await;
    a.client.close().await.unwrap();
    assert_eq!(lock.try_acquire().await.unwrap_err().kind(), ErrorKind::Closed);
}

/// Nothing is handed over while the connection is interrupted. The next local waiter has its turn when it is mended.
pub async fn not_while_suspended(case: &Case<'_>) {
    let (a, path) = (case.process().await, case.path("lock"));
    let lock = handed(&a, &path, u32::MAX);
    let held = lock.acquire().await.unwrap();
    let next = local(&lock).await;
    case.links().cut(&a.connection).await;
    case.until_session(&a, 1, SessionState::Suspended).await;
    assert!(held.is_held());
    let number = held.fencing_token().number();
    held.release().await.unwrap();
    for _ in 0..10 {
        yield_now().await;
    }
    assert!(!next.is_finished());
    case.links().heal(&a.connection).await;
    let next = granted(next).await;
    assert!(next.fencing_token().number() > number);
    release(next).await;
}

/// A new session means a new place for the waiters behind a holder of the old one.
pub async fn a_lost_session_ends_the_batch(case: &Case<'_>) {
    let (a, path) = (case.process().await, case.path("lock"));
    let lock = handed(&a, &path, u32::MAX);
    let held = lock.acquire().await.unwrap();
    let next = local(&lock).await;
    case.store.expire(&a.connection).await;
    case.until_session(&a, 2, SessionState::Connected).await;
    assert!(!held.is_held());
    let next = granted(next).await;
    assert_eq!(held.release().await.unwrap(), Release::AlreadyLost);
    assert!(next.is_held());
    release(next).await;
}

/// Closing the client ends every wait, whether or not the holder does anything.
pub async fn close_wakes_everybody(case: &Case<'_>) {
    let (a, path) = (case.process().await, case.path("lock"));
    let lock = handed(&a, &path, u32::MAX);
    let held = lock.acquire().await.unwrap();
    let waiting = [local(&lock).await, local(&lock).await];
    a.client.close().await.unwrap();
    for waiting in waiting {
        let closed = timeout(LONG, waiting).await.expect("it hears of it").unwrap().unwrap_err();
        assert_eq!(closed.kind(), ErrorKind::Closed);
    }
    assert_eq!(held.release().await.unwrap(), Release::AlreadyLost);
    assert_eq!(lock.acquire().await.unwrap_err().kind(), ErrorKind::Closed);
}

/// An acquisition that fails is reported to all its waiters, and the next one starts again.
pub async fn a_failure_reaches_everybody(case: &Case<'_>) {
    let (a, path) = (case.process().await, case.path("lock"));
    let lock = handed(&a, &path, u32::MAX);
    let gate = a.faults.hold(Call::Create, Side::Before);
    a.faults.fail(Call::Create, Side::After, 1, ErrorKind::Unavailable);
    let waiting = [local(&lock).await, local(&lock).await];
    gate.reached().await;
    gate.open();
    for waiting in waiting {
        let failed = timeout(LONG, waiting).await.expect("it hears of it").unwrap().unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Unavailable);
    }
    release(lock.acquire().await.unwrap()).await;
}

/// Waiters behind a place of their client stay if the create of the next one fails, unless the store refuses it.
pub async fn a_failure_between_two_places_is_outlasted(case: &Case<'_>) {
    let (a, path) = (case.process().await, case.path("lock"));
    let lock = handed(&a, &path, 0);
    for side in [Side::Before, Side::After] {
        let held = lock.acquire().await.unwrap();
        let waiting = [local(&lock).await, local(&lock).await];
        let before = a.faults.count(Call::Create);
        a.faults.fail(Call::Create, side, 3, ErrorKind::Unavailable);
        release(held).await;
        for next in waiting {
            release(granted(next).await).await;
        }
        assert_eq!(a.faults.count(Call::Create), before + 3 + 2);
        case.until_queued(&path, 0).await;
    }
    let held = lock.acquire().await.unwrap();
    let waiting = [local(&lock).await, local(&lock).await];
    a.faults.fail(Call::Create, Side::Before, 1, ErrorKind::NotAuthorized);
    release(held).await;
    for waiting in waiting {
        let failed = timeout(LONG, waiting).await.expect("it hears of it").unwrap().unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::NotAuthorized);
    }
    // A waiter without a place before it does not stay.
    a.faults.fail(Call::Create, Side::Before, 1, ErrorKind::Unavailable);
    assert_eq!(lock.acquire().await.unwrap_err().kind(), ErrorKind::Unavailable);
    release(lock.acquire().await.unwrap()).await;
}

/// Reentry belongs to a turn: a scope from an earlier turn enters nothing.
pub async fn entering_again_belongs_to_a_turn(case: &Case<'_>) {
    let (a, path) = (case.process().await, case.path("lock"));
    let lock = handed(&a, &path, u32::MAX);
    let held = lock.acquire().await.unwrap();
    let (earlier, again) = held.scope(async { (Scope::current(), lock.acquire().await.unwrap()) }).await;
    assert_eq!(again.fencing_token(), held.fencing_token());
    let context = held.context();
    assert_eq!(held.release().await.unwrap(), Release::StillHeld);
    let next = local(&lock).await;
    assert!(!next.is_finished());
    release(again).await;
    let next = granted(next).await;
    assert!(!context.is_held() && context.lost().await.kind() == ErrorKind::Released);
    let late = lock.clone();
    let late = earlier.scope(async move { late.try_acquire().await });
    assert!(late.await.unwrap().is_none());
    release(next).await;
}

/// A template, and a set of locks, hand over as well.
pub async fn by_a_template_and_in_a_set(case: &Case<'_>) {
    let (a, path, inside) = (case.process().await, case.path("lock"), Inside::default());
    let template = a.client.lock_template(case.root()).unwrap().with_wait(LONG, 1).unwrap();
    let handoff = Handoff::within(HOUR);
    let template = template.with_handoff(handoff).unwrap();
    let lock = a.client.mutex(&path).unwrap().with_handoff(handoff);
    let held = lock.acquire().await.unwrap();
    let set = MultiLock::new([&lock, &a.client.mutex(case.path("the-second")).unwrap()]).unwrap();
    let executing = tokio::spawn({
        let inside = inside.clone();
        async move { template.execute("lock", |_| async move { inside.visit().await }).await }
    });
    let holding = tokio::spawn({
        let inside = inside.clone();
        async move { set.run(async move { inside.visit().await }).await }
    });
    case.until("both have joined the queue", async || {
        yield_now().await;
        lock.participants().await.unwrap().len() == 1
    })
    .await;
    let creates = a.faults.count(Call::Create);
    release(held).await;
    executing.await.unwrap().unwrap();
    holding.await.unwrap().unwrap();
    assert_eq!(inside.visits(), 2);
    assert_eq!(a.faults.count(Call::Create), creates + 1, "the other lock of the set needs a place");
}

/// Only a mutex is handed over.
pub async fn other_kinds_are_refused(case: &Case<'_>) {
    let a = case.process().await;
    let template = a.client.lock_template(case.path("root")).unwrap();
    let handoff = Handoff::within(HOUR);
    let reading = template.clone().with_kind(Read).unwrap();
    assert_eq!(reading.with_handoff(handoff).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let handed = template.with_handoff(handoff).unwrap();
    assert_eq!(handed.with_kind(Write).unwrap_err().kind(), ErrorKind::InvalidArgument);
}
