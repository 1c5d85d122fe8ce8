//! `max_hold`: what guards report, what is cancelled, and who holds the lock meanwhile.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock_core::{Error, ErrorKind, Result, SessionState};
use zlock_recipes::job::{Outcome, RunState, Tick};
use zlock_recipes::kind::Permits;
use zlock_recipes::{Handoff, InterProcessMutex, Release, Then};

use crate::case::soon;
use crate::{Case, Process};

/// A limit that a session outlasts, even over a broken link.
fn limit(case: &Case<'_>) -> Duration {
    case.store.session_timeout() / 5
}

fn mutex(case: &Case<'_>, process: &Process) -> InterProcessMutex {
    case.lock::<InterProcessMutex>(process, "lock").max_hold(limit(case)).unwrap()
}

fn too_long<T>(result: Result<T>) {
    let error = result.map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.is_lock_lost()), (ErrorKind::HeldTooLong, false), "{error}");
}

/// A zero limit is refused wherever one can be set, and nothing is sent.
pub async fn zero_is_refused(case: &Case<'_>) {
    let a = case.process().await;
    let (client, zero) = (&a.client, Duration::ZERO);
    let semaphore = client.semaphore(case.path("permits"), 2).unwrap();
    let refused = [
        client.mutex(case.path("lock")).unwrap().max_hold(zero).map(|_| ()),
        client.read_write_lock(case.path("lock")).unwrap().max_hold(zero).map(|_| ()),
        semaphore.permits(1).unwrap().max_hold(zero).map(|_| ()),
        semaphore.max_hold(zero).map(|_| ()),
        client.election(case.path("election")).unwrap().max_hold(zero).map(|_| ()),
        client.recurring_job(case.path("job")).unwrap().max_hold(zero).map(|_| ()),
        client.lock_template(case.root()).unwrap().max_hold(zero).map(|_| ()),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidArgument && error.path().is_some(), "{error}");
    }
    assert_eq!(a.faults.total(), 0);
}

/// The limit is reached while the link is cut: a closure is cancelled, and a guard reports it. The session is alive, so nobody else gets
/// the lock before its guard is gone.
pub async fn reached_over_a_broken_link(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (lock, others) = (mutex(case, &a), case.lock::<InterProcessMutex>(&b, "lock"));
    let guard = lock.acquire().await.unwrap();
    let began = Instant::now();
    assert!(guard.is_held());
    case.links().cut(&a.connection).await;
    let ended = guard.run(pending::<()>()).await;
    case.took(began, limit(case));
    too_long(ended);
    too_long::<()>(Err(guard.lost().await));
    too_long(guard.check());
    assert!(!guard.is_held() && a.session().is_live());
    case.links().heal(&a.connection).await;
    case.until_session(&a, 1, SessionState::Connected).await;
    assert!(others.try_acquire().await.unwrap().is_none(), "not while the guard lives");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    others.acquire().await.unwrap().release().await.unwrap();
}

/// A closure that does not end keeps the lock, since it may still use what the lock protects.
pub async fn reached_while_the_closure_does_not_end(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let template = a.client.lock_template(case.root()).unwrap().cancel_on_loss(false);
    let template = template.max_hold(limit(case)).unwrap();
    let others = case.lock::<InterProcessMutex>(&b, "lock");
    let told = template.execute("lock", async |lock| {
        let told = lock.lost().await;
        sleep(limit(case)).await;
        assert!(others.try_acquire().await.unwrap().is_none(), "not while the closure runs");
        told
    });
    too_long::<()>(Err(told.await.unwrap()));
    others.acquire().await.unwrap().release().await.unwrap();
}

/// Entering again does not extend the time, and is refused once it is over.
pub async fn entering_again_extends_nothing(case: &Case<'_>) {
    let a = case.process().await;
    let lock = mutex(case, &a);
    let guard = lock.acquire().await.unwrap();
    let began = Instant::now();
    sleep(limit(case) / 2).await;
    let again = guard.scope(async { lock.acquire().await.unwrap() }).await;
    too_long::<()>(Err(again.lost().await));
    case.took(began, limit(case));
    let requests = a.faults.total();
    too_long(guard.scope(async { lock.acquire().await }).await);
    too_long(guard.reenter());
    assert_eq!(a.faults.total(), requests);
    assert_eq!(guard.release().await.unwrap(), Release::StillHeld);
    let context = again.context();
    assert_eq!(again.release().await.unwrap(), Release::Released);
    assert_eq!(context.check().unwrap_err().kind(), ErrorKind::Released);
}

