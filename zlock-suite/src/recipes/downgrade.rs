//! A writer that becomes a reader, with no writer in between.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use zlock_core::{ErrorKind, LockPath, SessionState};
use zlock_recipes::{Guard, ReadWriteLock, Release, WriteGuard};

use crate::case::LONG;
use crate::{Call, Case, Process, Side, sweep};

const SHORT: Duration = Duration::from_millis(200);

fn lock(case: &Case<'_>, process: &Process) -> ReadWriteLock {
    at(process, &case.path("lock"))
}

fn at(process: &Process, path: &LockPath) -> ReadWriteLock {
    process.client.read_write_lock(path).unwrap()
}

/// Waits for the lock in a task, as the n-th in the queue.
async fn reader(case: &Case<'_>, process: &Process, path: &LockPath, n: usize) -> JoinHandle<Guard> {
    let read = at(process, path).read();
    let waiting = tokio::spawn(async move { read.acquire().await.unwrap() });
    case.until_queued(path, n).await;
    waiting
}

async fn writer(case: &Case<'_>, process: &Process, path: &LockPath, n: usize) -> JoinHandle<WriteGuard> {
    let write = at(process, path).write();
    let waiting = tokio::spawn(async move { write.acquire().await.unwrap() });
    case.until_queued(path, n).await;
    waiting
}

async fn release(guard: impl Into<Guard>) {
    assert_eq!(guard.into().release().await.unwrap(), Release::Released);
}

async fn finished<T>(task: JoinHandle<T>) -> T {
    timeout(LONG, task).await.expect("it comes in").unwrap()
}

/// A reader, a writer and another reader wait behind a downgraded lock. The first reader holds beside it; the writer does not
/// until both have released. `read` is the downgraded lock.
async fn order_is_kept(
    read: Guard,
    (first, writer, last): (JoinHandle<Guard>, JoinHandle<WriteGuard>, JoinHandle<Guard>),
) {
    let first = finished(first).await;
    assert!(first.is_held() && read.is_held());
    sleep(SHORT).await;
    assert!(!writer.is_finished() && !last.is_finished());
    release(read).await;
    assert!(!writer.is_finished());
    release(first).await;
    release(finished(writer).await).await;
    release(finished(last).await).await;
}

/// A reader, a writer and a reader behind the holder.
async fn queue_up(
    case: &Case<'_>,
    [a, b, c]: [&Process; 3],
) -> (JoinHandle<Guard>, JoinHandle<WriteGuard>, JoinHandle<Guard>) {
    let path = case.path("lock");
    let first = reader(case, a, &path, 2).await;
    (first, writer(case, b, &path, 3).await, reader(case, c, &path, 4).await)
}

/// RW-04: write, downgrade, release. Readers are let in beside it, and no writer is; the fencing token stays; each kind
/// reports correctly whether it is held.
pub async fn rw_04_downgrade(case: &Case<'_>) {
    let [a, b, c, d] = case.processes().await;
    let mine = lock(case, &a);
    let write = mine.write().acquire().await.unwrap();
    let (token, held) = (write.fencing_token(), write.context());
    let waiting = queue_up(case, [&b, &c, &d]).await;
    assert!(!mine.read().is_acquired_in_this_process() && mine.write().is_acquired_in_this_process());
    let read = write.downgrade().await.unwrap();
    assert_eq!(a.faults.count(Call::Relabel), 1);
    assert_eq!((read.fencing_token(), read.is_held(), held.is_held()), (token, true, false));
    assert_eq!(held.lost().await.kind(), ErrorKind::Released, "nobody writes any more");
    assert!(mine.read().is_acquired_in_this_process() && !mine.write().is_acquired_in_this_process());
    order_is_kept(read, waiting).await;
}

/// RW-04: write, read inside, release the writer: the same as a downgrade, by release and by drop.
pub async fn rw_04_an_inner_reader_outlives_the_writer(case: &Case<'_>) {
    let [a, b, c, d] = case.processes().await;
    let mine = lock(case, &a);
    for by_drop in [false, true] {
        let write = mine.write().acquire().await.unwrap();
        let again = write.reenter().unwrap();
        let read = write.scope(async { mine.read().acquire().await.unwrap() }).await;
        let waiting = queue_up(case, [&b, &c, &d]).await;
        assert_eq!(again.release().await.unwrap(), Release::StillHeld);
        let relabels = a.faults.count(Call::Relabel);
        if by_drop {
            drop(write);
        } else {
            assert_eq!(write.release().await.unwrap(), Release::StillHeld);
        }
        assert!(mine.read().is_acquired_in_this_process() && !mine.write().is_acquired_in_this_process());
        let upgrade = read.scope(async { mine.write().try_acquire().await }).await;
        assert_eq!(upgrade.unwrap_err().kind(), ErrorKind::UpgradeRefused);
        order_is_kept(read, waiting).await;
        assert_eq!(a.faults.count(Call::Relabel), relabels + 1);
    }
}

