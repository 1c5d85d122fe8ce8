//! The cost of the mutex, in calls to the contract. A store's tests count the requests behind them.

use zlock_core::ErrorKind;
use zlock_recipes::{InterProcessMutex, Release};

use crate::{Call, Case, Process, Side};

const CALLS: [Call; 4] = [Call::Create, Call::Exists, Call::Children, Call::Delete];

fn counts(process: &Process) -> [usize; 4] {
    let counts = CALLS.map(|call| process.faults.count(call));
    assert_eq!(counts.iter().sum::<usize>(), process.faults.total(), "nothing else is called");
    counts
}

/// Uncontended: one create, one delete.
pub async fn uncontended(case: &Case<'_>) {
    let a = case.process().await;
    let lock = case.lock::<InterProcessMutex>(&a, "lock");
    for round in 1..=3 {
        assert_eq!(lock.acquire().await.unwrap().release().await.unwrap(), Release::Released);
        assert_eq!(counts(&a), [round, 0, 0, round]);
    }
}

/// Contended: one watch and one listing more.
pub async fn contended(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let lock = case.lock::<InterProcessMutex>(&b, "lock");
    let guard = case.lock::<InterProcessMutex>(&a, "lock").acquire().await.unwrap();
    let armed = b.faults.hold(Call::Exists, Side::After);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    armed.reached().await;
    armed.open();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    assert_eq!(waiter.await.unwrap().release().await.unwrap(), Release::Released);
    assert_eq!(counts(&a), [1, 0, 0, 1]);
    assert_eq!(counts(&b), [1, 1, 1, 1]);
}

/// A failed try costs one listing and no write.
pub async fn failed_try(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let lock = case.lock::<InterProcessMutex>(&b, "lock");
    let guard = case.lock::<InterProcessMutex>(&a, "lock").acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(counts(&b), [0, 0, 1, 0]);
    assert!(lock.acquire_timeout(std::time::Duration::ZERO).await.unwrap_err().is_timeout());
    assert_eq!(counts(&b), [0, 0, 2, 0]);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// Queries about a held lock are local.
pub async fn looks_cost_nothing(case: &Case<'_>) {
    let a = case.process().await;
    let lock = case.lock::<InterProcessMutex>(&a, "lock");
    let guard = lock.acquire().await.unwrap();
    let before = a.faults.total();
    assert!(guard.is_held() && guard.context().is_held() && lock.is_acquired_in_this_process());
    let again = guard.reenter().unwrap();
    assert_eq!(again.release().await.unwrap(), Release::StillHeld);
    assert_eq!(a.faults.total(), before);
    case.store.expire(&a.connection).await;
    assert_eq!(guard.lost().await.kind(), ErrorKind::SessionLost);
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
    case.until("the background is idle", async || a.client.pending_cleanups() == 0).await;
    assert_eq!(a.faults.total(), before, "a session that is over needs no clean-up");
}
