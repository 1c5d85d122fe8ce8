//! Outages that last longer than an operation and end before the session: a place in the queue stays.
//!
//! The cases need a store whose sessions last at least ten times as long as its operations.

use std::time::Duration;

use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep, timeout};
use zlock_core::{ErrorKind, Result, SessionState};
use zlock_recipes::Release;

use crate::case::LONG;
use crate::{Call, Case, GuardOf, Mutual, Process, Side, TestGuard, TestLock};

/// How the link of a waiter breaks.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Cut,
    Freeze,
    Mute,
}

const HARMS: [Harm; 3] = [Harm::Cut, Harm::Freeze, Harm::Mute];

impl Harm {
    /// Breaks the link once the session has half of its time left. After an outage, that takes some heartbeats.
    async fn begin(self, case: &Case<'_>, process: &Process) {
        let half = case.store.session_timeout() / 2;
        let left = || process.session().deadline.map(|deadline| deadline - Instant::now());
        case.until("the deadline is far", async || left().is_none_or(|left| left > half)).await;
        match self {
            Harm::Cut => case.links().cut(&process.connection).await,
            Harm::Freeze => case.links().freeze(&process.connection).await,
            Harm::Mute => case.links().mute(&process.connection).await,
        }
    }
}

type Waiter<M> = JoinHandle<Result<GuardOf<M>>>;

fn waiter<M: Mutual>(case: &Case<'_>, process: &Process, name: &str) -> Waiter<M> {
    let lock = case.lock::<M>(process, name);
    tokio::spawn(async move { lock.acquire().await })
}

/// Starts three waiters behind a holder, which may be of the same process, and returns when their requests are answered.
async fn three<M: Mutual>(case: &Case<'_>, process: &Process, name: &str, own: bool) -> Vec<Waiter<M>> {
    let (path, mine) = (case.path(name), usize::from(own));
    let mut waiters = Vec::new();
    for number in 1..=3 {
        waiters.push(waiter::<M>(case, process, name));
        // Its first poll joins the queue of its client.
        yield_now().await;
        case.until_queued(&path, 1 - mine + M::places(number + mine, 1)).await;
        case.until("its requests are answered", async || process.faults.under_way() == 0).await;
    }
    waiters
}

/// A process whose releases wait for as long as the backend's operations.
async fn hasty(case: &Case<'_>) -> Process {
    case.process_with(|builder| builder.with_response_timeout(Duration::from_secs(1)).unwrap()).await
}

/// Waits for longer than an operation may take, and not until a client library takes the silence for a broken connection: its
/// attempt at the next one might begin in the outage, and last as long again.
async fn outage(case: &Case<'_>) {
    sleep(case.store.session_timeout() / 5).await;
}

async fn end(case: &Case<'_>, process: &Process) {
    case.links().heal(&process.connection).await;
    case.until_session(process, 1, SessionState::Connected).await;
}

/// Checks that each waiter is granted the lock, in the order of their places.
async fn granted_in_order<M: Mutual>(what: &str, waiters: Vec<Waiter<M>>) {
    for (number, waiter) in waiters.into_iter().enumerate() {
        let guard = timeout(LONG, waiter).await.unwrap_or_else(|_| panic!("{what}: {number} still waits"));
        let guard = guard.unwrap().unwrap_or_else(|e| panic!("{what}: waiter {number} failed: {e}"));
        assert!(guard.is_held(), "{what}");
        released(what, guard.release().await);
    }
}

/// On a busy machine, the store may confirm it later.
fn released(what: &str, release: Result<Release>) {
    let release = release.unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(matches!(release, Release::Released | Release::Pending), "{what}: {release:?}");
}

/// The waiters' link breaks, and nothing else happens.
pub async fn an_outage_ends_no_wait<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    for harm in HARMS {
        let name = format!("{harm:?}");
        let guard = case.lock::<M>(&a, &name).acquire().await.unwrap();
        let waiters = three::<M>(case, &b, &name, false).await;
        harm.begin(case, &b).await;
        outage(case).await;
        end(case, &b).await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        granted_in_order::<M>(&name, waiters).await;
    }
    assert_eq!(b.session().epoch, 1);
}

