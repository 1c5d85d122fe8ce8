//! Links that break, go silent, or lose answers; sessions that end.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock_core::{Error, ErrorKind, Phase, SessionState};
use zlock_recipes::Release;

use crate::case::LONG;
use crate::{Call, Case, Mutual, TestGuard, TestLock};

/// MX-02: the server is unavailable for less than the session timeout while one client holds and two wait: all finish, in
/// order.
pub async fn mx_02_outage_keeps_the_order<M: Mutual>(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let path = case.path("lock");
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let wait = |process| {
        let lock = case.lock::<M>(process, "lock");
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    };
    let second = wait(&b);
    case.until_queued(&path, 2).await;
    let third = wait(&c);
    case.until_queued(&path, 3).await;
    for process in [&a, &b, &c] {
        case.links().cut(&process.connection).await;
    }
    sleep(case.store.session_timeout() / 4).await;
    assert!(guard.is_held(), "the session lives on");
    for process in [&a, &b, &c] {
        case.links().heal(&process.connection).await;
    }
    for process in [&a, &b, &c] {
        case.until_session(process, 1, SessionState::Connected).await;
    }
    assert!(guard.is_held() && !second.is_finished() && !third.is_finished());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let second = second.await.unwrap();
    assert!(second.is_held() && !third.is_finished());
    assert_eq!(second.release().await.unwrap(), Release::Released);
    assert_eq!(third.await.unwrap().release().await.unwrap(), Release::Released);
    assert_eq!([a, b, c].map(|p| p.session().epoch), [1, 1, 1]);
}

/// The holder releases while the waiter's link is cut: the waiter is granted the lock when the link is mended.
pub async fn turn_comes_during_an_outage<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let lock = case.lock::<M>(&b, "lock");
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    case.until_queued(&path, 2).await;
    case.links().cut(&b.connection).await;
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    sleep(case.store.session_timeout() / 4).await;
    assert!(!waiter.is_finished(), "no grant without a look");
    case.links().heal(&b.connection).await;
    let guard = waiter.await.unwrap();
    assert_eq!(b.session().epoch, 1);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// T4, FR-06: a release while disconnected returns `Pending` at once; after a reconnection within the session, the node
/// is removed in the background.
pub async fn t4_fr_06_release_while_disconnected<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    case.links().cut(&a.connection).await;
    case.until_session(&a, 1, SessionState::Suspended).await;
    let began = Instant::now();
    assert_eq!(guard.release().await.unwrap(), Release::Pending);
    case.took(began, Duration::ZERO);
    assert_eq!((case.queued(&path).await, a.client.pending_cleanups()), (1, M::NODES));
    case.links().heal(&a.connection).await;
    case.until_free(&path).await;
    case.until("the background is idle", async || a.client.pending_cleanups() == 0).await;
    assert_eq!(a.session().epoch, 1, "not by the end of the session");
    for process in [&b, &a] {
        let guard = case.lock::<M>(process, "lock").acquire_timeout(LONG).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

/// T53: a release that fails on a silent link; later the same client and others acquire the lock.
pub async fn t53_release_on_a_broken_link<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let lock = case.lock::<M>(&a, "lock");
    let guard = lock.acquire().await.unwrap();
    case.links().freeze(&a.connection).await;
    let release = tokio::spawn(guard.release());
    sleep(case.store.session_timeout() / 4).await;
    case.links().heal(&a.connection).await;
    let release = release.await.unwrap().unwrap();
    assert!(matches!(release, Release::Released | Release::Pending), "{release:?}");
    assert_eq!(a.session().epoch, 1);
    let others = case.lock::<M>(&b, "lock").acquire_timeout(LONG).await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(others.release().await.unwrap(), Release::Released);
    assert_eq!(lock.acquire_timeout(LONG).await.unwrap().release().await.unwrap(), Release::Released);
}

