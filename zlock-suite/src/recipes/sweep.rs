//! The cancellation sweep: a future dropped after its k-th poll, for every k until it is done, leaves no node
//! and no lost wake-up.

use std::time::Duration;

use tokio::task::JoinHandle;
use zlock_core::{LockPath, SessionState};
use zlock_recipes::Release;

use crate::case::LONG;
use crate::{Call, Case, Cut, Mutual, Process, Side, TestGuard, TestLock, sweep, sweep_together};

/// Checks what every cut must leave: an empty queue while the sessions are live, an idle background, and a lock that the next
/// client gets.
pub(super) async fn nothing_is_left<M: Mutual>(
    case: &Case<'_>,
    path: &LockPath,
    victim: &Process,
    next: &Process,
) {
    case.until_free(path).await;
    case.until("the background is idle", async || victim.client.pending_cleanups() == 0).await;
    let lock = M::at(&next.client, path.as_str()).unwrap();
    let guard = lock.acquire_timeout(LONG).await.expect("the next one is served");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// Each cut has its own lock.
pub(super) fn path(case: &Case<'_>, cut: Cut) -> LockPath {
    case.path(&cut.name())
}

pub(super) fn spawn<T: Send + 'static>(
    cut: Cut,
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<Option<T>> {
    tokio::spawn(cut.run(future))
}

/// T2: acquire of a free lock.
pub async fn t2_free_lock<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    sweep("acquire, free lock", async |cut| {
        let path = path(case, cut);
        let lock = M::at(&a.client, path.as_str()).unwrap();
        let done = spawn(cut, async move { lock.acquire().await.unwrap() }).await.unwrap().is_some();
        nothing_is_left::<M>(case, &path, &a, &b).await;
        done
    })
    .await;
}

/// T2: try_acquire of a free lock.
pub async fn t2_try_free<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    sweep("try_acquire, free lock", async |cut| {
        let path = path(case, cut);
        let lock = M::at(&a.client, path.as_str()).unwrap();
        let done =
            spawn(cut, async move { lock.try_acquire().await.unwrap().unwrap() }).await.unwrap().is_some();
        nothing_is_left::<M>(case, &path, &a, &b).await;
        done
    })
    .await;
}

/// T2: try_acquire of a lock that another client takes between the listing and the create.
pub async fn t2_try_overtaken<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    sweep("try_acquire, overtaken", async |cut| {
        let path = path(case, cut);
        let (lock, other) =
            (M::at(&a.client, path.as_str()).unwrap(), M::at(&b.client, path.as_str()).unwrap());
        let gate = a.faults.hold(Call::Children, Side::After);
        let attempt = spawn(cut, async move { lock.try_acquire().await.unwrap() });
        let guard = other.acquire_timeout(LONG).await.unwrap();
        gate.open();
        // Dropped without the call that waits at the gate, so that the next one does not find it.
        let taken = attempt.await.unwrap();
        a.faults.mend();
        if let Some(taken) = &taken {
            assert!(taken.is_none(), "two hold");
        }
        case.until_queued(&path, 1).await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        nothing_is_left::<M>(case, &path, &a, &b).await;
        taken.is_some()
    })
    .await;
}

/// T2: acquire behind a holder that then releases, with another waiter behind.
pub async fn t2_queued<M: Mutual>(case: &Case<'_>) {
    queued::<M>(case, "acquire, queued", None).await;
}

/// T2: the same for an acquisition with a time limit.
pub async fn t2_queued_with_a_time_limit<M: Mutual>(case: &Case<'_>) {
    queued::<M>(case, "acquire_timeout, queued", Some(LONG)).await;
}