/// The holder releases the lock during the outage: one of another client, and one of the waiters' own.
pub async fn a_release_during_an_outage_ends_no_wait<M: Mutual>(case: &Case<'_>) {
    let (a, b) = (case.process().await, hasty(case).await);
    for harm in HARMS {
        for holder in [&a, &b] {
            let own = std::ptr::eq(holder, &raw const b);
            let name = format!("{harm:?}-own-{own}");
            let guard = case.lock::<M>(holder, &name).acquire().await.unwrap();
            let waiters = three::<M>(case, &b, &name, own).await;
            // By then the time of a hand-off is over.
            sleep(Duration::from_millis(50)).await;
            harm.begin(case, &b).await;
            let release = tokio::spawn(guard.release());
            outage(case).await;
            end(case, &b).await;
            released(&name, release.await.unwrap());
            granted_in_order::<M>(&name, waiters).await;
        }
    }
    assert_eq!(b.session().epoch, 1);
}

/// A request of a waiter is under way when the outage begins: the one that watches the place ahead, and the listing after a
/// wake-up. It is sent again after the outage.
pub async fn a_request_under_way_is_repeated<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    for harm in HARMS {
        for call in [M::WAIT, Call::Children] {
            let name = format!("{harm:?}-{call:?}");
            let mut guard = Some(case.lock::<M>(&a, &name).acquire().await.unwrap());
            let before = b.faults.count(call);
            let (gate, waiter) = if call == Call::Children {
                let waiter = case.waiting::<M>(&b, case.lock::<M>(&b, &name)).await;
                let gate = b.faults.hold(call, Side::Before);
                assert_eq!(guard.take().unwrap().release().await.unwrap(), Release::Released);
                (gate, waiter)
            } else {
                (b.faults.hold(call, Side::Before), waiter::<M>(case, &b, &name))
            };
            gate.reached().await;
            harm.begin(case, &b).await;
            gate.open();
            outage(case).await;
            end(case, &b).await;
            if let Some(guard) = guard {
                assert_eq!(guard.release().await.unwrap(), Release::Released);
            }
            granted_in_order::<M>(&name, vec![waiter]).await;
            let has_failed = b.faults.count(call) >= before + 2;
            let needs_none = call == Call::Exists && !case.store.watches_by_request();
            assert!(has_failed || needs_none, "{name}: the first one did not fail");
        }
    }
    assert_eq!(b.session().epoch, 1);
}

/// A create under way is not repeated, because it may take effect: the acquisition fails, and leaves nothing behind.
pub async fn a_create_under_way_fails<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    for harm in HARMS {
        let name = format!("{harm:?}");
        let guard = case.lock::<M>(&a, &name).acquire().await.unwrap();
        let (before, gate) = (b.faults.count(Call::Create), b.faults.hold(Call::Create, Side::Before));
        let waiter = waiter::<M>(case, &b, &name);
        gate.reached().await;
        harm.begin(case, &b).await;
        gate.open();
        let error = timeout(LONG, waiter).await.expect("it ends").unwrap().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{name}: {error}");
        assert_eq!(b.faults.count(Call::Create), before + 1);
        end(case, &b).await;
        case.until_queued(&case.path(&name), 1).await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        let lock = case.lock::<M>(&b, &name);
        // The next create may still meet the broken connection.
        let acquired = async || match lock.acquire_timeout(LONG).await {
            Ok(guard) => {
                released(&name, guard.release().await);
                true
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Unavailable, "{name}: {e}");
                false
            }
        };
        case.until("it can be acquired again", acquired).await;
    }
    assert_eq!(b.session().epoch, 1);
}

/// The time limit of an acquisition ends its wait during an outage, and the error names the cause.
pub async fn a_time_limit_holds_during_an_outage<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let (lock, time) = (case.lock::<M>(&b, "lock"), case.store.session_timeout() / 4);
    let gate = b.faults.hold(M::WAIT, Side::Before);
    let waiter = tokio::spawn(async move { lock.acquire_timeout(time).await.map(drop) });
    gate.reached().await;
    case.links().cut(&b.connection).await;
    gate.open();
    let error = timeout(time + Duration::from_secs(2), waiter).await.expect("it ends").unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(error.cause().is_some(), "no cause: {error}");
    end(case, &b).await;
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}
