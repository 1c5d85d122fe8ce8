//! MX-11: a client asks the holder to release the lock.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use zlock_core::{ErrorKind, SessionState};
use zlock_recipes::{Guard, Release};

use crate::case::LONG;
use crate::{Call, Case, Mutual, Process, Side, TestGuard, TestLock, sweep};

/// Long enough for a request to a server that answers, and short beside a session timeout.
const MOMENT: Duration = Duration::from_millis(200);

/// The holder gets the request and releases, and the requester acquires. The lock's next holder gets no request.
pub async fn holder_gets_the_request_and_releases<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (mine, others) = (case.lock::<M>(&a, "lock"), case.lock::<M>(&b, "lock"));
    let guard = mine.acquire().await.unwrap();
    let holder = tokio::spawn(async move {
        guard.revocation_requested().await.unwrap();
        guard.release().await.unwrap()
    });
    case.until("the holder listens", async || a.faults.count(Call::DataWithWatch) > 0).await;
    sleep(MOMENT).await;
    assert!(!holder.is_finished(), "nobody has asked");
    let held = others.request_revocation().await.unwrap();
    assert!(held >= 1);
    let guard = others.acquire_timeout(LONG).await.unwrap();
    assert_eq!(holder.await.unwrap(), Release::Released);
    assert!(timeout(MOMENT, guard.revocation_requested()).await.is_err(), "the next one was not asked");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// A request made before the holder listens is reported to every guard, repeatedly.
pub async fn asked_before_the_holder_listens<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    case.lock::<M>(&b, "lock").request_revocation().await.unwrap();
    for guard in [&guard, &guard.reenter().unwrap()] {
        guard.revocation_requested().await.unwrap();
        guard.revocation_requested().await.unwrap();
        assert!(guard.is_held());
    }
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// There is no holder, or it leaves between the listing and the request: no holder is asked, and nothing is created.
pub async fn nobody_to_ask<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (mine, others) = (case.lock::<M>(&a, "lock"), case.lock::<M>(&b, "lock"));
    assert_eq!(others.request_revocation().await.unwrap(), 0);
    let guard = mine.acquire().await.unwrap();
    let gate = b.faults.hold(Call::Children, Side::After);
    let asking = tokio::spawn({
        let others = others.clone();
        async move { others.request_revocation().await }
    });
    gate.reached().await;
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    gate.open();
    assert!(asking.await.unwrap().is_ok());
    case.until_free(&case.path("lock")).await;
    assert_eq!(others.acquire().await.unwrap().release().await.unwrap(), Release::Released);
}

/// A holder that does not listen sends nothing and continues; a waiter behind it is woken at most to read.
pub async fn holder_that_does_not_listen_is_untouched<M: Mutual>(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let path = case.path("lock");
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let waits = case.lock::<M>(&b, "lock");
    let waiter = tokio::spawn(async move { waits.acquire().await.unwrap() });
    case.until_waiting(&b, 1).await;
    let (before, names) = (a.faults.total(), case.store.names(&path).await);
    for _ in 0..3 {
        case.lock::<M>(&c, "lock").request_revocation().await.unwrap();
        sleep(MOMENT).await;
    }
    assert!(guard.is_held() && !waiter.is_finished());
    assert_eq!(a.faults.total(), before);
    assert_eq!(case.store.names(&path).await, names, "no place is lost");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let guard = waiter.await.unwrap();
    assert!(
        timeout(MOMENT, guard.revocation_requested()).await.is_err(),
        "it waited when the other was asked"
    );
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// The wait for a revocation ends with the loss of the lock, and returns it.
pub async fn ends_with_the_loss<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let lock = case.lock::<M>(&a, "lock");
    let guard = lock.acquire().await.unwrap();
    for name in case.store.names(&path).await {
        case.store.remove(&path, &name).await;
    }
    // The read reports it, before the next heartbeat.
    let soon = if case.paused { Duration::from_millis(1) } else { LONG };
    let ended = timeout(soon, guard.revocation_requested()).await.expect("at once");
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::NodeDeleted);
    assert!(!guard.is_held());
    drop(guard);
    let guard = lock.acquire_timeout(LONG).await.unwrap();
    let (ended, ()) = tokio::join!(guard.revocation_requested(), case.store.expire(&a.connection));
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::SessionLost);
    assert_eq!(guard.revocation_requested().await.unwrap_err().kind(), ErrorKind::SessionLost);
    drop(guard);
    let guard = case.lock::<M>(&b, "lock").acquire_timeout(LONG).await.unwrap();
    let (ended, closed) = tokio::join!(guard.revocation_requested(), b.client.close());
    closed.unwrap();
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Closed);
}

