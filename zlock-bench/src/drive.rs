//! Runs tasks that acquire and release locks, and measures them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Barrier;
use tokio::time::Instant;
use zlock::{Lock, LockGuard, Release};

/// A task with a second lock acquires that once in this many operations.
const RARELY: usize = 20;

/// The durations of the two halves of an operation, in nanoseconds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sample {
    pub(crate) acquire: u64,
    pub(crate) release: u64,
}

/// The measurements of a workload.
pub(crate) struct Measured {
    pub(crate) samples: Vec<Sample>,
    pub(crate) seconds: f64,
    pub(crate) per_client: Vec<usize>,
    /// How often there were more holders than allowed.
    pub(crate) violations: u64,
}

/// A task, and the locks that it acquires.
#[derive(Clone)]
pub(crate) struct Task<L, R = L> {
    pub(crate) lock: L,
    /// If not empty, each operation uses the next of these locks instead, in turn for all tasks.
    pub(crate) locks: Arc<[L]>,
    /// An exclusive lock on the same path.
    pub(crate) rare: Option<R>,
    /// The maximum number of holders of `lock`.
    pub(crate) limit: u64,
    pub(crate) turn: Turn,
}

/// What a task does while it holds its lock, and how it releases the lock.
#[derive(Clone, Copy, Default)]
pub(crate) struct Turn {
    /// How long the task keeps its core busy.
    pub(crate) work: Duration,
    /// `true` if the guard is dropped, `false` if `release` is awaited.
    pub(crate) drops: bool,
}

impl<L> Task<L> {
    /// Creates a task that acquires only this lock.
    pub(crate) fn new(lock: L, limit: u64) -> Self {
        Task { lock, locks: Arc::default(), rare: None, limit, turn: Turn::default() }
    }

    pub(crate) fn with_locks(self, locks: Arc<[L]>) -> Self {
        Task { locks, ..self }
    }

    pub(crate) fn with_turn(self, turn: Turn) -> Self {
        Task { turn, ..self }
    }
}

/// The state that all tasks share.
struct Shared {
    next: AtomicUsize,
    operations: usize,
    /// The part of the lock that is held. Ignored if each task has its own lock.
    inside: Option<AtomicU64>,
    violations: AtomicU64,
    gate: Barrier,
}

/// Runs all tasks concurrently. `shared` is `true` if they all use the same lock.
pub(crate) async fn drive<L: Lock, R: Lock>(
    tasks: &[Task<L, R>],
    operations: usize,
    shared: bool,
) -> Measured {
    let shared = Arc::new(Shared {
        next: AtomicUsize::new(0),
        operations,
        inside: shared.then(|| AtomicU64::new(0)),
        violations: AtomicU64::new(0),
        gate: Barrier::new(tasks.len() + 1),
    });
    let tasks: Vec<_> = tasks.iter().map(|task| tokio::spawn(work(task.clone(), shared.clone()))).collect();
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

async fn work<L: Lock, R: Lock>(task: Task<L, R>, shared: Arc<Shared>) -> Vec<Sample> {
    let mut samples = Vec::new();
    shared.gate.wait().await;
    loop {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        if number >= shared.operations {
            return samples;
        }
        samples.push(match &task.rare {
            Some(rare) if number.is_multiple_of(RARELY) => {
                operate(rare, task.limit, task.limit, task.turn, &shared).await
            }
            _ if !task.locks.is_empty() => {
                let next = &task.locks[number % task.locks.len()];
                operate(next, 1, task.limit, task.turn, &shared).await
            }
            _ => operate(&task.lock, 1, task.limit, task.turn, &shared).await,
        });
    }
}

/// Acquires and releases once. `share` is the part of the limit that the lock uses.
async fn operate<L: Lock>(lock: &L, share: u64, limit: u64, turn: Turn, shared: &Shared) -> Sample {
    let began = Instant::now();
    let guard = lock.acquire().await.expect("acquire");
    let acquire = nanoseconds(began);
    if let Some(inside) = &shared.inside {
        if inside.fetch_add(share, Ordering::SeqCst) + share > limit {
            shared.violations.fetch_add(1, Ordering::SeqCst);
        }
        busy(turn.work);
        inside.fetch_sub(share, Ordering::SeqCst);
    }
    let began = Instant::now();
    if turn.drops {
        drop(guard);
    } else {
        assert_eq!(guard.release().await.expect("release"), Release::Released);
    }
    Sample { acquire, release: nanoseconds(began) }
}

/// Keeps the core busy.
fn busy(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