/// A writer that waits behind the downgrading one wakes once and goes on waiting. A writer inside the scope of the lock that
/// is now a read lock is refused.
pub async fn a_waiting_writer_goes_on_waiting(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let mine = lock(case, &a);
    let write = mine.write().acquire().await.unwrap();
    let waiting = writer(case, &b, &path, 2).await;
    case.until_waiting(&b, 1).await;
    let read = write.downgrade().await.unwrap();
    case.until_waiting(&b, 2).await;
    sleep(SHORT).await;
    assert_eq!((b.faults.count(Call::Children), b.faults.count(Call::Exists)), (1, 2));
    let calls = a.faults.total();
    let upgrade = read.scope(async { mine.write().acquire().await }).await;
    assert_eq!(upgrade.unwrap_err().kind(), ErrorKind::UpgradeRefused);
    let again = read.scope(async { mine.read().acquire().await.unwrap() }).await;
    assert_eq!((a.faults.total(), case.queued(&path).await), (calls, 2));
    assert_eq!(read.release().await.unwrap(), Release::StillHeld);
    assert!(again.is_held() && !waiting.is_finished());
    release(again).await;
    release(finished(waiting).await).await;
}

/// A downgrade is refused while other guards of the hold exist; the error returns the guard unchanged.
pub async fn refused_while_entered_again(case: &Case<'_>) {
    let a = case.process().await;
    let mine = lock(case, &a);
    let write = mine.write().acquire().await.unwrap();
    let again: Guard = write.reenter().unwrap().into();
    let read = write.scope(async { mine.read().acquire().await.unwrap() }).await;
    let calls = a.faults.total();
    let refused = write.downgrade().await.unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::StillEntered);
    assert_eq!(again.release().await.unwrap(), Release::StillHeld);
    let refused = refused.guard.downgrade().await.unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::StillEntered);
    assert_eq!(read.release().await.unwrap(), Release::StillHeld);
    assert!(refused.guard.is_held() && mine.write().is_acquired_in_this_process());
    assert_eq!(a.faults.total(), calls, "nothing was sent");
    release(refused.guard.downgrade().await.unwrap()).await;
}

/// T19: a downgrade after the loss of the session is an error; no node is left in front of the new writer.
pub async fn t19_downgrade_after_the_loss(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let write = lock(case, &a).write().acquire().await.unwrap();
    let next = writer(case, &b, &path, 2).await;
    case.store.expire(&a.connection).await;
    assert_eq!(write.lost().await.kind(), ErrorKind::SessionLost);
    let calls = a.faults.total();
    let next = finished(next).await;
    let refused = write.downgrade().await.unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::SessionLost);
    case.until_session(&a, 2, SessionState::Connected).await;
    let refused = refused.guard.downgrade().await.unwrap_err();
    assert_eq!((refused.error.kind(), a.faults.total()), (ErrorKind::SessionLost, calls));
    assert_eq!(refused.guard.release().await.unwrap(), Release::AlreadyLost);
    assert_eq!(case.queued(&path).await, 1);
    assert!(next.is_held());
    release(next).await;
}

/// T19: the same when the session ends during the downgrade.
pub async fn t19_the_session_ends_meanwhile(case: &Case<'_>) {
    for side in [Side::Before, Side::After] {
        let [a, b] = case.processes().await;
        let path = case.path("lock");
        let write = lock(case, &a).write().acquire().await.unwrap();
        let next = writer(case, &b, &path, 2).await;
        let gate = a.faults.hold(Call::Relabel, side);
        let downgrade = tokio::spawn(write.downgrade());
        gate.reached().await;
        case.store.expire(&a.connection).await;
        // A link that breaks during the downgrade leaves a reader, which then learns of the loss.
        let guard = match finished(downgrade).await {
            Ok(read) => read,
            Err(refused) => {
                assert_eq!(refused.error.kind(), ErrorKind::SessionLost);
                refused.guard.into()
            }
        };
        assert_eq!(guard.lost().await.kind(), ErrorKind::SessionLost);
        assert!(!guard.is_held());
        assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
        let next = finished(next).await;
        gate.open();
        case.until("the background is idle", async || a.client.pending_cleanups() == 0).await;
        assert_eq!(case.queued(&path).await, 1);
        release(next).await;
    }
}

