//! Backends that fail: what is reported, and that nothing is left behind.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use zlock_core::{ErrorKind, SessionState};
use zlock_recipes::Release;

use crate::case::{LONG, soon};
use crate::{Call, Case, Log, Mutual, Process, Side, Tasks, TestGuard, TestLock};

const FOREVER: usize = usize::MAX;

/// T1: the create took effect, its response is lost, the backend gives up, the session stays live: an error; later the
/// queue is empty and others acquire the lock.
pub async fn t1_answer_lost_for_good<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let lock = case.lock::<M>(&a, "lock");
    for one_try in [false, true] {
        a.faults.fail(Call::Create, Side::After, 1, ErrorKind::Unavailable);
        let error = if one_try {
            soon("the error", lock.try_acquire()).await.map(|_| ()).unwrap_err()
        } else {
            soon("the error", lock.acquire()).await.map(|_| ()).unwrap_err()
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.is_ambiguous());
        served::<M>(case, &b).await;
    }
    assert_eq!(a.session().epoch, 1);
    served::<M>(case, &a).await;
}

/// T2: an acquire dropped at each call to the backend, with the request not sent or its answer not seen.
pub async fn t2_dropped_at_each_call<M: Mutual>(case: &Case<'_>) {
    let [holder, a, b] = case.processes().await;
    let path = case.path("lock");
    for side in [Side::Before, Side::After] {
        for call in [Call::Create, M::WAIT, Call::Children] {
            let guard = case.lock::<M>(&holder, "lock").acquire_timeout(LONG).await.unwrap();
            let lock = case.lock::<M>(&a, "lock");
            let gate = a.faults.hold(call, side);
            if call == Call::Children {
                let attempt = case.waiting::<M>(&a, lock).await;
                assert_eq!(soon("the release", guard.release()).await.unwrap(), Release::Released);
                gate.reached().await;
                attempt.abort();
            } else {
                let attempt = tokio::spawn(async move { lock.acquire().await.map(|_| ()) });
                gate.reached().await;
                attempt.abort();
                assert!(soon("the attempt ends", attempt).await.unwrap_err().is_cancelled());
                case.until_queued(&path, 1).await;
                assert_eq!(soon("the release", guard.release()).await.unwrap(), Release::Released);
            }
            served::<M>(case, &b).await;
        }
    }
}

/// T3: the store refuses to list, or to watch the node in front, after the create: an error, and no node is left.
pub async fn t3_a_refused_listing_ends_the_wait<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    for call in [M::WAIT, Call::Children] {
        let guard = case.lock::<M>(&a, "lock").acquire_timeout(LONG).await.unwrap();
        b.faults.fail(call, Side::Before, FOREVER, ErrorKind::NotAuthorized);
        let lock = case.lock::<M>(&b, "lock");
        if call == Call::Children {
            let waiter = case.waiting::<M>(&b, lock).await;
            assert_eq!(soon("the release", guard.release()).await.unwrap(), Release::Released);
            assert_eq!(
                soon("the wait ends", waiter).await.unwrap().unwrap_err().kind(),
                ErrorKind::NotAuthorized
            );
        } else {
            assert_eq!(soon("the error", lock.acquire()).await.unwrap_err().kind(), ErrorKind::NotAuthorized);
            case.until_queued(&path, 1).await;
            assert_eq!(soon("the release", guard.release()).await.unwrap(), Release::Released);
        }
        assert_eq!(b.faults.count(call), 1, "no retry by the engine");
        b.faults.mend();
        served::<M>(case, &b).await;
    }
}

/// T3: the store does not answer: a queued waiter asks again, after pauses, and keeps its place.
pub async fn t3_an_unanswered_listing_is_repeated<M: Mutual>(case: &Case<'_>) {
    const FAILURES: usize = 3;
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    for call in [M::WAIT, Call::Children] {
        for side in [Side::Before, Side::After] {
            let guard = case.lock::<M>(&a, "lock").acquire_timeout(LONG).await.unwrap();
            let lock = case.lock::<M>(&b, "lock");
            let log = Log::of_this_thread();
            let fail = || b.faults.fail(call, side, FAILURES, ErrorKind::Unavailable);
            let waiter = if call == Call::Children {
                let waiter = case.waiting::<M>(&b, lock).await;
                fail();
                waiter
            } else {
                fail();
                let waiter = tokio::spawn(async move { lock.acquire().await });
                case.until("the failures have happened", async || b.faults.pending() == 0).await;
                waiter
            };
            case.until_queued(&path, 2).await;
            assert_eq!(soon("the release", guard.release()).await.unwrap(), Release::Released);
            let guard = soon("it is served", waiter).await.unwrap().unwrap();
            assert_eq!(b.faults.pending(), 0);
            assert_eq!(log.with("a request failed").len(), 1, "one line for the same cause");
            assert_eq!(soon("the release", guard.release()).await.unwrap(), Release::Released);
            served::<M>(case, &a).await;
        }
    }
}

