//! The behavior of every lock that excludes others.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zlock_core::ErrorKind;
use zlock_recipes::Release;

use crate::case::LONG;
use crate::{Case, Inside, Mutual, Tasks, TestGuard, TestLock};

const SHORT: Duration = Duration::from_millis(200);

/// MX-01: held inside, free after; a timed acquire of a free lock succeeds, even with a zero duration.
pub async fn mx_01_guard_scope<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (mine, others) = (case.lock::<M>(&a, "lock"), case.lock::<M>(&b, "lock"));
    {
        let guard = mine.acquire().await.unwrap();
        assert!(guard.is_held() && mine.is_acquired_in_this_process());
        assert!(!others.is_acquired_in_this_process(), "it is held in the other process");
        assert!(others.try_acquire().await.unwrap().is_none());
    }
    assert!(!mine.is_acquired_in_this_process());
    case.until_free(&case.path("lock")).await;
    let guard = others.acquire_timeout(SHORT).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let guard = mine.acquire_timeout(Duration::ZERO).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let guard = others.try_acquire().await.unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// MX-04: no acquire fails because its parent is removed concurrently.
pub async fn mx_04_vanishing_parent<M: Tasks>(case: &Case<'_>) {
    let process = case.process().await;
    let (lock, path) = (case.lock::<M>(&process, "lock"), case.path("lock"));
    let rounds = case.many(200, 100);
    let work = async {
        for _ in 0..rounds {
            assert_eq!(lock.acquire().await.unwrap().release().await.unwrap(), Release::Released);
        }
    };
    let reaper = async {
        loop {
            for _ in 0..3 {
                case.store.remove_parent(&path).await;
                tokio::task::yield_now().await;
            }
            // A paused clock does not advance while a task is busy.
            sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        biased;
        () = work => {}
        () = reaper => {}
    }
}

/// MX-06: one instance, ten tasks, never two inside.
pub async fn mx_06_one_instance<M: Mutual>(case: &Case<'_>) {
    let lock = case.lock::<M>(&case.process().await, "lock");
    exclude::<M>(vec![lock; 10], case.many(20, 5)).await;
}

/// MX-06: ten instances of one client.
pub async fn mx_06_ten_instances<M: Mutual>(case: &Case<'_>) {
    let process = case.process().await;
    exclude::<M>((0..10).map(|_| case.lock::<M>(&process, "lock")).collect(), case.many(20, 5)).await;
}

/// MX-06: ten sessions.
pub async fn mx_06_ten_sessions<M: Mutual>(case: &Case<'_>) {
    let mut locks = Vec::new();
    for _ in 0..10 {
        locks.push(case.lock::<M>(&case.process().await, "lock"));
    }
    exclude::<M>(locks, case.many(20, 5)).await;
}

async fn exclude<M: Mutual>(locks: Vec<M::Lock>, rounds: usize) {
    let (inside, mut tasks, workers) = (Inside::default(), JoinSet::new(), locks.len());
    for lock in locks {
        let inside = inside.clone();
        tasks.spawn(async move {
            for _ in 0..rounds {
                let guard = lock.acquire().await.unwrap();
                inside.visit().await;
                assert!(guard.is_held());
                assert_eq!(guard.release().await.unwrap(), Release::Released);
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(inside.visits(), workers * rounds);
}

/// MX-08: the branches of one `join!` exclude each other.
pub async fn mx_08_siblings<M: Mutual>(case: &Case<'_>) {
    let lock = case.lock::<M>(&case.process().await, "lock");
    let inside = Inside::default();
    let branch = async || {
        let guard = lock.acquire().await.unwrap();
        inside.visit().await;
        guard.release().await.unwrap()
    };
    assert_eq!(
        tokio::join!(branch(), branch(), branch()),
        (Release::Released, Release::Released, Release::Released)
    );
}

/// MX-09: two sessions: one holds; after its release the other does.
pub async fn mx_09_two_sessions<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let (mine, others) = (case.lock::<M>(&a, "lock"), case.lock::<M>(&b, "lock"));
    let guard = mine.acquire().await.unwrap();
    let waiter = tokio::spawn(async move { others.acquire().await.unwrap() });
    case.until_queued(&path, 2).await;
    sleep(SHORT).await;
    assert!(!waiter.is_finished() && guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let guard = waiter.await.unwrap();
    assert!(guard.is_held() && mine.try_acquire().await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// An acquisition that times out ends with the error `Timeout`, in time, and leaves nothing in the queue.
pub async fn timeout_leaves_nothing<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let (mine, others) = (case.lock::<M>(&a, "lock"), case.lock::<M>(&b, "lock"));
    let guard = mine.acquire().await.unwrap();
    for time in [Duration::from_secs(1), SHORT] {
        let began = Instant::now();
        let error = others.acquire_timeout(time).await.unwrap_err();
        case.took(began, time);
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert_eq!(error.path(), Some(path.as_str()));
        case.until_queued(&path, 1).await;
    }
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// T45: a deadline that has already passed is a timeout, not a panic, and leaves nothing behind. So does a zero
/// duration.
pub async fn t45_deadline_in_the_past<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let others = case.lock::<M>(&b, "lock");
    for time in [Duration::ZERO, Duration::from_nanos(1)] {
        let error = others.acquire_timeout(time).await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        case.until_queued(&path, 1).await;
    }
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// T55: a cancelled waiter's clean-up is done long before the next heartbeat.
pub async fn t55_cancelled_waiter_is_cleaned_up_at_once<M: Tasks>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let others = case.lock::<M>(&b, "lock");
    let waiter = tokio::spawn(async move { others.acquire().await });
    case.until_queued(&path, 2).await;
    let began = Instant::now();
    waiter.abort();
    case.until_queued(&path, 1).await;
    // A running clock also shows how busy the machine is.
    let (took, heartbeat) = (began.elapsed(), case.store.session_timeout() / 10);
    assert!(!case.paused || took < heartbeat, "{took:?}");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// T56: a guard that is moved to another task and dropped there releases.
pub async fn t56_guard_moved_to_another_task<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let others = case.lock::<M>(&b, "lock");
    tokio::spawn(async move {
        assert!(guard.is_held());
        drop(guard);
    })
    .await
    .unwrap();
    let guard = others.acquire_timeout(LONG).await.unwrap();
    let released = tokio::spawn(async move { guard.release().await.unwrap() }).await.unwrap();
    assert_eq!(released, Release::Released);
}

/// T60: watches, nodes and the reaper's list are flat after many timeouts and many hand-offs.
pub async fn t60_nothing_piles_up<M: Tasks>(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let path = case.path("lock");
    let locks = [&a, &b, &c].map(|p| case.lock::<M>(p, "lock"));
    let rounds = case.many(M::MANY, 300);
    let guard = locks[0].acquire().await.unwrap();
    for _ in 0..rounds {
        let error = locks[1].acquire_timeout(Duration::from_millis(2)).await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
    }
    case.until_queued(&path, 1).await;
    case.until("no watch left", async || matches!(case.store.watches(case.root()).await, None | Some(0)))
        .await;
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let inside = Inside::default();
    let contend = async |lock: &M::Lock| {
        for _ in 0..rounds / 3 {
            let guard = lock.acquire_timeout(LONG).await.unwrap();
            inside.visit().await;
            if let Some(watches) = case.store.watches(case.root()).await {
                let most = case.store.most_watches(3);
                assert!(watches <= most, "{watches} watches of 2 waiters, at most {most}");
            }
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
    };
    tokio::join!(contend(&locks[0]), contend(&locks[1]), contend(&locks[2]));
    assert_eq!(inside.visits(), rounds / 3 * 3);
}

/// `run` holds the lock while its future runs, enters it again inside, and has released it when it returns.
pub async fn run_holds_and_releases<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let (mine, others) = (case.lock::<M>(&a, "lock"), case.lock::<M>(&b, "lock"));
    let held = mine.run(async { others.try_acquire().await.unwrap().is_none() }).await.unwrap();
    assert!(held && !mine.is_acquired_in_this_process());
    case.until_free(&path).await;
    let guard = others.acquire().await.unwrap();
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    assert!(guard.is_held(), "the guard still holds");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// The loss of the lock cancels what `run` runs, at its await point.
pub async fn run_is_cancelled_by_the_loss<M: Mutual>(case: &Case<'_>) {
    let a = case.process().await;
    let path = case.path("lock");
    let lock = case.lock::<M>(&a, "lock");
    let guard = lock.acquire().await.unwrap();
    let (tell, told) = tokio::sync::oneshot::channel::<()>();
    let never_ends = async move {
        let _tell = tell;
        std::future::pending::<()>().await;
    };
    let deleted = async {
        for name in case.store.names(&path).await {
            case.store.remove(&path, &name).await;
        }
    };
    let (ended, ()) = tokio::join!(guard.run(never_ends), deleted);
    let error = ended.unwrap_err();
    assert!(error.kind() == ErrorKind::NodeDeleted && error.is_lock_lost(), "{error}");
    assert!(told.await.is_err(), "the future was dropped");
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
}
