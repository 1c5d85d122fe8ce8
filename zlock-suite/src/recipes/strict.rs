//! Locks each of whose waiters has its own place in the store: first come, first served, across all clients.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use zlock_recipes::Release;

use crate::case::LONG;
use crate::{Call, Case, Mutual, TestGuard, TestLock};

/// Waiters get the lock in the order in which they queued.
pub async fn order_of_the_queue<M: Mutual>(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let path = case.path("lock");
    let first = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for i in 0..12 {
        let lock = case.lock::<M>([&a, &b, &c][i % 3], "lock");
        let tell = tell.clone();
        tasks.spawn(async move {
            let guard = lock.acquire_timeout(LONG).await.unwrap();
            tell.send(i).unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        });
        case.until_queued(&path, i + 2).await;
    }
    assert_eq!(first.release().await.unwrap(), Release::Released);
    tasks.join_all().await;
    let order: Vec<_> = (0..12).map(|_| told.try_recv().unwrap()).collect();
    assert!(order.is_sorted(), "{order:?}");
}

/// One release wakes one of fifty waiters: no other client sends a request.
pub async fn no_herd<M: Mutual>(case: &Case<'_>) {
    let processes: [_; 5] = case.processes().await;
    let path = case.path("lock");
    let first = case.lock::<M>(&processes[0], "lock").acquire().await.unwrap();
    let mut tasks = JoinSet::new();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    // No place is behind another place of its own process, which would hand over to it.
    for i in 0..50 {
        let (lock, tell) = (case.lock::<M>(&processes[(i + 1) % 5], "lock"), tell.clone());
        tasks.spawn(async move { tell.send(lock.acquire().await.unwrap()).unwrap() });
        case.until_queued(&path, i + 2).await;
    }
    let total = |call: Call| processes.iter().map(|p| p.faults.count(call)).sum::<usize>();
    let waits = || total(Call::Exists) + total(Call::ChildrenWithWatch);
    let calls = || processes.iter().map(|p| p.faults.total()).sum::<usize>();
    // All reads must have ended before anything changes: a read in flight may already show the next change.
    let at_rest = || processes.iter().all(|p| p.faults.under_way() == 0);
    case.until("all wait", async || waits() >= 50).await;
    // Each new waiter is a change that the first waiter of a semaphore reads.
    let quiet = Duration::from_millis(if case.paused { 20 } else { 300 });
    case.until("all is quiet", async || {
        let before = calls();
        sleep(quiet).await;
        calls() == before && at_rest()
    })
    .await;
    let (mut holder, mut expected) = (first, calls());
    for waiting in (0..50).rev() {
        // Without a waiter, there is nothing to notify, and no next client.
        expected += if waiting > 0 { M::HAND_OVER } else { 2 * M::NODES };
        assert_eq!(holder.release().await.unwrap(), Release::Released);
        holder = told.recv().await.unwrap();
        assert!(holder.is_held());
        case.until("the hand-over is done", async || calls() >= expected && at_rest()).await;
        assert_eq!(calls(), expected, "{waiting} wait");
    }
    assert_eq!(total(Call::Create), 51 * M::NODES);
    assert_eq!(holder.release().await.unwrap(), Release::Released);
}