/// Servers that answer differently for a while: one lists a node that another does not find. The waiter pauses longer and longer
/// while nothing changes, and goes on when they agree.
pub async fn a_contradiction_is_not_asked_about_at_a_constant_rate<M: Tasks>(case: &Case<'_>) {
    if M::WAIT != Call::Exists {
        return;
    }
    let ([a, b], path) = (case.processes().await, case.path("lock"));
    let held = case.lock::<M>(&a, "lock").acquire_timeout(LONG).await.unwrap();
    b.faults.hide_nodes();
    let lock = case.lock::<M>(&b, "lock");
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    case.until_queued(&path, 2).await;
    sleep(Duration::from_secs(3)).await;
    let asked = b.faults.count(Call::Exists);
    assert!((2..30).contains(&asked), "{asked} times in 3 s");
    b.faults.mend();
    assert_eq!(held.release().await.unwrap(), Release::Released);
    let next = timeout(LONG, waiter).await.expect("it is served").unwrap();
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

/// T8: the first error is reported; a failing clean-up is logged and continues.
pub async fn t8_the_first_error_counts<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let guard = case.lock::<M>(&a, "lock").acquire_timeout(LONG).await.unwrap();
    let log = Log::of_this_thread();
    b.faults.fail(M::WAIT, Side::Before, 1, ErrorKind::NotAuthorized);
    b.faults.fail(Call::Delete, Side::Before, 3, ErrorKind::Unexpected);
    let error = soon("the error", case.lock::<M>(&b, "lock").acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotAuthorized);
    case.until_queued(&path, 1).await;
    assert_eq!((b.faults.pending(), log.with("could not be removed").len()), (0, 1));
    assert_eq!(soon("the release", guard.release()).await.unwrap(), Release::Released);
    served::<M>(case, &b).await;
}

/// T8: a refused release is an error, and the node is still removed in the background.
pub async fn t8_refused_release<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let guard = case.lock::<M>(&a, "lock").acquire_timeout(LONG).await.unwrap();
    a.faults.fail(Call::Delete, Side::Before, 1, ErrorKind::NotAuthorized);
    assert_eq!(soon("the release", guard.release()).await.unwrap_err().kind(), ErrorKind::NotAuthorized);
    served::<M>(case, &b).await;
}

/// T9: a store that refuses everything at once does not keep the background busy: after some quick attempts there is a random
/// time of up to five seconds between two of them, so about seventeen in half a minute.
pub async fn t9_background_does_not_spin<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let guard = case.lock::<M>(&a, "lock").acquire_timeout(LONG).await.unwrap();
    a.faults.fail(Call::Delete, Side::Before, FOREVER, ErrorKind::Unavailable);
    drop(guard);
    let time = Duration::from_secs(if case.paused { 30 } else { 5 });
    sleep(time).await;
    let tries = a.faults.count(Call::Delete);
    assert!((3..40).contains(&(tries / M::NODES)), "{tries} tries in {time:?}");
    assert_eq!(a.client.pending_cleanups(), M::NODES);
    a.faults.mend();
    served::<M>(case, &b).await;
}

/// T9: a node that was already deleted ends the background delete.
pub async fn t9_not_found_ends_the_background<M: Mutual>(case: &Case<'_>) {
    let a = case.process().await;
    let path = case.path("lock");
    let guard = case.lock::<M>(&a, "lock").acquire_timeout(LONG).await.unwrap();
    let gate = a.faults.hold(Call::Delete, Side::Before);
    drop(guard);
    gate.reached().await;
    for path in M::paths(&path) {
        for name in case.store.names(&path).await {
            case.store.remove(&path, &name).await;
        }
    }
    assert!(a.client.pending_cleanups() > 0);
    gate.open();
    case.until("done", async || a.client.pending_cleanups() == 0).await;
    assert_eq!(a.faults.count(Call::Delete), M::NODES);
}

/// T28: a backend call that hangs delays no other lock, neither a waiter nor the background.
pub async fn t28_a_slow_call_delays_nobody_else<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    // The background is stuck on one node.
    let slow = case.lock::<M>(&a, "slow").acquire_timeout(LONG).await.unwrap();
    let stuck = a.faults.hold(Call::Delete, Side::Before);
    drop(slow);
    stuck.reached().await;
    for _ in 0..3 {
        drop(case.lock::<M>(&a, "lock").acquire_timeout(LONG).await.unwrap());
        served::<M>(case, &b).await;
    }
    // A waiter is stuck on one lock.
    let (held, other) = (case.lock::<M>(&b, "held"), case.lock::<M>(&a, "held"));
    let guard = held.acquire_timeout(LONG).await.unwrap();
    let gate = a.faults.hold(M::WAIT, Side::After);
    let waiter = tokio::spawn(async move { other.acquire().await.unwrap() });
    gate.reached().await;
    let first = case.lock::<M>(&b, "lock").acquire_timeout(LONG).await.unwrap();
    let second = case.lock::<M>(&a, "lock");
    let second = tokio::spawn(async move { second.acquire().await.unwrap() });
    case.until_queued(&case.path("lock"), 2).await;
    assert_eq!(soon("the release", first.release()).await.unwrap(), Release::Released);
    assert_eq!(soon("the lock beside it", second).await.unwrap().release().await.unwrap(), Release::Released);
    gate.open();
    stuck.open();
    assert_eq!(soon("the release", guard.release()).await.unwrap(), Release::Released);
    assert_eq!(soon("it is served", waiter).await.unwrap().release().await.unwrap(), Release::Released);
}