/// T53: the link breaks and the session ends before the release arrives: others acquire the lock, and so does the same
/// client in its next session.
pub async fn t53_release_overtaken_by_the_end_of_the_session<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let lock = case.lock::<M>(&a, "lock");
    let guard = lock.acquire().await.unwrap();
    case.links().cut(&a.connection).await;
    case.until_session(&a, 1, SessionState::Suspended).await;
    assert_eq!(guard.release().await.unwrap(), Release::Pending);
    let others = case.lock::<M>(&b, "lock").acquire_timeout(LONG).await.unwrap();
    case.links().heal(&a.connection).await;
    case.until_session(&a, 2, SessionState::Connected).await;
    case.until("the background is idle", async || a.client.pending_cleanups() == 0).await;
    assert!(others.is_held() && lock.try_acquire().await.unwrap().is_none());
    assert_eq!(others.release().await.unwrap(), Release::Released);
    assert_eq!(lock.acquire_timeout(LONG).await.unwrap().release().await.unwrap(), Release::Released);
}

/// FR-01: the response to the create is lost once: there is exactly one node, and it is ours.
pub async fn fr_01_answer_lost_once<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let lock = case.lock::<M>(&a, "lock");
    // The parent exists, so the create is the first request.
    assert_eq!(
        case.lock::<M>(&b, "lock").acquire().await.unwrap().release().await.unwrap(),
        Release::Released
    );
    case.links().mute(&a.connection).await;
    let attempt = tokio::spawn(async move { lock.acquire().await.unwrap() });
    case.until_queued(&path, 1).await;
    case.links().heal(&a.connection).await;
    let guard = attempt.await.unwrap();
    assert_eq!((a.session().epoch, case.queued(&path).await), (1, 1));
    assert!(guard.is_held() && case.lock::<M>(&b, "lock").try_acquire().await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    case.until_free(&path).await;
}