/// A node that cannot be read does not end the wait: the holder keeps listening.
pub async fn goes_on_when_the_store_does_not_answer<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    a.faults.fail(Call::DataWithWatch, Side::Before, 1, ErrorKind::Unavailable);
    a.faults.fail(Call::DataWithWatch, Side::After, 1, ErrorKind::Unavailable);
    case.lock::<M>(&b, "lock").request_revocation().await.unwrap();
    timeout(LONG, guard.revocation_requested()).await.unwrap().unwrap();
    a.faults.fail(Call::DataWithWatch, Side::Before, 1, ErrorKind::NotAuthorized);
    assert_eq!(guard.revocation_requested().await.unwrap_err().kind(), ErrorKind::NotAuthorized);
    b.faults.fail(Call::WriteData, Side::Before, 1, ErrorKind::NotAuthorized);
    let refused = case.lock::<M>(&b, "lock").request_revocation().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotAuthorized);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// A wait that is dropped after any poll leaves no watch, and does not touch the lock.
pub async fn dropped_wait_leaves_nothing<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (mine, others) = (case.lock::<M>(&a, "lock"), case.lock::<M>(&b, "lock"));
    sweep("revocation", async |cut| {
        let guard = mine.acquire().await.unwrap();
        let asked = others.request_revocation();
        let (heard, _) = tokio::join!(cut.run(guard.revocation_requested()), asked);
        assert!(guard.is_held());
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        heard.is_some()
    })
    .await;
}

/// A request during the holder's outage is reported when its link is back, if the session survives.
pub async fn asked_during_an_outage<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let holder = tokio::spawn(async move {
        let asked = guard.revocation_requested().await;
        (guard, asked)
    });
    case.until("the holder listens", async || a.faults.count(Call::DataWithWatch) > 0).await;
    case.links().cut(&a.connection).await;
    case.until_session(&a, 1, SessionState::Suspended).await;
    case.lock::<M>(&b, "lock").request_revocation().await.unwrap();
    assert!(!holder.is_finished());
    case.links().heal(&a.connection).await;
    let (guard, asked) = timeout(LONG, holder).await.unwrap().unwrap();
    asked.unwrap();
    assert!(guard.is_held() && a.session().epoch == 1);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// Returns `true` if this guard has received a request by now.
async fn is_asked(guard: &Guard) -> bool {
    timeout(MOMENT, guard.revocation_requested()).await.is_ok_and(|asked| asked.is_ok())
}

/// All readers in front are asked; the writer that waits and the reader behind it are not.
pub async fn all_readers_are_asked(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let path = case.path("lock");
    let lock = |process: &Process| process.client.read_write_lock(&path).unwrap();
    let readers = [
        lock(&a).read().acquire().await.unwrap(),
        lock(&a).read().acquire().await.unwrap(),
        lock(&b).read().acquire().await.unwrap(),
    ];
    let (lock, writer, late) = (lock(&a), lock(&c).write(), lock(&b).read());
    let writer = tokio::spawn(async move { writer.acquire().await.unwrap() });
    case.until_queued(&path, 4).await;
    let late = tokio::spawn(async move { late.acquire().await.unwrap() });
    case.until_queued(&path, 5).await;
    assert_eq!(lock.request_revocation().await.unwrap(), 3);
    for reader in readers {
        reader.revocation_requested().await.unwrap();
        assert_eq!(reader.release().await.unwrap(), Release::Released);
    }
    let writer = writer.await.unwrap();
    assert!(!is_asked(&writer).await);
    assert_eq!(lock.write().request_revocation().await.unwrap(), 1);
    assert!(is_asked(&writer).await);
    assert_eq!(writer.release().await.unwrap(), Release::Released);
    let late = late.await.unwrap();
    assert!(!is_asked(&late).await);
    assert_eq!(lock.read().request_revocation().await.unwrap(), 1);
    assert_eq!(late.release().await.unwrap(), Release::Released);
}

/// All holders of permits are asked, and no waiter is.
pub async fn all_who_hold_permits_are_asked(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("permits");
    let permits = |process: &Process| process.client.semaphore(&path, 5).unwrap();
    let (mine, others) = (permits(&a), permits(&b));
    let holders = [mine.acquire(2).await.unwrap(), others.acquire(2).await.unwrap()];
    let waiter = tokio::spawn({
        let mine = mine.clone();
        async move { mine.acquire(5).await.unwrap() }
    });
    case.until_queued(&path, 3).await;
    assert_eq!(others.request_revocation().await.unwrap(), 2);
    for holder in holders {
        holder.revocation_requested().await.unwrap();
        assert_eq!(holder.release().await.unwrap(), Release::Released);
    }
    let waiter = waiter.await.unwrap();
    assert!(!is_asked(&waiter).await);
    assert_eq!(waiter.release().await.unwrap(), Release::Released);
}

/// A downgrade does not lose a request, whichever is first.
pub async fn downgrade_keeps_the_request(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let (mine, others) = (a.client.read_write_lock(&path).unwrap(), b.client.read_write_lock(&path).unwrap());
    for together in [false, true, true, true, true, true, true] {
        let writing = mine.write().acquire().await.unwrap();
        let reading = if together {
            let (reading, asked) = tokio::join!(writing.downgrade(), others.request_revocation());
            assert_eq!(asked.unwrap(), 1);
            reading
        } else {
            assert_eq!(others.request_revocation().await.unwrap(), 1);
            writing.downgrade().await
        };
        let reading = reading.unwrap();
        timeout(LONG, reading.revocation_requested()).await.unwrap().unwrap();
        assert_eq!(reading.release().await.unwrap(), Release::Released);
    }
}
