//! Permits: several at once, in the order of the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::{sleep, timeout};
use zlock_core::{ErrorKind, LockPath};
use zlock_recipes::{Guard, InterProcessMutex, Release, Semaphore};

use crate::case::LONG;
use crate::{Call, Case, Process, Side};

const SHORT: Duration = Duration::from_millis(200);

fn semaphore(case: &Case<'_>, process: &Process, max: u32) -> Semaphore {
    at(process, &case.path("lock"), max)
}

fn at(process: &Process, path: &LockPath, max: u32) -> Semaphore {
    process.client.semaphore(path, max).unwrap()
}

/// Waits for permits in a task, as the n-th node in the queue.
async fn waiter(case: &Case<'_>, semaphore: Semaphore, permits: u32, n: usize) -> JoinHandle<Guard> {
    let path = semaphore.path().clone();
    let waiting = tokio::spawn(async move { semaphore.acquire(permits).await.unwrap() });
    case.until_queued(&path, n).await;
    waiting
}

async fn release(guard: Guard) {
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

async fn finished<T>(task: JoinHandle<T>) -> T {
    timeout(LONG, task).await.expect("it comes in").unwrap()
}

/// SEM-03: the permits of a client that is closed, or whose session ends, are returned.
pub async fn sem_03_permits_come_back(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let path = case.path("lock");
    let held =
        [semaphore(case, &a, 3).acquire(2).await.unwrap(), semaphore(case, &b, 3).acquire(1).await.unwrap()];
    let mine = semaphore(case, &c, 3);
    let two = waiter(case, mine.clone(), 2, 3).await;
    let one = waiter(case, mine.clone(), 1, 4).await;
    a.client.close().await.unwrap();
    let two = finished(two).await;
    sleep(SHORT).await;
    assert!(!one.is_finished() && !held[0].is_held() && held[1].is_held());
    case.store.expire(&b.connection).await;
    let one = finished(one).await;
    assert_eq!((two.permits(), one.permits()), (Some(2), Some(1)));
    assert_eq!(case.queued(&path).await, 2);
    release(two).await;
    release(one).await;
    drop(held);
}

/// The number of permits that are taken, and the maximum so far.
#[derive(Default)]
struct Taken {
    now: AtomicU32,
    most: AtomicU32,
}

impl Taken {
    /// Takes permits for a few milliseconds, and for longer until `peak` of them were taken at once: on a slow machine
    /// the first would be returned before the last is granted.
    async fn stay(&self, permits: u32, max: u32, peak: u32) {
        let now = self.now.fetch_add(permits, Ordering::SeqCst) + permits;
        self.most.fetch_max(now, Ordering::SeqCst);
        assert!(now <= max, "{now} of {max} permits are taken");
        for _ in 0..5 {
            yield_now().await;
        }
        sleep(Duration::from_millis(5)).await;
        while self.most.load(Ordering::SeqCst) < peak {
            sleep(Duration::from_millis(1)).await;
        }
        self.now.fetch_sub(permits, Ordering::SeqCst);
    }
}

/// SEM-05: ten sessions, five permits: at the peak exactly five are taken.
pub async fn sem_05_ten_sessions(case: &Case<'_>) {
    let (taken, mut tasks) = (Arc::<Taken>::default(), JoinSet::new());
    let processes: [_; 10] = case.processes().await;
    for process in &processes {
        let (semaphore, taken, rounds) = (semaphore(case, process, 5), taken.clone(), case.many(20, 5));
        tasks.spawn(async move {
            for _ in 0..rounds {
                let guard = semaphore.acquire(1).await.unwrap();
                taken.stay(1, 5, 5).await;
                assert!(guard.is_held());
                release(guard).await;
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(taken.most.load(Ordering::SeqCst), 5);
}

/// SEM-06: a hundred tasks, eleven permits, from one to all of them at a time: never more than eleven taken, and none at the
/// end.
pub async fn sem_06_any_chunks(case: &Case<'_>) {
    let (taken, mut tasks) = (Arc::<Taken>::default(), JoinSet::new());
    let processes: [_; 4] = case.processes().await;
    for i in 0..case.many(100, 40) {
        let (semaphore, taken) = (semaphore(case, &processes[i % 4], 11), taken.clone());
        let permits = u32::try_from(i * 7 % 11).unwrap() + 1;
        tasks.spawn(async move {
            let guard = semaphore.acquire(permits).await.unwrap();
            taken.stay(permits, 11, 0).await;
            // Half of them by a drop.
            if i % 2 == 0 {
                release(guard).await;
            }
        });
    }
    tasks.join_all().await;
    let (now, most) = (taken.now.load(Ordering::SeqCst), taken.most.load(Ordering::SeqCst));
    assert!(now == 0 && (1..=11).contains(&most), "{now}, {most}");
    case.until_free(&case.path("lock")).await;
    release(semaphore(case, &processes[0], 11).acquire(11).await.unwrap()).await;
}

/// SEM-08, SEM-09: a timed acquire of more permits than are free gets none, and leaves nothing; after one release it gets
/// them.
pub async fn sem_08_09_timed(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(semaphore(case, &a, 3).acquire(1).await.unwrap());
    }
    let mine = semaphore(case, &b, 3);
    for permits in 1..=3 {
        let error = mine.acquire_timeout(permits, SHORT).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(mine.try_acquire(permits).await.unwrap().is_none());
        let error = mine.acquire_timeout(permits, Duration::ZERO).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        case.until_queued(&path, 3).await;
    }
    release(held.remove(1)).await;
    held.push(mine.acquire_timeout(1, SHORT).await.unwrap());
    release(held.remove(0)).await;
    held.push(mine.try_acquire(1).await.unwrap().unwrap());
    for guard in held {
        release(guard).await;
    }
}

/// SEM-10: holders and waiters, in order; `is_acquired_in_this_process` is `true` if this client holds any permits.
pub async fn sem_10_participants(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (mine, others) = (semaphore(case, &a, 10), semaphore(case, &b, 10).with_node_data("b").unwrap());
    assert_eq!(mine.participants().await.unwrap(), []);
    let held = [mine.acquire(3).await.unwrap(), mine.acquire(4).await.unwrap()];
    let heavy = waiter(case, others.clone(), 4, 3).await;
    let light = waiter(case, others.clone(), 1, 4).await;
    let told = others.participants().await.unwrap();
    assert_eq!(told.iter().map(|p| p.is_holder).collect::<Vec<_>>(), [true, true, false, false]);
    assert_eq!(told[3].data, b"b");
    assert!(mine.is_acquired_in_this_process() && !others.is_acquired_in_this_process());
    for guard in held {
        release(guard).await;
    }
    assert!(!mine.is_acquired_in_this_process());
    release(finished(heavy).await).await;
    release(finished(light).await).await;
}

/// Two holders leave, in either order, and two waiters are granted at once.
pub async fn work_conserving(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    for first in [0, 1] {
        let mine = semaphore(case, &a, 2);
        let mut held = vec![mine.acquire(1).await.unwrap(), mine.acquire(1).await.unwrap()];
        let next = waiter(case, semaphore(case, &b, 2), 1, 3).await;
        let last = waiter(case, semaphore(case, &c, 2), 1, 4).await;
        case.until_waiting(&c, 1 + first).await;
        let stays = held.remove(1 - first);
        release(held.remove(0)).await;
        let next = finished(next).await;
        assert!(stays.is_held() && !last.is_finished());
        release(stays).await;
        let last = finished(last).await;
        assert!(next.is_held());
        release(next).await;
        release(last).await;
    }
}

/// A release that frees many permits grants all requests that fit, each notified by the one before.
pub async fn one_release_lets_many_in(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let all = semaphore(case, &a, 8).acquire(8).await.unwrap();
    let mut waiting = Vec::new();
    for (i, permits) in [1, 2, 1, 3, 1].into_iter().enumerate() {
        waiting.push(waiter(case, semaphore(case, &b, 8), permits, i + 2).await);
    }
    let too_much = waiter(case, semaphore(case, &b, 8), 1, 7).await;
    release(all).await;
    let mut held = Vec::new();
    for task in waiting {
        held.push(finished(task).await);
    }
    sleep(SHORT).await;
    assert!(held.iter().all(|guard| guard.is_held()) && !too_much.is_finished());
    // Not the first one, because any of them must do.
    release(held.remove(2)).await;
    held.push(finished(too_much).await);
    for guard in held {
        release(guard).await;
    }
}

/// Two clients ask for six of ten permits at once: one gets them, the other waits without any, and then gets six.
pub async fn no_holding_while_waiting(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let path = case.path("lock");
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for process in [&a, &b] {
        let (semaphore, tell) = (semaphore(case, process, 10), tell.clone());
        tokio::spawn(async move { tell.send(semaphore.acquire(6).await.unwrap()) });
    }
    let first = told.recv().await.unwrap();
    case.until_queued(&path, 2).await;
    sleep(SHORT).await;
    assert!(told.try_recv().is_err());
    let all = semaphore(case, &c, 10).participants().await.unwrap();
    assert_eq!(all.iter().map(|p| p.is_holder).collect::<Vec<_>>(), [true, false]);
    release(first).await;
    let second = told.recv().await.unwrap();
    assert_eq!(second.permits(), Some(6));
    release(second).await;
}

/// Large requests are not overtaken by smaller ones.
pub async fn heavy_is_not_starved(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let light = semaphore(case, &a, 10);
    let mut held = vec![light.acquire(1).await.unwrap(), light.acquire(1).await.unwrap()];
    let heavy = waiter(case, semaphore(case, &b, 10), 10, 3).await;
    let later = waiter(case, light.clone(), 1, 4).await;
    assert!(semaphore(case, &c, 10).try_acquire(1).await.unwrap().is_none(), "behind the heavy one");
    while let Some(guard) = held.pop() {
        assert!(!later.is_finished() && !heavy.is_finished());
        release(guard).await;
    }
    let heavy = finished(heavy).await;
    sleep(SHORT).await;
    assert!(!later.is_finished());
    release(heavy).await;
    release(finished(later).await).await;
}

/// Invalid numbers are refused before anything is sent; the error has the numbers.
pub async fn impossible_numbers(case: &Case<'_>) {
    let a = case.process().await;
    let path = case.path("lock");
    let none = a.client.semaphore(&path, 0).unwrap_err();
    assert_eq!((none.kind(), none.path()), (ErrorKind::InvalidArgument, Some(path.as_str())));
    assert!(none.to_string().contains("0 permits"), "{none}");
    assert_eq!(a.client.semaphore("/", 1).unwrap_err().kind(), ErrorKind::InvalidPath);
    let mine = semaphore(case, &a, 5);
    for (permits, what) in
        [(0, "0 of 5"), (6, "6 permits, more than the maximum of 5"), (u32::MAX, "4294967295")]
    {
        for error in [
            mine.acquire(permits).await.unwrap_err(),
            mine.acquire_timeout(permits, LONG).await.unwrap_err(),
            mine.acquire_timeout(permits, Duration::ZERO).await.unwrap_err(),
            mine.try_acquire(permits).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(what), "{error}");
        }
    }
    assert_eq!(a.faults.total(), 0);
    // The largest valid numbers work.
    let huge = semaphore(case, &a, u32::MAX);
    let guard = huge.acquire(u32::MAX).await.unwrap();
    assert_eq!(guard.permits(), Some(u32::MAX));
    let waiting =
        [waiter(case, huge.clone(), u32::MAX, 2).await, waiter(case, huge.clone(), u32::MAX, 3).await];
    assert!(huge.try_acquire(1).await.unwrap().is_none());
    release(guard).await;
    for waiting in waiting {
        release(finished(waiting).await).await;
    }
}

/// A client with another maximum gets an error with both numbers and leaves nothing behind; a try does so before it
/// writes. The maximum of the first node counts, also for clients behind the mistaken one.
pub async fn another_maximum(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let path = case.path("lock");
    let held = semaphore(case, &a, 5).acquire(1).await.unwrap();
    let mistaken = semaphore(case, &b, 7);
    for error in [
        mistaken.acquire(1).await.unwrap_err(),
        mistaken.acquire_timeout(7, LONG).await.unwrap_err(),
        mistaken.try_acquire(1).await.unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.path()), (ErrorKind::PermitLimitMismatch, Some(path.as_str())));
        assert!(error.to_string().contains("is 7 here") && error.to_string().contains("5 for"), "{error}");
        assert!(!error.is_retryable());
        case.until_queued(&path, 1).await;
    }
    assert_eq!(b.faults.count(Call::Create), 2, "the try wrote nothing");
    // While the mistaken client is giving up.
    let gate = b.faults.hold(Call::Delete, Side::Before);
    assert_eq!(mistaken.acquire(7).await.unwrap_err().kind(), ErrorKind::PermitLimitMismatch);
    gate.reached().await;
    let next = waiter(case, semaphore(case, &c, 5), 1, 3).await;
    gate.open();
    release(finished(next).await).await;
    release(held).await;
    case.until_free(&path).await;
    release(mistaken.acquire(7).await.unwrap()).await;
}

/// Permits are not reentrant: inside the scope of a permit, an acquire takes more of them.
pub async fn not_entered_again(case: &Case<'_>) {
    let a = case.process().await;
    let mine = semaphore(case, &a, 2);
    let one = mine.acquire(1).await.unwrap();
    let two = one.scope(async { mine.acquire(1).await.unwrap() }).await;
    assert!(two.fencing_token() > one.fencing_token());
    assert!(one.scope(async { mine.try_acquire(1).await.unwrap() }).await.is_none());
    let error = two.scope(async { mine.acquire_timeout(1, SHORT).await.unwrap_err() }).await;
    assert_eq!(error.kind(), ErrorKind::Busy);
    // `reenter` returns another guard of the same permit.
    let again = one.reenter().unwrap();
    assert_eq!(one.release().await.unwrap(), Release::StillHeld);
    assert!(mine.try_acquire(1).await.unwrap().is_none());
    release(again).await;
    release(two).await;
}

/// A release wakes only the first waiter; the one behind it wakes when the first was granted.
pub async fn wakes_one(case: &Case<'_>) {
    let [a, b, c, d] = case.processes().await;
    let mine = semaphore(case, &a, 3);
    let held = [mine.acquire(2).await.unwrap(), mine.acquire(1).await.unwrap()];
    let first = waiter(case, semaphore(case, &b, 3), 2, 3).await;
    let second = waiter(case, semaphore(case, &c, 3), 1, 4).await;
    let third = waiter(case, semaphore(case, &d, 3), 3, 5).await;
    case.until_waiting(&d, 1).await;
    let listings = |p: &Process| (p.faults.count(Call::Children), p.faults.count(Call::ChildrenWithWatch));
    let [heavy, light] = held;
    release(light).await;
    case.until("the first looks", async || listings(&b).1 >= 2).await;
    sleep(SHORT).await;
    assert!(!first.is_finished(), "one of three is free, it needs two");
    assert_eq!((listings(&c), listings(&d)), ((0, 0), (0, 0)));
    release(heavy).await;
    let (first, second) = (finished(first).await, finished(second).await);
    case.until_waiting(&d, 2).await;
    assert!(!third.is_finished());
    assert_eq!(listings(&c), (1, 0), "once, when the first was granted");
    release(first).await;
    release(second).await;
    release(finished(third).await).await;
}

/// Other locks on a semaphore's path are safe but useless: they exclude later requests and wait for earlier ones.
pub async fn other_locks_on_the_same_path(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let mine = semaphore(case, &a, 5);
    let rw = b.client.read_write_lock(case.path("lock")).unwrap();
    let one = mine.acquire(1).await.unwrap();
    let mutex = case.lock::<InterProcessMutex>(&b, "lock");
    for error in [
        mutex.acquire_timeout(SHORT).await.map(drop).unwrap_err(),
        rw.read().acquire_timeout(SHORT).await.map(drop).unwrap_err(),
        rw.write().acquire_timeout(SHORT).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Busy);
    }
    assert!(mutex.try_acquire().await.unwrap().is_none());
    assert!(rw.read().try_acquire().await.unwrap().is_none());
    let read = rw.read();
    let reader = tokio::spawn(async move { read.acquire().await.unwrap() });
    case.until_queued(&case.path("lock"), 2).await;
    let behind =
        [waiter(case, semaphore(case, &c, 5), 1, 3).await, waiter(case, semaphore(case, &c, 5), 1, 4).await];
    assert!(mine.try_acquire(1).await.unwrap().is_none());
    release(one).await;
    let reader = finished(reader).await;
    sleep(SHORT).await;
    assert!(behind.iter().all(|task| !task.is_finished()));
    release(reader).await;
    for task in behind {
        release(finished(task).await).await;
    }
}