/// FR-14: an outage shorter than the session is `Suspended`, then `Connected`; the lock stays.
pub async fn fr_14_short_outage<M: Mutual>(case: &Case<'_>) {
    let a = case.process().await;
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let mut listener = a.client.session_events().listen();
    assert_eq!(listener.next().await.unwrap().state, SessionState::Connected);
    case.links().cut(&a.connection).await;
    assert_eq!(listener.next().await.unwrap().state, SessionState::Suspended);
    assert!(guard.is_held(), "suspended is not lost");
    case.links().heal(&a.connection).await;
    let session = listener.next().await.unwrap();
    assert_eq!((session.epoch, session.state), (1, SessionState::Connected));
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// FR-14: a longer one is `Suspended`, `Lost`, then `Connected` as a new epoch; the lock is lost.
pub async fn fr_14_long_outage<M: Mutual>(case: &Case<'_>) {
    let a = case.process().await;
    let lock = case.lock::<M>(&a, "lock");
    let guard = lock.acquire().await.unwrap();
    let mut listener = a.client.session_events().listen();
    let mut told = Vec::new();
    case.links().cut(&a.connection).await;
    while told.last() != Some(&(1, SessionState::Lost)) {
        let session = listener.next().await.unwrap();
        told.push((session.epoch, session.state));
    }
    assert!(!guard.is_held());
    assert_eq!(guard.lost().await.kind(), ErrorKind::SessionLost);
    case.links().heal(&a.connection).await;
    let session = listener.next().await.unwrap();
    told.push((session.epoch, session.state));
    use SessionState::{Connected, Lost, Suspended};
    assert_eq!(told, [(1, Connected), (1, Suspended), (1, Lost), (2, Connected)]);
    assert!(!guard.is_held(), "a new session does not bring the lock back");
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
    assert_eq!(lock.acquire_timeout(LONG).await.unwrap().release().await.unwrap(), Release::Released);
}

/// FR-17, T26: a session ended during the outage, which the client only learns when it reconnects: one `Lost`, then
/// `Connected` in the next epoch; never the other way round.
pub async fn fr_17_t26_late_expiry<M: Mutual>(case: &Case<'_>) {
    let a = case.process().await;
    let lock = case.lock::<M>(&a, "lock");
    let guard = lock.acquire().await.unwrap();
    let mut listener = a.client.session_events().listen();
    assert_eq!(listener.next().await.unwrap().state, SessionState::Connected);
    case.links().cut(&a.connection).await;
    case.until_session(&a, 1, SessionState::Suspended).await;
    case.store.expire(&a.connection).await;
    case.links().heal(&a.connection).await;
    case.until_session(&a, 2, SessionState::Connected).await;
    let mut told = Vec::new();
    while told.last() != Some(&(2, SessionState::Connected)) {
        let session = listener.next().await.unwrap();
        told.push((session.epoch, session.state));
    }
    assert_eq!(told.iter().filter(|(_, s)| *s == SessionState::Lost).count(), 1, "{told:?}");
    assert_eq!(told[told.len() - 2], (1, SessionState::Lost), "{told:?}");
    let quiet = timeout(case.store.session_timeout(), listener.next()).await;
    assert!(quiet.is_err(), "it stays connected: {quiet:?}");
    assert!(!guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
    assert_eq!(lock.acquire_timeout(LONG).await.unwrap().release().await.unwrap(), Release::Released);
}

/// T17, rules 2 and 5: the holder no longer receives anything from the server: `is_held()` is false and `lost()` has resolved
/// before another client holds the lock.
pub async fn t17_holder_knows_before_another_holds<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let others = case.lock::<M>(&b, "lock");
    let next = tokio::spawn(async move {
        let guard = others.acquire().await.unwrap();
        (Instant::now(), guard)
    });
    case.until_queued(&path, 2).await;
    case.links().freeze(&a.connection).await;
    let began = Instant::now();
    let error = timeout(LONG, guard.lost()).await.expect("lost() resolves");
    let lost = Instant::now();
    assert!(!guard.is_held());
    assert_eq!(error.kind(), ErrorKind::SessionLost);
    let (granted, next) = next.await.unwrap();
    println!(
        "T17 silent server: lost() after {:?}, granted to another after {:?}",
        lost - began,
        granted - began
    );
    assert!(lost < granted, "lost() {:?} after the grant", lost - granted);
    assert!(!guard.is_held() && next.is_held() && next.fencing_token() > guard.fencing_token());
    case.links().heal(&a.connection).await;
    case.until_session(&a, 2, SessionState::Connected).await;
    assert!(!guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
    assert!(next.is_held());
    assert_eq!(next.release().await.unwrap(), Release::Released);
}

/// T17: a waiter on a silent link gets the loss at its deadline, whatever it is waiting for.
pub async fn t17_waiter_on_a_silent_link<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let lock = case.lock::<M>(&b, "lock");
    let waiter = tokio::spawn(async move { lock.acquire().await.map(|_| ()) });
    case.until_waiting(&b, 1).await;
    case.links().freeze(&b.connection).await;
    let error = timeout(case.store.session_timeout(), waiter).await.expect("woken at the deadline");
    assert_eq!(error.unwrap().unwrap_err().kind(), ErrorKind::SessionLost);
    case.until_queued(&path, 1).await;
    case.links().heal(&b.connection).await;
    case.until_session(&b, 2, SessionState::Connected).await;
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// A time limit covers everything: with the server stopped, silent or mute, 2 s are 2 s, and nothing is left behind.
pub async fn time_limit_covers_a_broken_link<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let time = case.store.session_timeout() / 4;
    for harm in ["cut", "freeze", "mute"] {
        let lock = case.lock::<M>(&a, "lock");
        match harm {
            "cut" => case.links().cut(&a.connection).await,
            "freeze" => case.links().freeze(&a.connection).await,
            _ => case.links().mute(&a.connection).await,
        }
        let began = Instant::now();
        let error = lock.acquire_timeout(time).await.unwrap_err();
        println!("acquire_timeout({time:?}), link {harm}: {:?}, {error}", began.elapsed());
        case.took(began, time);
        let ErrorKind::Timeout(phase) = error.kind() else { panic!("{harm}: {error}") };
        assert!(matches!(phase, Phase::Connecting | Phase::Queueing), "{harm}: {error}");
        case.links().heal(&a.connection).await;
        case.until("the background is idle", async || a.client.pending_cleanups() == 0).await;
        case.until_free(&case.path("lock")).await;
        case.until_session(&a, 1, SessionState::Connected).await;
        let guard = case.lock::<M>(&b, "lock").acquire_timeout(LONG).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

/// A single attempt is limited, too: by the client's response timeout.
pub async fn a_try_is_bounded<M: Mutual>(case: &Case<'_>) {
    let time = case.store.session_timeout() / 4;
    let a = case.process_with(|builder| builder.with_response_timeout(time).unwrap()).await;
    let lock = case.lock::<M>(&a, "lock");
    case.links().freeze(&a.connection).await;
    let began = Instant::now();
    assert!(lock.try_acquire().await.unwrap_err().is_timeout());
    case.took(began, time);
    let began = Instant::now();
    assert!(lock.acquire_timeout(Duration::ZERO).await.unwrap_err().is_timeout());
    case.took(began, time);
    case.links().heal(&a.connection).await;
}

/// T9: an unreachable store keeps the background at rest, and costs no request.
pub async fn t9_unreachable_store<M: Mutual>(case: &Case<'_>) {
    let a = case.process().await;
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    case.links().cut(&a.connection).await;
    case.until_session(&a, 1, SessionState::Suspended).await;
    let before = a.faults.count(Call::Delete);
    drop(guard);
    sleep(case.store.session_timeout() / 4).await;
    assert_eq!((a.faults.count(Call::Delete), a.client.pending_cleanups()), (before, M::NODES));
    case.links().heal(&a.connection).await;
    case.until_free(&case.path("lock")).await;
    assert_eq!(a.session().epoch, 1);
}

/// Closing while the link is cut: the waiter still gets `Closed`, and its node ends with the session.
pub async fn t29_close_while_disconnected<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let guard = case.lock::<M>(&a, "lock").acquire().await.unwrap();
    let lock = case.lock::<M>(&b, "lock");
    let waiter = tokio::spawn(async move { lock.acquire().await.map(|_| ()) });
    case.until_queued(&path, 2).await;
    case.links().cut(&b.connection).await;
    case.until_session(&b, 1, SessionState::Suspended).await;
    let client = b.client.clone();
    let close = tokio::spawn(async move { client.close().await });
    let ended = timeout(case.store.session_timeout() / 4, waiter).await.expect("told at once");
    assert_eq!(ended.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    case.links().heal(&b.connection).await;
    let _ = timeout(LONG, close).await.expect("close ends").unwrap();
    case.until_queued(&path, 1).await;
    drop(guard);
}

/// A timeout while the store cannot be reached: the error says so, and its source is the failure.
pub async fn a_timeout_names_its_cause<M: Mutual>(case: &Case<'_>) {
    let short = Duration::from_secs(1);
    let a = case.process_with(|builder| builder.with_response_timeout(short).unwrap()).await;
    let lock = case.lock::<M>(&a, "lock");
    case.links().cut(&a.connection).await;
    case.until_session(&a, 1, SessionState::Suspended).await;
    // Longer than the sessions of the real servers in these tests, so one is lost meanwhile.
    let long = case.store.session_timeout() + short;
    let errors = [
        lock.acquire_timeout(short).await.map(drop),
        lock.try_acquire().await.map(drop),
        lock.acquire_timeout(Duration::ZERO).await.map(drop),
        lock.acquire_timeout(long).await.map(drop),
        lock.try_acquire().await.map(drop),
    ];
    for error in errors.map(Result::unwrap_err) {
        assert!(matches!(error.kind(), ErrorKind::Timeout(Phase::Connecting)), "{error}");
        let cause = error.cause().unwrap_or_else(|| panic!("no cause: {error}"));
        let kind = cause.downcast_ref().map(Error::kind);
        assert!(matches!(kind, Some(ErrorKind::Unavailable | ErrorKind::SessionLost)), "{cause}");
        assert!(error.to_string().ends_with(&format!(": {cause}")), "{error} does not show {cause}");
    }
    case.links().heal(&a.connection).await;
    case.until_session(&a, 1, SessionState::Connected).await;
    let guard = lock.acquire_timeout(LONG).await.unwrap();
    // A failure that was overcome is not a cause.
    let waited = case.lock::<M>(&case.process().await, "lock").acquire_timeout(short).await.unwrap_err();
    assert!(waited.cause().is_none(), "{waited}");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}
