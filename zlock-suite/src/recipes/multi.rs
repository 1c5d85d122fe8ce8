//! The features of `MultiLock` beyond those of a lock that acts as a mutex.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use zlock_core::{ErrorKind, SessionState};
use zlock_recipes::{DynLock, InterProcessMutex, MultiLock, Release};

use crate::case::LONG;
use crate::{Call, Case, Inside, Log, Process, Side, sweep};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn mutex(case: &Case<'_>, process: &Process, name: &str) -> InterProcessMutex {
    case.lock::<InterProcessMutex>(process, name)
}

/// The mutexes `a`, `b` and `c`, each of its own client.
fn three(case: &Case<'_>, processes: &[Process; 3]) -> MultiLock {
    // Passed in another order than that of acquisition.
    MultiLock::new([2, 0, 1].map(|i| mutex(case, &processes[i], NAMES[i]))).unwrap()
}

/// Returns the numbers of places at `a`, `b` and `c`.
async fn queued(case: &Case<'_>) -> [usize; 3] {
    let mut queued = [0; 3];
    for (count, name) in queued.iter_mut().zip(NAMES) {
        *count = case.queued(&case.path(name)).await;
    }
    queued
}

/// ML-01: one release fails: the others are released nevertheless, in reverse order, and its error is reported.
pub async fn ml_01_one_release_fails(case: &Case<'_>) {
    let processes: [_; 3] = case.processes().await;
    let guard = three(case, &processes).acquire().await.unwrap();
    assert_eq!(queued(case).await, [1, 1, 1]);
    let [first, second, third] = &processes;
    let last = third.faults.hold(Call::Delete, Side::Before);
    second.faults.fail(Call::Delete, Side::Before, 1, ErrorKind::NotAuthorized);
    let before_first = first.faults.hold(Call::Delete, Side::Before);
    let releasing = tokio::spawn(guard.release());
    last.reached().await;
    assert_eq!((first.faults.count(Call::Delete), second.faults.count(Call::Delete)), (0, 0));
    last.open();
    before_first.reached().await;
    assert_eq!(queued(case).await[2], 0, "the last one first");
    before_first.open();
    let error = releasing.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotAuthorized);
    assert_eq!(queued(case).await[0], 0);
    case.until_free(&case.path("b")).await;
}

/// ML-02, ML-03: the second cannot be acquired: its error is reported, the first is released by then, the third is untouched.
pub async fn ml_02_03_the_second_fails(case: &Case<'_>) {
    let processes: [_; 3] = case.processes().await;
    let all = three(case, &processes);
    let [_, second, third] = &processes;
    for side in [Side::Before, Side::After] {
        second.faults.fail(Call::Create, side, 1, ErrorKind::NotAuthorized);
        let error = all.acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAuthorized);
        assert_eq!(queued(case).await[0], 0);
        assert_eq!(third.faults.total(), 0);
        case.until_free(&case.path("b")).await;
    }
    assert_eq!(all.acquire_timeout(LONG).await.unwrap().release().await.unwrap(), Release::Released);
}

/// T8: a roll-back that fails does not hide its cause; the failure is logged, and the background completes the roll-back.
pub async fn t8_roll_back_fails(case: &Case<'_>) {
    let log = Log::of_this_thread();
    let processes: [_; 3] = case.processes().await;
    let [first, second, third] = &processes;
    first.faults.fail(Call::Delete, Side::Before, 1, ErrorKind::NotAuthorized);
    third.faults.fail(Call::Create, Side::Before, 1, ErrorKind::Unexpected);
    let error = three(case, &processes).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected);
    assert_eq!(second.faults.count(Call::Delete), 1, "the others are rolled back");
    let logged = log.with("the release continues in the background");
    assert!(matches!(&logged[..], [line] if line.contains(case.path("a").as_str())), "{logged:?}");
    case.until_free(&case.path("a")).await;
}

/// ML-04: one deadline for all: time that the first has used is not available to the second.
pub async fn ml_04_one_deadline(case: &Case<'_>) {
    let processes: [_; 3] = case.processes().await;
    let other = case.process().await;
    let (time, part) = (Duration::from_millis(1000), Duration::from_millis(600));
    let first = mutex(case, &other, "a").acquire().await.unwrap();
    let second = mutex(case, &other, "b").acquire().await.unwrap();
    let all = three(case, &processes);
    let began = Instant::now();
    let release = async {
        sleep(part).await;
        first.release().await.unwrap()
    };
    let (timed_out, released) = tokio::join!(all.acquire_timeout(time), release);
    case.took(began, time);
    assert_eq!(released, Release::Released);
    let error = timed_out.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!(error.path(), Some(case.path("b").as_str()));
    case.until_free(&case.path("a")).await;
    case.until_queued(&case.path("b"), 1).await;
    assert_eq!(second.release().await.unwrap(), Release::Released);
}