/// Another client deletes the node: the downgrade detects it.
pub async fn a_removed_node_is_noticed(case: &Case<'_>) {
    let a = case.process().await;
    let path = case.path("lock");
    let write = lock(case, &a).write().acquire().await.unwrap();
    let held = write.context();
    for name in case.store.names(&path).await {
        case.store.remove(&path, &name).await;
    }
    let refused = write.downgrade().await.unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::NodeDeleted);
    assert!(!refused.guard.is_held() && !held.is_held());
    assert_eq!(refused.guard.lost().await.kind(), ErrorKind::NodeDeleted);
    assert_eq!(refused.guard.reenter().unwrap_err().kind(), ErrorKind::NodeDeleted);
    assert_eq!(refused.guard.release().await.unwrap(), Release::AlreadyLost);
}

/// The lock counts as a read lock from when the request is sent, whether or not the response has arrived.
pub async fn a_reader_once_it_is_sent(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let mine = lock(case, &a);
    let write = mine.write().acquire().await.unwrap();
    let held = write.context();
    let waiting = reader(case, &b, &path, 2).await;
    let gate = a.faults.hold(Call::Relabel, Side::After);
    let downgrade = tokio::spawn(write.downgrade());
    gate.reached().await;
    let other = finished(waiting).await;
    assert!(mine.read().is_acquired_in_this_process() && !mine.write().is_acquired_in_this_process());
    assert!(!held.is_held() && !downgrade.is_finished());
    gate.open();
    let read = finished(downgrade).await.unwrap();
    assert!(read.is_held());
    release(other).await;
    release(read).await;
}

/// The response or the request is lost: the lock is a read lock, and the background retries the relabel until the store
/// has it. A waiting writer is not granted the lock beside the reader.
pub async fn answer_lost(case: &Case<'_>) {
    for (side, times) in [(Side::After, 1), (Side::After, 3), (Side::Before, 1), (Side::Before, 3)] {
        let [a, b, c, d] = case.processes().await;
        let write = lock(case, &a).write().acquire().await.unwrap();
        let waiting = queue_up(case, [&b, &c, &d]).await;
        a.faults.fail(Call::Relabel, side, times, ErrorKind::Unavailable);
        let read = write.downgrade().await.unwrap();
        assert!(read.is_held());
        case.until("the store knows", async || a.client.pending_cleanups() == 0).await;
        assert_eq!(a.faults.count(Call::Relabel), times + 1);
        order_is_kept(read, waiting).await;
        assert_eq!(a.session().epoch, 1);
    }
}

/// The response or the request is lost and the guard is dropped at once: nothing is left, and the writer gets the lock.
pub async fn answer_lost_and_dropped(case: &Case<'_>) {
    for (side, by_drop) in
        [(Side::After, false), (Side::After, true), (Side::Before, false), (Side::Before, true)]
    {
        let [a, b] = case.processes().await;
        let path = case.path("lock");
        let write = lock(case, &a).write().acquire().await.unwrap();
        let waiting = writer(case, &b, &path, 2).await;
        a.faults.fail(Call::Relabel, side, 1, ErrorKind::Unavailable);
        let read = write.downgrade().await.unwrap();
        if by_drop {
            drop(read);
        } else {
            release(read).await;
        }
        let next = finished(waiting).await;
        case.until("the background is idle", async || a.client.pending_cleanups() == 0).await;
        assert_eq!(case.queued(&path).await, 1);
        release(next).await;
    }
}

/// A store that does not respond: after the response timeout, the lock still is a read lock. Its release does not wait
/// for the relabel, and a later relabel does not recreate the node.
pub async fn never_answered(case: &Case<'_>) {
    let time = Duration::from_millis(300);
    let b = case.process().await;
    for side in [Side::Before, Side::After] {
        let a = case.process_with(|builder| builder.with_response_timeout(time).unwrap()).await;
        let path = case.path("lock");
        let write = lock(case, &a).write().acquire().await.unwrap();
        let [first, gate] = [(); 2].map(|()| a.faults.hold(Call::Relabel, side));
        let began = Instant::now();
        let read = write.downgrade().await.unwrap();
        case.took(began, time);
        drop(first);
        gate.reached().await;
        assert_eq!(a.client.pending_cleanups(), 1, "the background goes on");
        release(read).await;
        let next = lock(case, &b).write().acquire_timeout(LONG).await.unwrap();
        gate.open();
        case.until("the background is idle", async || a.client.pending_cleanups() == 0).await;
        assert_eq!(case.queued(&path).await, 1);
        release(next).await;
    }
}

/// While the link is down, a downgrade takes effect at once; readers are granted the lock when the store has it.
pub async fn while_disconnected(case: &Case<'_>) {
    let [a, b, c, d] = case.processes().await;
    let write = lock(case, &a).write().acquire().await.unwrap();
    let waiting = queue_up(case, [&b, &c, &d]).await;
    case.links().cut(&a.connection).await;
    case.until_session(&a, 1, SessionState::Suspended).await;
    let began = Instant::now();
    let read = write.downgrade().await.unwrap();
    case.took(began, Duration::ZERO);
    assert_eq!((a.faults.count(Call::Relabel), a.client.pending_cleanups()), (0, 1));
    assert!(!waiting.0.is_finished());
    case.links().heal(&a.connection).await;
    order_is_kept(read, waiting).await;
    assert_eq!(a.session().epoch, 1);
}

