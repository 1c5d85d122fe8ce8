//! A client that is granted permits notifies the waiter behind it, without waiting for that.

use tokio::task::JoinHandle;
use tokio::time::timeout;
use zlock_core::{ErrorKind, LockPath};
use zlock_recipes::{Guard, Release, Semaphore};

use crate::case::LONG;
use crate::{Call, Case, Process, Side, sweep};

fn at(process: &Process, path: &LockPath) -> Semaphore {
    process.client.semaphore(path, 2).unwrap()
}

async fn release(guard: Guard) {
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

async fn finished<T>(task: JoinHandle<T>) -> T {
    timeout(LONG, task).await.expect("it comes in").unwrap()
}

async fn waiter(case: &Case<'_>, process: &Process, path: &LockPath, n: usize) -> JoinHandle<Guard> {
    let semaphore = at(process, path);
    let waiting = tokio::spawn(async move { semaphore.acquire(1).await.unwrap() });
    case.until_queued(path, n).await;
    waiting
}

/// One client holds both permits. Two wait for one each, the second behind the first.
async fn two_wait(
    case: &Case<'_>,
    [a, b, c]: [&Process; 3],
) -> (Guard, JoinHandle<Guard>, JoinHandle<Guard>) {
    let path = case.path("lock");
    let both = at(a, &path).acquire(2).await.unwrap();
    let first = waiter(case, b, &path, 2).await;
    let second = waiter(case, c, &path, 3).await;
    case.until_waiting(c, 1).await;
    (both, first, second)
}

/// The grant does not wait for the notification. The next waiter is granted its permits when the store has it.
pub async fn grant_does_not_wait(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let (both, first, second) = two_wait(case, [&a, &b, &c]).await;
    let gate = b.faults.hold(Call::Relabel, Side::Before);
    release(both).await;
    let first = finished(first).await;
    gate.reached().await;
    assert!(first.is_held() && !second.is_finished());
    assert_eq!(b.client.pending_cleanups(), 1);
    gate.open();
    let second = finished(second).await;
    assert!(first.is_held() && first.permits() == Some(1));
    release(first).await;
    release(second).await;
}

/// The request or its response is lost: it is retried until the store has it.
pub async fn answer_lost(case: &Case<'_>) {
    for (side, times) in [(Side::Before, 1), (Side::After, 1), (Side::Before, 3), (Side::After, 3)] {
        let [a, b, c] = case.processes().await;
        let (both, first, second) = two_wait(case, [&a, &b, &c]).await;
        b.faults.fail(Call::Relabel, side, times, ErrorKind::Unavailable);
        release(both).await;
        let (first, second) = (finished(first).await, finished(second).await);
        case.until("the background is idle", async || b.client.pending_cleanups() == 0).await;
        assert_eq!(b.faults.count(Call::Relabel), times + 1);
        assert!(first.is_held() && second.is_held());
        release(second).await;
        release(first).await;
    }
}

/// A release has the same effect as the notification; it does not wait for a relabel in flight, which does not recreate
/// the node.
pub async fn released_meanwhile(case: &Case<'_>) {
    for side in [Side::Before, Side::After] {
        for by_drop in [false, true] {
            let [a, b, c] = case.processes().await;
            let path = case.path("lock");
            let (both, first, second) = two_wait(case, [&a, &b, &c]).await;
            let gate = b.faults.hold(Call::Relabel, side);
            release(both).await;
            let first = finished(first).await;
            gate.reached().await;
            if by_drop {
                drop(first);
            } else {
                release(first).await;
            }
            let second = finished(second).await;
            case.until_queued(&path, 1).await;
            gate.open();
            case.until("the background is idle", async || b.client.pending_cleanups() == 0).await;
            assert_eq!(case.queued(&path).await, 1);
            release(second).await;
        }
    }
}

/// A store that refuses it: no waiter hangs longer than the holder holds, and the background comes to rest.
pub async fn refused(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let (both, first, second) = two_wait(case, [&a, &b, &c]).await;
    b.faults.fail(Call::Relabel, Side::Before, usize::MAX, ErrorKind::NotAuthorized);
    release(both).await;
    let first = finished(first).await;
    case.until("it is tried", async || b.faults.count(Call::Relabel) >= 2).await;
    assert!(first.is_held() && !second.is_finished());
    release(first).await;
    release(finished(second).await).await;
    case.until("the background is idle", async || b.client.pending_cleanups() == 0).await;
}

/// It notices at once that another client deleted the node.
pub async fn removed_node_is_noticed(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let path = case.path("lock");
    let (both, first, second) = two_wait(case, [&a, &b, &c]).await;
    let gate = b.faults.hold(Call::Relabel, Side::Before);
    let name = at(&b, &path).participants().await.unwrap()[1].name.clone();
    release(both).await;
    let first = finished(first).await;
    gate.reached().await;
    case.store.remove(&path, name.as_str()).await;
    let second = finished(second).await;
    gate.open();
    case.until("the background is idle", async || b.client.pending_cleanups() == 0).await;
    assert!(!first.is_held() && second.is_held());
    assert_eq!(first.lost().await.kind(), ErrorKind::NodeDeleted);
    assert_eq!(first.release().await.unwrap(), Release::AlreadyLost);
    release(second).await;
}

/// A client that is granted on its first listing notifies, too: another one may have queued behind it before that
/// listing, and waits for it. By acquire and by try.
pub async fn on_the_first_listing(case: &Case<'_>) {
    for by_try in [false, true] {
        let [a, b, c] = case.processes().await;
        let path = case.path("lock");
        // The parent exists, so the create is the first request.
        release(at(&b, &path).acquire(1).await.unwrap()).await;
        let gate = b.faults.hold(Call::Create, Side::Before);
        let late = at(&b, &path);
        let late = tokio::spawn(async move {
            if by_try { late.try_acquire(1).await.map(Option::unwrap) } else { late.acquire(1).await }
        });
        gate.reached().await;
        let both = at(&a, &path).acquire(2).await.unwrap();
        case.links().mute(&b.connection).await;
        gate.open();
        case.until_queued(&path, 2).await;
        let behind = waiter(case, &c, &path, 3).await;
        case.until_waiting(&c, 1).await;
        release(both).await;
        case.links().heal(&b.connection).await;
        let late = finished(late).await.unwrap();
        let behind = finished(behind).await;
        assert!(late.is_held() && b.faults.count(Call::Children) <= 1, "granted on its first listing");
        assert_eq!(b.session().epoch, 1);
        release(late).await;
        release(behind).await;
    }
}

/// T2: an acquire in the middle of the queue is dropped at each point: the waiter behind it is always granted, whether the
/// one in the middle holds or is gone.
pub async fn t2_in_the_middle(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    sweep("acquire of permits, in the middle", async |cut| {
        let path = case.path(&cut.name());
        let both = at(&a, &path).acquire(2).await.unwrap();
        let middle = at(&b, &path);
        let victim = tokio::spawn(cut.run(async move { middle.acquire(1).await.unwrap() }));
        case.until("queued or cut", async || victim.is_finished() || case.queued(&path).await == 2).await;
        let behind = at(&c, &path);
        let behind = tokio::spawn(async move { behind.acquire(1).await.unwrap() });
        let places = async || case.queued(&path).await;
        case.until("the last one queues", async || {
            places().await >= if victim.is_finished() { 2 } else { 3 }
        })
        .await;
        release(both).await;
        let middle = victim.await.unwrap();
        let behind = finished(behind).await;
        let done = middle.is_some();
        assert!(middle.is_none_or(|guard| guard.is_held()));
        release(behind).await;
        case.until_free(&path).await;
        case.until("the background is idle", async || b.client.pending_cleanups() == 0).await;
        done
    })
    .await;
}

/// The cost of permits: uncontended a create and a delete, whatever queues up behind; contended also a relabel and the
/// waiter's reads.
pub async fn cost(case: &Case<'_>) {
    const CALLS: [Call; 6] =
        [Call::Create, Call::Exists, Call::Children, Call::ChildrenWithWatch, Call::Relabel, Call::Delete];
    let [a, b, c] = case.processes().await;
    let counts = |process: &Process| {
        let counts = CALLS.map(|call| process.faults.count(call));
        assert_eq!(counts.iter().sum::<usize>(), process.faults.total(), "nothing else is called");
        counts
    };
    let path = case.path("lock");
    let both = at(&a, &path).acquire(2).await.unwrap();
    assert!(at(&a, &path).try_acquire(1).await.unwrap().is_none());
    let armed = b.faults.hold(Call::ChildrenWithWatch, Side::After);
    let first = waiter(case, &b, &path, 2).await;
    armed.reached().await;
    // A new waiter at the end is a change that the first waiter reads.
    let again = b.faults.hold(Call::ChildrenWithWatch, Side::After);
    armed.open();
    let second = waiter(case, &c, &path, 3).await;
    again.reached().await;
    again.open();
    case.until_waiting(&c, 1).await;
    release(both).await;
    assert_eq!(counts(&a), [1, 0, 1, 0, 0, 1]);
    let (first, second) = (finished(first).await, finished(second).await);
    case.until("the store knows", async || b.client.pending_cleanups() == 0).await;
    release(first).await;
    release(second).await;
    assert_eq!(counts(&b), [1, 0, 2, 2, 1, 1]);
    assert_eq!(counts(&c), [1, 1, 1, 0, 0, 1], "nobody is behind it: nobody to tell");
}

/// A promoted holder whose node was deleted by hand gets `AlreadyLost` from its release.
pub async fn release_without_a_node_is_already_lost(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let path = case.path("lock");
    let (both, first, second) = two_wait(case, [&a, &b, &c]).await;
    release(both).await;
    let (first, second) = (finished(first).await, finished(second).await);
    case.until("the background is idle", async || b.client.pending_cleanups() == 0).await;
    case.store.remove(&path, first.node().as_str()).await;
    let third = at(&a, &path).acquire_timeout(1, LONG).await.unwrap();
    assert_eq!(first.release().await.unwrap(), Release::AlreadyLost);
    assert!(second.is_held() && third.is_held());
    release(second).await;
    release(third).await;
}