/// T28: a listener that is never polled delays no other client, and still gets every loss when it is polled.
pub async fn t28_a_slow_listener_delays_nobody<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let mut listener = a.client.session_events().listen();
    assert_eq!(soon("the first session", listener.next()).await.unwrap().epoch, 1);
    let guard = case.lock::<M>(&a, "lock").acquire_timeout(LONG).await.unwrap();
    case.store.expire(&a.connection).await;
    soon("the loss", guard.lost()).await;
    case.until_session(&a, 2, SessionState::Connected).await;
    served::<M>(case, &b).await;
    served::<M>(case, &a).await;
    let mut told = async || soon("what it has missed", listener.next()).await.unwrap();
    let told = [told().await, told().await];
    assert_eq!(told.map(|s| (s.epoch, s.state)), [(1, SessionState::Lost), (2, SessionState::Connected)]);
    drop(guard);
}

/// T43: retries are not multiplied: only the backend retries.
pub async fn t43_the_engine_repeats_nothing<M: Mutual>(case: &Case<'_>) {
    let a = case.process().await;
    let lock = case.lock::<M>(&a, "lock");
    a.faults.fail(Call::Create, Side::Before, FOREVER, ErrorKind::Unavailable);
    assert_eq!(soon("the error", lock.acquire()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!((a.faults.count(Call::Create), a.faults.total()), (1, 1), "nothing to clean up either");
    assert_eq!(lock.acquire_timeout(LONG).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!((a.faults.count(Call::Create), a.faults.total()), (2, 2));
    a.faults.mend();
    a.faults.fail(Call::Children, Side::Before, FOREVER, ErrorKind::Unavailable);
    assert_eq!(soon("the error", lock.try_acquire()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!((a.faults.count(Call::Children), a.faults.total()), (1, 3));
    a.faults.mend();
    served::<M>(case, &a).await;
}

/// Rule 5: a waiter whose call to the backend hangs still learns that its session is lost, its client is closed, or its
/// node was deleted.
pub async fn a_hanging_call_does_not_hide_the_loss<M: Mutual>(case: &Case<'_>) {
    for call in [M::WAIT, Call::Children] {
        for kind in [ErrorKind::SessionLost, ErrorKind::Closed, ErrorKind::NodeDeleted] {
            let name = format!("{call:?}-{kind:?}");
            let [a, b] = case.processes().await;
            let path = case.path(&name);
            let guard = case.lock::<M>(&a, &name).acquire_timeout(LONG).await.unwrap();
            let first = case.store.names(&path).await;
            let gate = b.faults.hold(call, Side::Before);
            let lock = case.lock::<M>(&b, &name);
            let waiter = if call == Call::Children {
                case.waiting::<M>(&b, lock).await
            } else {
                tokio::spawn(async move { lock.acquire().await })
            };
            case.until_queued(&path, 2).await;
            let mine = case.store.names(&path).await.into_iter().find(|n| !first.contains(n)).unwrap();
            if call == Call::Children {
                assert_eq!(soon("the release", guard.release()).await.unwrap(), Release::Released);
                gate.reached().await;
            } else {
                // A create may be visible before its listing is made, which must show the guard's node.
                gate.reached().await;
                drop(guard);
            }
            match kind {
                ErrorKind::SessionLost => case.store.expire(&b.connection).await,
                ErrorKind::Closed => {
                    soon("the close", b.client.close()).await.unwrap();
                }
                _ => case.store.remove(&path, &mine).await,
            }
            let ended = timeout(2 * case.store.session_timeout(), waiter).await;
            let error = ended.unwrap_or_else(|_| panic!("{name}: still waits")).unwrap().unwrap_err();
            assert_eq!(error.kind(), kind, "{name}");
        }
    }
}

/// Only the nodes of holders are left in the queue, and the next waiter is served.
async fn served<M: Mutual>(case: &Case<'_>, process: &Process) {
    let lock = case.lock::<M>(process, "lock");
    let guard = lock.acquire_timeout(LONG).await.expect("the next one is served");
    assert_eq!(soon("the release", guard.release()).await.unwrap(), Release::Released);
    case.until_free(&case.path("lock")).await;
}