/// The link breaks while the request is in flight, and the response is lost.
pub async fn link_breaks_meanwhile(case: &Case<'_>) {
    let [a, b, c, d] = case.processes().await;
    let write = lock(case, &a).write().acquire().await.unwrap();
    let waiting = queue_up(case, [&b, &c, &d]).await;
    case.links().mute(&a.connection).await;
    let downgrade = tokio::spawn(write.downgrade());
    case.until("the store has it", async || waiting.0.is_finished()).await;
    case.links().heal(&a.connection).await;
    let read = finished(downgrade).await.unwrap();
    // A store may have answered over one connection while another is still broken.
    case.until_session(&a, 1, SessionState::Connected).await;
    order_is_kept(read, waiting).await;
    assert_eq!(a.session().epoch, 1);
}

/// T2: downgrade() is dropped, with a writer and a reader behind: nothing is left, and both are served. A lock that was
/// downgraded in time is a read lock, beside which no writer is let in.
pub async fn t2_downgrade(case: &Case<'_>) {
    dropped(case, "downgrade", async |_| {}, async |_| {}).await;
}

/// T2: the same on a link that loses the answer.
pub async fn t2_downgrade_answer_lost(case: &Case<'_>) {
    dropped(
        case,
        "downgrade, answer lost",
        async |a| case.links().mute(&a.connection).await,
        async |a| {
            sleep(Duration::from_millis(20)).await;
            case.links().heal(&a.connection).await;
        },
    )
    .await;
}

async fn dropped(case: &Case<'_>, name: &str, harm: impl AsyncFn(&Process), mend: impl AsyncFn(&Process)) {
    let [a, b, c] = case.processes().await;
    sweep(name, async |cut| {
        let path = case.path(&cut.name());
        let write = at(&a, &path).write().acquire().await.unwrap();
        let waiting = writer(case, &b, &path, 2).await;
        let last = reader(case, &c, &path, 3).await;
        harm(&a).await;
        let victim = tokio::spawn(cut.run(write.downgrade()));
        mend(&a).await;
        let done = victim.await.unwrap();
        if let Some(read) = done.as_ref().map(|done| done.as_ref().unwrap()) {
            sleep(Duration::from_millis(20)).await;
            assert!(read.is_held() && !waiting.is_finished() && !last.is_finished());
        }
        let is_done = done.is_some();
        drop(done);
        release(finished(waiting).await).await;
        release(finished(last).await).await;
        case.until_free(&path).await;
        case.until("the background is idle", async || a.client.pending_cleanups() == 0).await;
        case.until_session(&a, 1, SessionState::Connected).await;
        is_done
    })
    .await;
    assert_eq!(a.session().epoch, 1, "nothing went by the end of a session");
}

/// The node of a downgraded reader is deleted by hand: its release reports the loss, even if the response to the
/// relabel was lost, so that only the node's old name is known.
pub async fn release_without_a_node_is_already_lost(case: &Case<'_>) {
    for answered in [true, false] {
        let [a, b] = case.processes().await;
        let path = case.path("lock");
        if !answered {
            a.faults.fail(Call::Relabel, Side::After, 1_000, ErrorKind::Unavailable);
        }
        let read = at(&a, &path).write().acquire().await.unwrap().downgrade().await.unwrap();
        let [mine] = case.store.names(&path).await.try_into().unwrap();
        case.store.remove(&path, &mine).await;
        let write = at(&b, &path).write().acquire_timeout(LONG).await.unwrap();
        assert_eq!(read.release().await.unwrap(), Release::AlreadyLost, "{answered}");
        a.faults.mend();
        assert!(write.is_held());
        release(write).await;
    }
}

/// The relabel may have renamed the node, but is never answered. A write under the lock is no reason to count it as lost.
pub async fn value_is_written_while_a_relabel_is_unanswered(case: &Case<'_>) {
    let a = case.process().await;
    let path = case.path("lock");
    let value = a.client.shared_value(format!("{path}.value")).unwrap();
    a.faults.fail(Call::Relabel, Side::After, 1_000, ErrorKind::Unavailable);
    let read = at(&a, &path).write().acquire().await.unwrap().downgrade().await.unwrap();
    if let Err(error) = value.write_under(&read, b"early").await {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    assert!(read.is_held());
    a.faults.mend();
    value.write_under(&read, b"late").await.unwrap();
    assert_eq!(value.get().await.unwrap().unwrap().data, b"late");
    release(read).await;
}