async fn queued<M: Mutual>(case: &Case<'_>, name: &str, time: Option<Duration>) {
    let [a, b, c] = case.processes().await;
    sweep(name, async |cut| {
        let path = path(case, cut);
        let at = |process: &Process| M::at(&process.client, path.as_str()).unwrap();
        let (holder, lock, next) = (at(&c).acquire().await.unwrap(), at(&a), at(&b));
        let victim = spawn(cut, async move {
            match time {
                None => lock.acquire().await.unwrap(),
                Some(time) => lock.acquire_timeout(time).await.unwrap(),
            }
        });
        case.until("queued or cut", async || victim.is_finished() || case.queued(&path).await == 2).await;
        let next = tokio::spawn(async move { next.acquire_timeout(LONG).await.unwrap() });
        let places = async || case.queued(&path).await;
        case.until("the next one queues", async || {
            places().await >= if victim.is_finished() { 2 } else { 3 }
        })
        .await;
        assert_eq!(holder.release().await.unwrap(), Release::Released);
        // Dropped at once if it holds.
        let done = victim.await.unwrap().is_some();
        assert_eq!(next.await.unwrap().release().await.unwrap(), Release::Released);
        nothing_is_left::<M>(case, &path, &a, &b).await;
        done
    })
    .await;
}

/// T2: acquire right behind two other places of the same client, with another one behind. No listing is sent if the store
/// counts every create.
pub async fn t2_queued_in_a_row<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    sweep("acquire, queued in a row", async |cut| {
        let path = path(case, cut);
        let lock = || M::at(&a.client, path.as_str()).unwrap();
        let places = async || case.queued(&path).await;
        let wait = || {
            let lock = lock();
            tokio::spawn(async move { lock.acquire_timeout(LONG).await.unwrap() })
        };
        let holder = lock().acquire().await.unwrap();
        let first = wait();
        case.until("the first one queues", async || places().await == M::places(2, 1)).await;
        case.until("it has listed", async || a.faults.under_way() == 0).await;
        let victim = lock();
        let victim = spawn(cut, async move { victim.acquire().await.unwrap() });
        case.until("queued or cut", async || victim.is_finished() || places().await == M::places(3, 1)).await;
        let next = wait();
        case.until("the next one queues", async || {
            places().await >= M::places(if victim.is_finished() { 3 } else { 4 }, 1)
        })
        .await;
        assert_eq!(holder.release().await.unwrap(), Release::Released);
        assert_eq!(first.await.unwrap().release().await.unwrap(), Release::Released);
        // Dropped at once if it holds.
        let done = victim.await.unwrap().is_some();
        assert_eq!(next.await.unwrap().release().await.unwrap(), Release::Released);
        nothing_is_left::<M>(case, &path, &a, &b).await;
        done
    })
    .await;
}

/// T2: acquire_timeout that runs out of time.
pub async fn t2_time_runs_out<M: Mutual>(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    sweep("acquire_timeout, time runs out", async |cut| {
        let path = path(case, cut);
        let lock = M::at(&a.client, path.as_str()).unwrap();
        let holder = M::at(&c.client, path.as_str()).unwrap().acquire().await.unwrap();
        let time = Duration::from_millis(100);
        let victim = spawn(cut, async move { lock.acquire_timeout(time).await.unwrap_err() }).await.unwrap();
        case.until_queued(&path, 1).await;
        assert_eq!(holder.release().await.unwrap(), Release::Released);
        nothing_is_left::<M>(case, &path, &a, &b).await;
        victim.is_some()
    })
    .await;
}

/// T2: the session ends during the wait.
pub async fn t2_session_ends<M: Mutual>(case: &Case<'_>) {
    let [b, c] = case.processes().await;
    sweep_together("acquire, the session ends while it waits", async |cut| {
        let a = case.process().await;
        let path = path(case, cut);
        let lock = M::at(&a.client, path.as_str()).unwrap();
        let holder = M::at(&c.client, path.as_str()).unwrap().acquire().await.unwrap();
        let victim = spawn(cut, async move { lock.acquire().await.unwrap_err() });
        let waits = || a.faults.count(M::WAIT) == 1;
        case.until("it waits, or is cut", async || victim.is_finished() || waits()).await;
        case.store.expire(&a.connection).await;
        let done = victim.await.unwrap().is_some();
        case.until_queued(&path, 1).await;
        assert_eq!(holder.release().await.unwrap(), Release::Released);
        case.until_session(&a, 2, SessionState::Connected).await;
        nothing_is_left::<M>(case, &path, &a, &b).await;
        a.client.close().await.unwrap();
        done
    })
    .await;
}