/// T45: a deadline that has passed when the second lock is next, and a zero duration: a timeout, and nothing is left.
pub async fn t45_past_deadline(case: &Case<'_>) {
    let processes: [_; 3] = case.processes().await;
    let other = case.process().await;
    let all = three(case, &processes);
    let held = mutex(case, &other, "b").acquire().await.unwrap();
    assert!(all.try_acquire().await.unwrap().is_none());
    assert_eq!(queued(case).await, [0, 1, 0]);
    let error = all.acquire_timeout(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!((error.path(), queued(case).await), (Some(case.path("b").as_str()), [0, 1, 0]));
    // The answer to the first create arrives at the very end of the time.
    let asked = processes[1].faults.total();
    for _ in 0..case.many(30, 3) {
        let gate = processes[0].faults.hold(Call::Create, Side::After);
        let time = Duration::from_millis(20);
        let opens = async {
            sleep(time).await;
            gate.open();
        };
        let (timed_out, ()) = tokio::join!(all.acquire_timeout(time), opens);
        assert!(timed_out.unwrap_err().is_timeout());
        processes[0].faults.mend();
        case.until_free(&case.path("a")).await;
    }
    // A running clock may leave a little time.
    assert!(!case.paused || processes[1].faults.total() == asked, "the second was asked past the deadline");
    assert_eq!(held.release().await.unwrap(), Release::Released);
    let guard = all.acquire_timeout(Duration::ZERO).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// ML-05: sets that were given in opposite orders never deadlock.
pub async fn ml_05_opposite_orders(case: &Case<'_>) {
    let (inside, mut tasks) = (Inside::default(), JoinSet::new());
    let rounds = case.many(50, 10);
    for names in [["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"]] {
        let process = case.process().await;
        let both = MultiLock::new(names.map(|name| mutex(case, &process, name))).unwrap();
        let paths: Vec<_> = both.paths().map(|path| path.as_str().to_owned()).collect();
        assert_eq!(paths, ["a", "b"].map(|name| case.path(name).as_str().to_owned()));
        let inside = inside.clone();
        tasks.spawn(async move {
            for _ in 0..rounds {
                let guard = both.acquire_timeout(LONG).await.unwrap();
                inside.visit().await;
                assert_eq!(guard.release().await.unwrap(), Release::Released);
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(inside.visits(), 4 * rounds);
}

/// Locks of all kinds: each acts as its own kind.
pub async fn any_mix(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (order, prices, workers) = (case.path("order"), case.path("prices"), case.path("workers"));
    let set = |process: &Process| {
        let order = process.client.mutex(&order).unwrap();
        let prices = process.client.read_write_lock(&prices).unwrap();
        let workers = process.client.semaphore(&workers, 3).unwrap();
        (order, prices, workers)
    };
    let (order, prices, workers) = set(&a);
    let parts: [Box<dyn DynLock>; 3] =
        [Box::new(workers.permits(2).unwrap()), Box::new(prices.read()), Box::new(order)];
    let all = MultiLock::new(&parts).unwrap();
    assert!(!all.is_acquired_in_this_process());
    let guard = all.acquire().await.unwrap();
    assert!(guard.is_held() && all.is_acquired_in_this_process());
    let held: Vec<_> = guard.guards().iter().map(|g| (g.path().as_str(), g.permits())).collect();
    let [order, prices, workers] = [&parts[2], &parts[1], &parts[0]].map(|part| part.path().as_str());
    assert_eq!(held, [(order, None), (prices, None), (workers, Some(2))]);

    let (order, prices, workers) = set(&b);
    assert!(order.try_acquire().await.unwrap().is_none());
    assert!(prices.write().try_acquire().await.unwrap().is_none());
    assert!(workers.try_acquire(2).await.unwrap().is_none());
    let fits = MultiLock::new([&prices.read() as &dyn DynLock, &workers.permits(1).unwrap()]).unwrap();
    assert_eq!(fits.try_acquire().await.unwrap().unwrap().release().await.unwrap(), Release::Released);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let other = MultiLock::new([&prices.write() as &dyn DynLock, &workers.permits(3).unwrap(), &order]);
    assert_eq!(other.unwrap().acquire().await.unwrap().release().await.unwrap(), Release::Released);
}

/// A held lock that is lost during the wait for another one: the wait ends, and the rest is released.
pub async fn lost_while_waiting(case: &Case<'_>) {
    let processes: [_; 3] = case.processes().await;
    let other = case.process().await;
    let held = mutex(case, &other, "c").acquire().await.unwrap();
    let all = three(case, &processes);
    let waiter = tokio::spawn(async move { all.acquire().await.map(drop) });
    case.until_queued(&case.path("c"), 2).await;
    case.store.expire(&processes[0].connection).await;
    let error = timeout(LONG, waiter).await.expect("the wait ends").unwrap().unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::SessionLost, Some(case.path("a").as_str())));
    assert_eq!(queued(case).await[..2], [0, 0]);
    case.until_queued(&case.path("c"), 1).await;
    assert!(held.is_held());
    assert_eq!(held.release().await.unwrap(), Release::Released);
}

/// The loss of one lock is reported with its path; the others are held until they are released.
pub async fn one_is_lost(case: &Case<'_>) {
    let processes: [_; 3] = case.processes().await;
    let guard = three(case, &processes).acquire().await.unwrap();
    assert!(timeout(Duration::from_millis(50), guard.lost()).await.is_err());
    let (lost, ()) = tokio::join!(guard.lost(), case.store.expire(&processes[1].connection));
    assert_eq!((lost.kind(), lost.path()), (ErrorKind::SessionLost, Some(case.path("b").as_str())));
    assert!(!guard.is_held());
    assert_eq!(guard.guards().iter().map(|g| g.is_held()).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(guard.reenter().unwrap_err().kind(), ErrorKind::SessionLost);
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
    assert_eq!(queued(case).await, [0, 0, 0]);
}

/// Inside the scope each of the locks is entered again, alone or in another set.
pub async fn scope_of_all(case: &Case<'_>) {
    let processes: [_; 3] = case.processes().await;
    let all = three(case, &processes);
    let guard = all.acquire().await.unwrap();
    let before: usize = processes.iter().map(|p| p.faults.total()).sum();
    let (second, two) = guard
        .scope(async {
            let second = mutex(case, &processes[1], "b").acquire().await.unwrap();
            let two = [0, 2].map(|i| mutex(case, &processes[i], NAMES[i]));
            (second, MultiLock::new(two).unwrap().try_acquire().await.unwrap().unwrap())
        })
        .await;
    assert_eq!(processes.iter().map(|p| p.faults.total()).sum::<usize>(), before, "no request");
    assert_eq!(guard.release().await.unwrap(), Release::StillHeld);
    assert_eq!(second.release().await.unwrap(), Release::Released);
    assert!(two.is_held());
    assert_eq!(two.release().await.unwrap(), Release::Released);
}

/// A release while one store does not respond returns `Pending`, and the other locks are free at once. If another
/// release is refused, the refusal is reported.
pub async fn release_while_one_is_disconnected(case: &Case<'_>) {
    let processes: [_; 3] = case.processes().await;
    for refused in [false, true] {
        let guard = three(case, &processes).acquire().await.unwrap();
        case.links().cut(&processes[1].connection).await;
        case.until_session(&processes[1], 1, SessionState::Suspended).await;
        if refused {
            processes[0].faults.fail(Call::Delete, Side::Before, 1, ErrorKind::NotAuthorized);
            assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::NotAuthorized);
        } else {
            assert_eq!(guard.release().await.unwrap(), Release::Pending);
            assert_eq!(queued(case).await, [0, 1, 0]);
        }
        case.links().heal(&processes[1].connection).await;
        case.until_session(&processes[1], 1, SessionState::Connected).await;
        for name in NAMES {
            case.until_free(&case.path(name)).await;
        }
    }
}

/// T2: an acquisition that is dropped after any poll leaves no node in any queue.
pub async fn t2_acquire(case: &Case<'_>) {
    let processes: [_; 3] = case.processes().await;
    let all = three(case, &processes);
    sweep("acquire, three locks", async |cut| {
        let all = all.clone();
        let done =
            tokio::spawn(cut.run(async move { all.acquire().await.unwrap() })).await.unwrap().is_some();
        for name in NAMES {
            case.until_free(&case.path(name)).await;
        }
        done
    })
    .await;
}

/// Invalid sets are refused before anything is sent.
pub async fn sets_that_cannot_be(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let none: [InterProcessMutex; 0] = [];
    assert_eq!(MultiLock::new(none).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let path = case.path("lock");
    let prices = a.client.read_write_lock(&path).unwrap();
    let one = mutex(case, &a, "lock");
    let twice: [[&dyn DynLock; 3]; 3] = [
        [&one, &mutex(case, &a, "other"), &one.clone()],
        [&one, &mutex(case, &a, "lock"), &mutex(case, &b, "lock")],
        [&mutex(case, &a, "other"), &prices.read(), &prices.write()],
    ];
    for set in twice {
        let error = MultiLock::new(set).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidArgument, Some(path.as_str())));
    }
    let permits = a.client.semaphore(&path, 3).unwrap();
    for n in [0, 4] {
        assert_eq!(permits.permits(n).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert_eq!(a.faults.total() + b.faults.total(), 0);
    // The mutexes of two clients may be on two stores.
    assert!(MultiLock::new([mutex(case, &a, "lock"), mutex(case, &b, "lock")]).is_ok());
}
