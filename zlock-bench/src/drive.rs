//! Tasks that acquire and release, and the times they take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Barrier;
use tokio::time::Instant;
use zlock::{InterProcessMutex, Release};

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
    /// How often more than one held.
    pub(crate) violations: u64,
}

/// What all tasks share.
struct Shared {
    next: AtomicUsize,
    operations: usize,
    /// Whether somebody is inside; not looked at if each has a lock of its own.
    inside: Option<AtomicBool>,
    violations: AtomicU64,
    gate: Barrier,
}

/// A task for each lock; `exclusive` if they are all the same lock.
pub(crate) async fn drive(locks: &[InterProcessMutex], operations: usize, exclusive: bool) -> Measured {
    let shared = Arc::new(Shared {
        next: AtomicUsize::new(0),
        operations,
        inside: exclusive.then(|| AtomicBool::new(false)),
        violations: AtomicU64::new(0),
        gate: Barrier::new(locks.len() + 1),
    });
    let tasks: Vec<_> = locks.iter().map(|lock| tokio::spawn(work(lock.clone(), shared.clone()))).collect();
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

async fn work(lock: InterProcessMutex, shared: Arc<Shared>) -> Vec<Sample> {
    let mut samples = Vec::new();
    shared.gate.wait().await;
    while shared.next.fetch_add(1, Ordering::Relaxed) < shared.operations {
        let began = Instant::now();
        let guard = lock.acquire().await.expect("acquire");
        let acquire = nanoseconds(began);
        if let Some(inside) = &shared.inside {
            if inside.swap(true, Ordering::SeqCst) {
                shared.violations.fetch_add(1, Ordering::SeqCst);
            }
            inside.store(false, Ordering::SeqCst);
        }
        let began = Instant::now();
        let released = guard.release().await.expect("release");
        assert_eq!(released, Release::Released);
        samples.push(Sample { acquire, release: nanoseconds(began) });
    }
    samples
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
