//! Semaphores whose maximum is a value, on every store that has values.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use zlock_core::{ErrorKind, LockPath, Result};
use zlock_recipes::{Counter, CounterFormat, Guard, Semaphore};

use crate::case::{LONG, MOMENT};
use crate::{Call, Case, Process, Side, sweep};

/// A process with the semaphore and its maximum.
struct Worker {
    process: Process,
    workers: Semaphore,
    max: Counter,
}

fn path(case: &Case<'_>) -> LockPath {
    case.path("workers")
}

async fn worker(case: &Case<'_>) -> Worker {
    let process = case.process().await;
    let max = process.client.counter(case.value("max")).unwrap().with_format(CounterFormat::Text);
    let workers = process.client.semaphore_with_shared_max(path(case), &max).unwrap();
    Worker { process, workers, max }
}

impl Worker {
    fn waits(&self, n: u32) -> JoinHandle<Result<Guard>> {
        let workers = self.workers.clone();
        tokio::spawn(async move { workers.acquire(n).await })
    }

    async fn holds(&self, n: u32) -> Guard {
        timeout(LONG, self.workers.acquire(n)).await.expect("the permits are free").unwrap()
    }
}

async fn granted(waiting: JoinHandle<Result<Guard>>) -> Guard {
    timeout(LONG, waiting).await.expect("it is granted").unwrap().unwrap()
}

async fn waits_on(waiting: &mut JoinHandle<Result<Guard>>, why: &str) {
    assert!(timeout(MOMENT, waiting).await.is_err(), "granted {why}");
}

/// SEM-02: a raised maximum wakes waiters, and no more than it has room for.
pub async fn sem_02_raised_maximum_wakes_waiters(case: &Case<'_>) {
    let (a, b) = (worker(case).await, worker(case).await);
    let mut waiting = [b.waits(1), b.waits(1), b.waits(1)];
    waits_on(&mut waiting[0], "without a maximum").await;
    a.max.add(2).await.unwrap();
    let held = async |waiting: &[JoinHandle<_>]| waiting.iter().filter(|w| w.is_finished()).count();
    case.until("two are granted", async || held(&waiting).await == 2).await;
    sleep(MOMENT).await;
    assert_eq!(held(&waiting).await, 2);
    a.max.add(1).await.unwrap();
    for waiting in waiting {
        granted(waiting).await.release().await.unwrap();
    }
}

/// A lowered maximum takes permits from nobody, and none are granted until enough holders have left, whichever these are.
pub async fn lowered_maximum_waits_for_holders(case: &Case<'_>) {
    let (a, b) = (worker(case).await, worker(case).await);
    a.max.add(4).await.unwrap();
    let mut holders = join_all((0..4).map(|_| a.holds(1))).await;
    holders.sort_by_key(|guard| guard.fencing_token());
    a.max.add(-2).await.unwrap();
    let mut waiting = b.waits(1);
    waits_on(&mut waiting, "beside four of two").await;
    assert!(holders.iter().all(|guard| guard.is_held()));
    assert_eq!(b.workers.participants().await.unwrap().iter().filter(|node| node.is_holder).count(), 4);
    // The last holder stays, so it is not the one that the waiter is behind.
    for gone in 0..2 {
        holders.remove(0).release().await.unwrap();
        waits_on(&mut waiting, &format!("beside {} of two", 3 - gone)).await;
    }
    holders.remove(0).release().await.unwrap();
    let second = granted(waiting).await;
    assert!(b.workers.try_acquire(1).await.unwrap().is_none());
    drop((holders, second));
}

/// A waiter that knows an older maximum is not granted by it, whether that waits or tries.
pub async fn older_maximum_grants_nothing(case: &Case<'_>) {
    let (a, b) = (worker(case).await, worker(case).await);
    a.max.add(1).await.unwrap();
    // The second one has seen it.
    b.holds(1).await.release().await.unwrap();
    a.max.add(-1).await.unwrap();
    let mut waiting = b.waits(1);
    waits_on(&mut waiting, "by a maximum of the past").await;
    a.max.add(1).await.unwrap();
    granted(waiting).await.release().await.unwrap();
    a.max.add(-1).await.unwrap();
    assert!(b.workers.try_acquire(1).await.unwrap().is_none());
}

/// The maximum is lowered between the listing that shows room and the grant. The permits are not granted, and the label of a
/// holder is taken back.
pub async fn change_before_the_grant_comes_first(case: &Case<'_>) {
    let (a, b) = (worker(case).await, worker(case).await);
    a.max.add(1).await.unwrap();
    for side in [Side::Before, Side::After] {
        let relabel = b.process.faults.hold(Call::Relabel, side);
        let mut waiting = b.waits(1);
        relabel.reached().await;
        a.max.add(-1).await.unwrap();
        relabel.open();
        waits_on(&mut waiting, "by a maximum that was lowered before").await;
        let holders = a.workers.participants().await.unwrap().iter().filter(|node| node.is_holder).count();
        assert_eq!(holders, 0);
        a.max.add(1).await.unwrap();
        granted(waiting).await.release().await.unwrap();
    }
}