/// T2: release() dropped.
pub async fn t2_release<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    sweep("release", async |cut| {
        let path = path(case, cut);
        let guard = M::at(&a.client, path.as_str()).unwrap().acquire().await.unwrap();
        let next = M::at(&b.client, path.as_str()).unwrap();
        let next = tokio::spawn(async move { next.acquire_timeout(LONG).await.unwrap() });
        case.until_queued(&path, 2).await;
        let done = spawn(cut, async move { guard.release().await.unwrap() }).await.unwrap();
        assert!(matches!(done, None | Some(Release::Released)));
        assert_eq!(next.await.unwrap().release().await.unwrap(), Release::Released);
        nothing_is_left::<M>(case, &path, &a, &b).await;
        done.is_some()
    })
    .await;
}

/// T2: the answer to the create is lost; it arrives with the next connection.
pub async fn t2_answer_lost<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    sweep("acquire, answer of the create lost", async |cut| {
        let path = path(case, cut);
        let lock = M::at(&a.client, path.as_str()).unwrap();
        // The parent exists, so the create is the first request.
        nothing_is_left::<M>(case, &path, &a, &b).await;
        case.links().mute(&a.connection).await;
        let victim = spawn(cut, async move { lock.acquire().await.unwrap() });
        case.until("made or cut", async || victim.is_finished() || case.queued(&path).await == 1).await;
        case.links().heal(&a.connection).await;
        let done = victim.await.unwrap().is_some();
        nothing_is_left::<M>(case, &path, &a, &b).await;
        case.until_session(&a, 1, SessionState::Connected).await;
        done
    })
    .await;
    assert_eq!(a.session().epoch, 1, "nothing went by the end of a session");
}

/// T2: the link is cut before the acquire begins, and mended.
pub async fn t2_link_cut<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    sweep("acquire, link cut", async |cut| {
        let path = path(case, cut);
        let lock = M::at(&a.client, path.as_str()).unwrap();
        case.links().cut(&a.connection).await;
        let victim = spawn(cut, async move { lock.acquire().await.unwrap() });
        tokio::time::sleep(Duration::from_millis(50)).await;
        case.links().heal(&a.connection).await;
        let done = victim.await.unwrap().is_some();
        nothing_is_left::<M>(case, &path, &a, &b).await;
        case.until_session(&a, 1, SessionState::Connected).await;
        done
    })
    .await;
    assert_eq!(a.session().epoch, 1, "nothing went by the end of a session");
}

/// T2: the link is cut while it waits, the holder leaves, the link is mended.
pub async fn t2_link_cut_while_queued<M: Mutual>(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    sweep("acquire, queued, link cut", async |cut| {
        let path = path(case, cut);
        let at = |process: &Process| M::at(&process.client, path.as_str()).unwrap();
        let (holder, lock) = (at(&c).acquire().await.unwrap(), at(&a));
        let victim = spawn(cut, async move { lock.acquire().await.unwrap() });
        case.until("queued or cut", async || victim.is_finished() || case.queued(&path).await == 2).await;
        case.links().cut(&a.connection).await;
        assert_eq!(holder.release().await.unwrap(), Release::Released);
        tokio::time::sleep(Duration::from_millis(50)).await;
        case.links().heal(&a.connection).await;
        let done = victim.await.unwrap().is_some();
        nothing_is_left::<M>(case, &path, &a, &b).await;
        case.until_session(&a, 1, SessionState::Connected).await;
        done
    })
    .await;
    assert_eq!(a.session().epoch, 1, "nothing went by the end of a session");
}

/// T2: release() is dropped on a link that loses the response.
pub async fn t2_release_answer_lost<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    sweep("release, answer lost", async |cut| {
        let path = path(case, cut);
        let guard = M::at(&a.client, path.as_str()).unwrap().acquire().await.unwrap();
        case.links().mute(&a.connection).await;
        let victim = spawn(cut, guard.release());
        case.until("gone or cut", async || victim.is_finished() || case.queued(&path).await == 0).await;
        case.links().heal(&a.connection).await;
        let done = victim.await.unwrap();
        if let Some(release) = &done {
            assert!(matches!(release, Ok(Release::Released | Release::Pending)), "{release:?}");
        }
        nothing_is_left::<M>(case, &path, &a, &b).await;
        case.until_session(&a, 1, SessionState::Connected).await;
        done.is_some()
    })
    .await;
    assert_eq!(a.session().epoch, 1, "nothing went by the end of a session");
}