/// Each holder of a local queue has the whole time.
pub async fn reached_in_a_hand_off(case: &Case<'_>) {
    let a = case.process().await;
    let lock = mutex(case, &a).with_handoff(Handoff::within(Duration::from_secs(3600)));
    let first = lock.acquire().await.unwrap();
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    too_long::<()>(Err(first.lost().await));
    assert!(!next.is_finished());
    let node = first.node();
    assert_eq!(first.release().await.unwrap(), Release::Released);
    let next = next.await.unwrap();
    let began = Instant::now();
    assert!(next.is_held() && next.node() == node);
    too_long(next.run(pending::<()>()).await);
    case.took(began, limit(case));
    next.release().await.unwrap();
}

/// Readers, writers, permits and sets of locks have the limit of their handles.
pub async fn of_other_kinds(case: &Case<'_>) {
    let a = case.process().await;
    let (client, limit) = (&a.client, limit(case));
    let files = client.read_write_lock(case.path("lock")).unwrap().max_hold(limit).unwrap();
    too_long(files.read().run(pending::<()>()).await);
    too_long(files.write().run(pending::<()>()).await);
    let guard = files.write().acquire().await.unwrap();
    guard.lost().await;
    let refused = guard.downgrade().await.unwrap_err();
    too_long::<()>(Err(refused.error));
    refused.guard.release().await.unwrap();
    let permits = client.semaphore(case.path("permits"), 2).unwrap().max_hold(limit).unwrap();
    too_long(permits.permits(2).unwrap().run(pending::<()>()).await);
    let template = client.lock_template(case.root()).unwrap().with_kind(Permits { n: 1, max: 2 }).unwrap();
    let template = template.max_hold(limit).unwrap();
    too_long(template.execute("permits", |_| pending::<()>()).await);
    let set = [mutex(case, &a), client.mutex(case.path("other")).unwrap()];
    too_long(zlock_recipes::MultiLock::new(set).unwrap().run(pending::<()>()).await);
}

/// A leader whose time is over is cancelled, and another candidate leads.
pub async fn a_term_ends(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let election = |process: &Process| process.client.election(case.path("election")).unwrap();
    let first = election(&a).max_hold(limit(case)).unwrap();
    let terms = Arc::new(AtomicUsize::new(0));
    let leads = tokio::spawn({
        let terms = terms.clone();
        async move {
            let led = first.lead(|_| {
                terms.fetch_add(1, Ordering::SeqCst);
                pending::<Result<()>>()
            });
            led.await
        }
    });
    case.until("the first one leads", async || terms.load(Ordering::SeqCst) == 1).await;
    let second = soon("the second one leads", election(&b).campaign()).await.unwrap();
    assert_eq!(terms.load(Ordering::SeqCst), 1);
    second.resign().await.unwrap();
    case.until("the first one leads again", async || terms.load(Ordering::SeqCst) == 2).await;
    leads.abort();
    let _ = leads.await;
}

/// A work that fails by itself ends the election as before.
pub async fn a_term_that_ends_in_time(case: &Case<'_>) {
    let a = case.process().await;
    let election = a.client.election(case.path("election")).unwrap().after_work(Then::Return);
    let election = election.max_hold(limit(case)).unwrap();
    let led = election.lead(async |_| Ok::<_, Error>(7)).await;
    assert_eq!(led.unwrap(), Some(7));
}

/// A run that takes too long is a failed attempt, which is recorded.
pub async fn a_run_fails(case: &Case<'_>) {
    let a = case.process().await;
    case.value("job.job");
    let job = a.client.recurring_job(case.path("job")).unwrap().max_hold(limit(case)).unwrap();
    let tick: Tick = "2025-11-24T21:00:00Z".parse().unwrap();
    too_long(job.run(tick, |_| pending::<Result<()>>()).await);
    let run = job.last().await.unwrap().unwrap();
    assert_eq!((run.tick, run.state, run.attempt), (tick, RunState::Failed, 1));
    let outcome = job.clone().attempts(2).run(tick, async |_| Ok::<_, Error>(())).await.unwrap();
    assert!(matches!(outcome, Outcome::Ran(Ok(()))), "{outcome:?}");
}
