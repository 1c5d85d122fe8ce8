//! Tasks that acquire and release, and the times they take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Barrier;
use tokio::time::Instant;
use zlock::Release;

use crate::locker::Locker;

/// How long the halves of one operation took, in nanoseconds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sample {
    pub(crate) acquire: u64,
    pub(crate) release: u64,
}

/// What came out of a workload.
pub(crate) struct Measured {
    pub(crate) samples: Vec<Sample>,
    pub(crate) seconds: f64,
    pub(crate) per_client: Vec<usize>,
    /// How often more held than may.
    pub(crate) violations: u64,
}

/// What all tasks share.
struct Shared {
    next: AtomicUsize,
    operations: usize,
    /// How much of the lock is taken; not looked at if each task has a lock of its own.
    inside: Option<AtomicU64>,
    violations: AtomicU64,
    gate: Barrier,
}

/// A task for each locker; `shared` if they are all on the same lock.
pub(crate) async fn drive(lockers: &[Locker], operations: usize, shared: bool) -> Measured {
    let shared = Arc::new(Shared {
        next: AtomicUsize::new(0),
        operations,
        inside: shared.then(|| AtomicU64::new(0)),
        violations: AtomicU64::new(0),
        gate: Barrier::new(lockers.len() + 1),
    });
    let tasks: Vec<_> = lockers.iter().map(|lock| tokio::spawn(work(lock.clone(), shared.clone()))).collect();
    shared.gate.wait().await;
    let began = Instant::now();
    let mut samples = Vec::with_capacity(operations);
    let mut per_client = Vec::new();
    for task in tasks {
        let mine = task.await.expect("a task");
        per_client.push(mine.len());
        samples.extend(mine);
    }
    let seconds = began.elapsed().as_secs_f64();
    Measured { samples, seconds, per_client, violations: shared.violations.load(Ordering::SeqCst) }
}

async fn work(locker: Locker, shared: Arc<Shared>) -> Vec<Sample> {
    let mut samples = Vec::new();
    shared.gate.wait().await;
    loop {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        if number >= shared.operations {
            return samples;
        }
        let began = Instant::now();
        let taken = locker.acquire(number).await;
        let acquire = nanoseconds(began);
        if let Some(inside) = &shared.inside {
            if inside.fetch_add(taken.share, Ordering::SeqCst) + taken.share > locker.limit() {
                shared.violations.fetch_add(1, Ordering::SeqCst);
            }
            inside.fetch_sub(taken.share, Ordering::SeqCst);
        }
        let began = Instant::now();
        assert_eq!(taken.release().await, Release::Released);
        samples.push(Sample { acquire, release: nanoseconds(began) });
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