/// A later request is granted while the relabel of an earlier one is under way. Once the maximum is lowered, its permits count for
/// the earlier one.
pub async fn holder_behind_counts(case: &Case<'_>) {
    let (a, b, c) = (worker(case).await, worker(case).await, worker(case).await);
    c.max.add(2).await.unwrap();
    let relabel = a.process.faults.hold(Call::Relabel, Side::Before);
    let mut first = a.waits(1);
    relabel.reached().await;
    let second = b.holds(1).await;
    c.max.add(-1).await.unwrap();
    relabel.open();
    waits_on(&mut first, "beside one of one").await;
    second.release().await.unwrap();
    granted(first).await.release().await.unwrap();
}

/// The maximum changes all the time, while many acquire. There are never more holders than the largest maximum, and in the end
/// all have had their turn.
pub async fn changes_during_grants_have_one_of_two_orders(case: &Case<'_>) {
    let (a, b, c) = (worker(case).await, worker(case).await, worker(case).await);
    a.max.add(1).await.unwrap();
    let turns = |worker: &Worker| {
        let workers = worker.workers.clone();
        tokio::spawn(async move {
            for _ in 0..5 {
                let guard = workers.acquire(1).await.unwrap();
                sleep(Duration::from_millis(1)).await;
                guard.release().await.unwrap();
            }
        })
    };
    let turns = [turns(&b), turns(&b), turns(&c), turns(&c)];
    for _ in 0..10 {
        a.max.add(2).await.unwrap();
        let nodes = a.workers.participants().await.unwrap();
        assert!(nodes.iter().filter(|node| node.is_holder).count() <= 3, "{nodes:?}");
        a.max.add(-2).await.unwrap();
        sleep(Duration::from_millis(3)).await;
    }
    for turns in turns {
        timeout(LONG, turns).await.expect("all have their turn").unwrap();
    }
}

/// Clients with a maximum of their own are refused beside those with a shared one, and the other way round.
pub async fn fixed_maximum_is_refused(case: &Case<'_>) {
    let (a, b) = (worker(case).await, worker(case).await);
    a.max.add(2).await.unwrap();
    let fixed = b.process.client.semaphore(path(case), 2).unwrap();
    let guard = a.holds(1).await;
    for error in [fixed.acquire(1).await.unwrap_err(), fixed.try_acquire(1).await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::PermitLimitMismatch, "{error}");
        assert!(error.to_string().contains("2 here, and shared for"), "{error}");
    }
    guard.release().await.unwrap();
    let guard = fixed.acquire(1).await.unwrap();
    for error in [a.workers.acquire(1).await.unwrap_err(), a.workers.try_acquire(1).await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::PermitLimitMismatch, "{error}");
        assert!(error.to_string().contains("shared here, and 2 for"), "{error}");
    }
    guard.release().await.unwrap();
}

/// The maximum must be a value of the same client outside the semaphore.
pub async fn bad_maximum_is_refused(case: &Case<'_>) {
    let (a, b) = (worker(case).await, worker(case).await);
    for name in ["/app/workers", "/app/workers/max"] {
        let max = a.process.client.counter(name).unwrap();
        let error = a.process.client.semaphore_with_shared_max("/app/workers", &max).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(name), "{error}");
    }
    let max = a.process.client.counter("/app/workers-max").unwrap();
    a.process.client.semaphore_with_shared_max("/app/workers", &max).unwrap();
    let error = b.process.client.semaphore_with_shared_max("/app/workers", &max).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(a.workers.acquire(0).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// A waiter that is dropped while the grant is under way leaves no node.
pub async fn dropped_during_the_grant_leaves_no_node(case: &Case<'_>) {
    let (a, b) = (worker(case).await, worker(case).await);
    a.max.add(1).await.unwrap();
    for side in [Side::Before, Side::After] {
        let relabel = b.process.faults.hold(Call::Relabel, side);
        let waiting = b.waits(1);
        relabel.reached().await;
        waiting.abort();
        relabel.open();
        case.until_free(&path(case)).await;
        a.holds(1).await.release().await.unwrap();
    }
}

/// An acquisition that is dropped after any poll leaves no node.
pub async fn dropped_at_any_await_leaves_no_node(case: &Case<'_>) {
    let (a, b) = (worker(case).await, worker(case).await);
    a.max.add(1).await.unwrap();
    sweep("acquire, shared maximum", async |cut| {
        let workers = a.workers.clone();
        let done =
            tokio::spawn(cut.run(async move { workers.acquire(1).await.unwrap() })).await.unwrap().is_some();
        case.until_free(&path(case)).await;
        b.holds(1).await.release().await.unwrap();
        done
    })
    .await;
}
