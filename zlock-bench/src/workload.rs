//! The workloads.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock::backend::LockPath;
use zlock::{Client, Handoff, InterProcessMutex, Lock, Release};

use crate::drive::{Measured, Sample, Task, Turn, drive};
use crate::report::{GROWTH, Row, print, scaled, snap};
use crate::store::Store;
use crate::{fleet, overload};

pub(crate) const ALL: [&str; 18] = [
    "w1",
    "w1-drop",
    "w2-8",
    "w2-32",
    "w2-8x8",
    "w2-8x8-handoff",
    "w3",
    "w3-handoff",
    "w3-handoff-50us",
    "w4",
    "w5",
    "w6",
    "w7",
    "w8",
    "w9",
    GROWTH,
    FLEET,
    OVERLOAD,
];

/// These take long, or measure something else than the time of an operation, so they run only if named.
pub(crate) const ONLY_NAMED: [&str; 3] = [GROWTH, FLEET, OVERLOAD];

pub(crate) const FLEET: &str = "fleet";

pub(crate) const OVERLOAD: &str = "overload";

const WAITERS: usize = 500;

/// The number of locks that `w8` takes in turn.
const ORDERS: usize = 10_000;

/// The number of candidates in `w9`.
const CANDIDATES: usize = 3;

const HANDOFF: Handoff = Handoff::within(Duration::from_millis(10));

/// The duration of a critical section, in workloads where it has one.
const WORK: Duration = Duration::from_micros(50);

pub(crate) async fn run(store: &Store, workload: &str) {
    match workload {
        "w1" => timed(store, workload, &one_lock(store, workload, 1, 1).await, 2000, true).await,
        "w1-drop" => {
            let turn = Turn { drops: true, ..Turn::default() };
            let tasks = one_lock(store, workload, 1, 1).await;
            let tasks: Vec<_> = tasks.into_iter().map(|task| task.with_turn(turn)).collect();
            timed(store, workload, &tasks, 2000, true).await;
        }
        "w2-8" => timed(store, workload, &one_lock(store, workload, 8, 1).await, 4000, true).await,
        "w2-32" => timed(store, workload, &one_lock(store, workload, 32, 1).await, 4000, true).await,
        "w2-8x8" => timed(store, workload, &one_lock(store, workload, 8, 8).await, 4000, true).await,
        "w2-8x8-handoff" => {
            let tasks = handed(one_lock(store, workload, 8, 8).await, Duration::ZERO);
            timed(store, workload, &tasks, 400_000, true).await;
        }
        "w3" => timed(store, workload, &one_lock(store, workload, 1, 64).await, 4000, true).await,
        "w3-handoff" => {
            let tasks = handed(one_lock(store, workload, 1, 64).await, Duration::ZERO);
            timed(store, workload, &tasks, 400_000, true).await;
        }
        "w3-handoff-50us" => {
            let tasks = handed(one_lock(store, workload, 1, 64).await, WORK);
            timed(store, workload, &tasks, 40_000, true).await;
        }
        "w4" => {
            let (client, path) = (Client::new(store.connect().await), store.path(workload));
            let own = |i| Task::new(mutex(&client, &format!("{path}/{i}")), 1);
            timed(store, workload, &(0..64).map(own).collect::<Vec<_>>(), 12_800, false).await;
        }
        "w5" => {
            let (client, path) = (Client::new(store.connect().await), store.path(workload));
            let lock = client.read_write_lock(&path).expect("a path");
            // More than there are readers.
            let task = Task {
                lock: lock.read(),
                locks: Arc::default(),
                rare: Some(lock.write()),
                limit: 1000,
                turn: Turn::default(),
            };
            timed(store, workload, &vec![task; 16], 4000, true).await;
        }
        "w6" => {
            let (client, path) = (Client::new(store.connect().await), store.path(workload));
            let permit = client.semaphore(&path, 8).and_then(|semaphore| semaphore.permits(1));
            timed(store, workload, &vec![Task::new(permit.expect("a path"), 8); 32], 4000, true).await;
        }
        "w8" => {
            let (client, path) = (Client::new(store.connect().await), store.path(workload));
            let locks: Arc<[_]> = (0..ORDERS).map(|i| mutex(&client, &format!("{path}/{i}"))).collect();
            let task = Task::new(locks[0].clone(), 1).with_locks(locks);
            timed(store, workload, &vec![task; 64], 12_800, false).await;
        }
        "w9" => {
            let (mut tasks, path) = (Vec::new(), store.path(workload));
            for _ in 0..CANDIDATES {
                let client = Client::new(store.connect().await);
                tasks.push(Task::new(client.election(&path).expect("a path"), 1));
            }
            timed(store, workload, &tasks, 2000, true).await;
        }
        GROWTH => timed(store, workload, &one_lock(store, workload, 1, 1).await, 100_000, true).await,
        FLEET => fleet::run(store).await,
        OVERLOAD => overload::run(store).await,
        _ => queue(store).await,
    }
}

/// Creates tasks on one lock, in this many sessions with this many tasks each.
async fn one_lock(
    store: &Store,
    workload: &str,
    sessions: usize,
    tasks: usize,
) -> Vec<Task<InterProcessMutex>> {
    let path = store.path(workload);
    let mut locks = Vec::new();
    for _ in 0..sessions {
        let client = Client::new(store.connect().await);
        locks.extend((0..tasks).map(|_| Task::new(mutex(&client, &path), 1)));
    }
    locks
}

/// Enables hand-off for these tasks, and makes each holder work for this time.
fn handed(tasks: Vec<Task<InterProcessMutex>>, work: Duration) -> Vec<Task<InterProcessMutex>> {
    let turn = Turn { work, ..Turn::default() };
    let hand = |task: Task<InterProcessMutex>| {
        Task::new(task.lock.with_handoff(HANDOFF), task.limit).with_turn(turn)
    };
    tasks.into_iter().map(hand).collect()
}

fn mutex(client: &Client, path: &str) -> InterProcessMutex {
    client.mutex(path).expect("a path")
}

async fn timed<L: Lock, R: Lock>(
    store: &Store,
    workload: &str,
    tasks: &[Task<L, R>],
    operations: usize,
    shared: bool,
) {
    let operations = scaled(operations).max(tasks.len());
    if workload != GROWTH {
        drive(tasks, (operations / 4).max(tasks.len()), shared).await;
    }
    let before = snap(store.name());
    let measured = drive(tasks, operations, shared).await;
    let after = snap(store.name());
    print(Row::of_zlock(store.name(), workload), &measured, &before, &after);
}

/// All waiters queue behind a holder, which then releases the lock.
async fn queue(store: &Store) {
    let backend = store.connect().await;
    let (client, path) = (Client::new(backend.clone()), store.path("w7"));
    let held = mutex(&client, &path).acquire().await.expect("acquire");
    let start = snap(store.name());
    let began = Instant::now();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let lock = mutex(&client, &path);
            tokio::spawn(async move { lock.acquire().await.expect("acquire").release().await })
        })
        .collect();
    let path = LockPath::new(&path).expect("a path");
    while backend.children(&path, None).await.expect("children").len() <= WAITERS {
        sleep(Duration::from_millis(5)).await;
    }
    let enqueued = began.elapsed();
    sleep(Duration::from_secs(1)).await;
    let ready = snap(store.name());
    print(Row::of_zlock(store.name(), "w7-enqueue"), &span(enqueued), &start, &ready);

    let began = Instant::now();
    assert_eq!(held.release().await.expect("release"), Release::Released);
    for waiter in waiters {
        assert_eq!(waiter.await.expect("a task").expect("release"), Release::Released);
    }
    let drained = began.elapsed();
    print(Row::of_zlock(store.name(), "w7-drain"), &span(drained), &ready, &snap(store.name()));
}

/// Returns a measurement of only the total time, with one operation for each waiter.
fn span(time: Duration) -> Measured {
    Measured {
        samples: vec![Sample::default(); WAITERS],
        seconds: time.as_secs_f64(),
        per_client: vec![1; WAITERS],
        violations: 0,
    }
}
