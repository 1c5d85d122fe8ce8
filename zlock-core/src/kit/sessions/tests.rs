//! The rules of sessions, in paused time.

use std::future::{pending, ready};
use std::time::Duration;

use tokio::time::advance;

use super::*;
use crate::nodes::node_id::NodeId;
const ID: SessionId = SessionId::new(7);

fn after(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

fn begun() -> (Sessions<()>, SessionKey) {
    let sessions = Sessions::new("refused");
    let (key, _) = sessions.begin(ID, after(10), |_| ()).unwrap();
    (sessions, key)
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_live_session() {
    let sessions = Sessions::new("refused");
    let began = Instant::now();
    assert_eq!(sessions.wait(after(1), || ()).await, Err(Interrupted::TimedOut));
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    let begin = async {
        tokio::task::yield_now().await;
        sessions.begin(ID, after(10), |key| key.epoch).unwrap()
    };
    let (waited, (key, connection)) = tokio::join!(sessions.wait(after(60), || ()), begin);
    assert_eq!((waited, *connection), (Ok(key), 1));
    advance(Duration::from_secs(10)).await;
    assert_eq!(sessions.wait(after(1), || ()).await, Err(Interrupted::TimedOut));
    assert!(sessions.get(key).is_some(), "it is current until it is ended");
}

#[tokio::test(start_paused = true)]
async fn a_suspended_session_is_waited_for_until_it_is_connected() {
    let (sessions, key) = begun();
    sessions.suspend(key);
    assert_eq!(sessions.wait(after(1), || ()).await, Err(Interrupted::TimedOut));
    let last = LastFailure::default();
    let connected = last.observe(sessions.connected(key, after(1))).await;
    assert_eq!(connected, Err(Interrupted::NotConnected));
    assert!(last.take().unwrap().to_string().contains("no connection"));
    let resume = async {
        tokio::task::yield_now().await;
        assert!(sessions.resume(key));
    };
    let both = (sessions.wait(after(1), || ()), sessions.connected(key, after(1)));
    let (waited, connected, ()) = tokio::join!(both.0, both.1, resume);
    assert_eq!((waited, connected), (Ok(key), Ok(())));
    sessions.suspend(key);
    let end = async {
        tokio::task::yield_now().await;
        sessions.end(key);
    };
    let (connected, ()) = tokio::join!(sessions.connected(key, after(1)), end);
    assert_eq!(connected, Err(Interrupted::SessionLost));
}

#[tokio::test(start_paused = true)]
async fn a_late_end_of_a_session_leaves_the_own_nodes_of_the_next() {
    let (sessions, old) = begun();
    let (next, _) = sessions.begin(SessionId::new(8), after(10), |_| ()).unwrap();
    let _deletion = sessions.own().insert(&crate::NodeId::new("node"));
    sessions.end(old);
    assert_eq!(sessions.own().len(), 1);
    sessions.end(next);
    assert!(sessions.own().is_empty());
}

fn node_id() -> NodeId {
    NodeId::new("node")
}

fn deadline(sessions: &Sessions<()>) -> Option<Instant> {
    sessions.session().deadline
}

#[tokio::test(start_paused = true)]
async fn a_session_rests_while_it_owns_nothing() {
    let (sessions, key) = begun();
    let notice = sessions.insert_own(key, &node_id(), after(60)).unwrap();
    assert_eq!(deadline(&sessions), Some(after(10)), "a write does not extend it");
    assert!(!sessions.rest(key));
    drop(notice);
    let _ = sessions.own().mark();
    assert!(!sessions.rest(key), "the node is there, although nobody asks about it any more");
    sessions.own().remove(&node_id());
    assert!(sessions.rest(key));
    assert_eq!(deadline(&sessions), None);
    advance(Duration::from_secs(3600)).await;
    assert!(sessions.is_live(key));
    // A proof from this time sets no deadline on which a later hold would rely.
    assert!(sessions.extend(key, Instant::now(), after(3600)));
    assert_eq!(deadline(&sessions), None);
}

#[tokio::test(start_paused = true)]
async fn the_first_node_after_a_rest_sets_the_deadline() {
    let (sessions, key) = begun();
    assert!(sessions.rest(key));
    let unproved = sessions.insert_own_if_active(key, &node_id());
    assert!(unproved.unwrap().is_none() && sessions.own().is_empty());
    let mut events = sessions.events();
    let over = tokio::spawn(async move { events.ended(1).await });
    let (active, notice) = tokio::join!(sessions.active(key), async {
        tokio::task::yield_now().await;
        sessions.insert_own(key, &node_id(), after(5)).unwrap()
    });
    let ((), began) = (active, Instant::now());
    assert_eq!(deadline(&sessions), Some(after(5)));
    let second = sessions.insert_own_if_active(key, &node_id()).unwrap();
    assert!(!sessions.rest(key) && !notice.is_deleted() && second.is_some());
    assert!(sessions.extend(key, Instant::now(), after(7)));
    assert_eq!(over.await.unwrap().state, SessionState::Lost);
    assert_eq!(began.elapsed(), Duration::from_secs(7), "who waited for the end has heard of the deadline");
}

#[tokio::test(start_paused = true)]
async fn a_first_node_that_comes_too_late_ends_the_session() {
    let (sessions, key) = begun();
    assert!(sessions.rest(key));
    advance(Duration::from_secs(60)).await;
    let late = sessions.insert_own(key, &node_id(), Instant::now());
    assert_eq!(late.err(), Some(Interrupted::SessionLost));
    assert!(!sessions.is_live(key) && sessions.own().is_empty());
    assert!(!sessions.rest(key));
    sessions.active(key).await;
    // A proof of an epoch that is over does not add a node to the next one.
    sessions.begin(SessionId::new(8), after(10), |_| ());
    assert!(sessions.insert_own(key, &node_id(), after(60)).is_err());
    assert!(sessions.own().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_session_at_rest_ends_when_it_is_given_up() {
    for (refused, state) in
        [(false, SessionState::Lost), (true, SessionState::Closed(CloseReason::AuthFailed))]
    {
        let (sessions, key) = begun();
        sessions.give_up(key);
        assert!(sessions.is_live(key) && sessions.rest(key), "it has a deadline to end by");
        sessions.set_refused(key, refused);
        sessions.give_up(key);
        assert_eq!(sessions.session().state, state);
    }
}

#[tokio::test(start_paused = true)]
async fn each_failed_attempt_is_seen_by_who_waits() {
    let sessions = Sessions::<()>::new("refused");
    let seen = Mutex::new(Vec::new());
    let waiting = || seen.lock().push(sessions.last_attempt().map(|e| e.to_string()));
    let attempts = async {
        for _ in 0..2 {
            tokio::task::yield_now().await;
            sessions.attempt_failed(Error::new(ErrorKind::Unavailable, "connect"));
        }
    };
    let (waited, ()) = tokio::join!(sessions.wait(after(1), waiting), attempts);
    assert_eq!(waited, Err(Interrupted::TimedOut));
    let failed = Some("connect: no server available".to_owned());
    assert_eq!(*seen.lock(), [None, failed.clone(), failed]);
    sessions.begin(ID, after(10), |_| ());
    assert!(sessions.last_attempt().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_stops_what_runs_in_it() {
    let (sessions, key) = begun();
    let ended = sessions.ended(key);
    let end = async {
        tokio::task::yield_now().await;
        assert!(sessions.end(key).is_some());
    };
    let (run, ()) = tokio::join!(sessions.run_until_ended(key, after(60), pending::<()>()), end);
    assert_eq!(run, Err(Interrupted::SessionLost));
    ended.await;
    sessions.ended(key).await;
    assert!(sessions.get(key).is_none() && sessions.is_past(ID) && !sessions.is_live(key));
    let run = sessions.run_until_ended(key, after(60), async { unreachable!() });
    assert_eq!(run.await, Err::<(), _>(Interrupted::SessionLost));
    // Late news of an old session does not affect the next one.
    let (next, _) = sessions.begin(SessionId::new(8), after(10), |_| ()).unwrap();
    assert!(sessions.end(key).is_none() && sessions.is_live(next) && sessions.get(next).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_future_that_completes_counts_also_at_the_deadline() {
    let (sessions, key) = begun();
    assert_eq!(sessions.run_until_ended(key, Instant::now(), ready(1)).await, Ok(1));
    let run = sessions.run_until_ended(key, after(1), pending::<()>());
    assert_eq!(run.await, Err(Interrupted::TimedOut));
}

#[tokio::test(start_paused = true)]
async fn nothing_begins_after_the_close() {
    let (sessions, key) = begun();
    let (slept, closed) = tokio::join!(sessions.sleep_until(after(60)), async {
        tokio::task::yield_now().await;
        sessions.close(CloseReason::AuthFailed)
    });
    assert_eq!(slept, Err(Interrupted::AuthFailed("refused")));
    assert!(closed.is_some() && sessions.close(CloseReason::Requested).is_none());
    assert!(sessions.begin(ID, after(10), |_| ()).is_none() && sessions.end(key).is_none());
    assert_eq!(sessions.wait(after(1), || ()).await, Err(Interrupted::AuthFailed("refused")));
    assert_eq!(sessions.interrupted(), Interrupted::AuthFailed("refused"));
}

#[test]
fn past_sessions_are_forgotten_after_a_thousand() {
    let sessions = Sessions::<()>::new("refused");
    for number in 1..=1001 {
        sessions.end(SessionKey { epoch: number, id: SessionId::new(number) });
    }
    assert!(!sessions.is_past(SessionId::new(1)) && sessions.is_past(SessionId::new(2)));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_turns_it_lost_for_good() {
    let sessions = Sessions::<()>::new("refused");
    let mut events = sessions.events();
    let key = sessions.establish(ID, after(10)).unwrap();
    assert_eq!(events.changed().await.state, SessionState::Connected);
    advance(Duration::from_secs(9)).await;
    assert!(sessions.extend(key, Instant::now(), after(10)));
    let began = Instant::now();
    assert_eq!(events.changed().await.state, SessionState::Lost);
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    assert!(!sessions.extend(key, Instant::now(), after(10)), "a late heartbeat cannot take it back");
    assert!(!sessions.resume(key));
    assert!(!events.is_live(key.epoch));
}

#[tokio::test(start_paused = true)]
async fn slack_is_the_time_to_the_deadline() {
    let sessions = Sessions::<()>::new("refused");
    let key = sessions.establish(ID, after(10)).unwrap();
    advance(Duration::from_secs(4)).await;
    assert_eq!(sessions.session().slack(), Some(Duration::from_secs(6)));
    assert!(sessions.rest(key));
    assert_eq!(sessions.session().slack(), None);
    let _deletion = sessions.insert_own(key, &node_id(), after(2)).unwrap();
    advance(Duration::from_secs(2)).await;
    assert_eq!(sessions.session().slack(), Some(Duration::ZERO));
    sessions.establish(ID, after(10));
    sessions.close(CloseReason::Requested);
    assert_eq!(sessions.session().slack(), Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_brought_forward_and_never_back() {
    let sessions = Sessions::<()>::new("refused");
    let key = sessions.establish(ID, after(10)).unwrap();
    let mut events = sessions.events();
    let began = Instant::now();
    let (over, ()) = tokio::join!(events.ended(key.epoch), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(sessions.limit(key, after(3)));
        assert!(sessions.limit(key, after(5)));
    });
    assert_eq!((over.state, began.elapsed()), (SessionState::Lost, Duration::from_secs(4)));
    let next = sessions.establish(ID, after(10)).unwrap();
    assert!(!sessions.limit(key, after(1)));
    assert!(!sessions.limit(next, Instant::now()));
    assert_eq!(sessions.session().state, SessionState::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_late_heartbeat_does_not_save_it_even_if_nobody_looked() {
    let sessions = Sessions::<()>::new("refused");
    let key = sessions.establish(ID, after(10)).unwrap();
    advance(Duration::from_secs(10)).await;
    assert!(!sessions.extend(key, Instant::now(), after(10)));
    assert_eq!(sessions.session().state, SessionState::Lost);
}

#[tokio::test(start_paused = true)]
async fn news_of_an_old_epoch_is_ignored() {
    let sessions = Sessions::<()>::new("refused");
    let old = sessions.establish(ID, after(10)).unwrap();
    let new = sessions.establish(SessionId::new(8), after(10)).unwrap();
    sessions.lose(old);
    sessions.suspend(old);
    assert!(!sessions.extend(old, Instant::now(), after(60)));
    let session = sessions.session();
    assert_eq!((session.epoch, session.state), (new.epoch, SessionState::Connected));
}

/// Found by the simulation: two runs with the same seed differed.
#[tokio::test(start_paused = true)]
async fn those_who_wait_wake_in_their_order() {
    let sessions = Sessions::<()>::new("refused");
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for i in 0..20 {
        let (mut events, tell) = (sessions.events(), tell.clone());
        tokio::spawn(async move {
            events.changed().await;
            tell.send(i).unwrap();
        });
    }
    tokio::task::yield_now().await;
    sessions.establish(ID, after(10));
    for i in 0..20 {
        assert_eq!(told.recv().await, Some(i));
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_refused_to_its_end_is_the_last() {
    let closed = SessionState::Closed(CloseReason::AuthFailed);
    for (refused, state) in [(false, SessionState::Lost), (true, closed)] {
        let sessions = Sessions::<()>::new("refused");
        let key = sessions.establish(ID, after(10)).unwrap();
        let mut events = sessions.events();
        // Records for another epoch do not count, and neither does a refusal that was withdrawn.
        sessions.set_refused(SessionKey { epoch: key.epoch + 1, ..key }, true);
        sessions.set_refused(key, true);
        sessions.set_refused(key, refused);
        assert_eq!(sessions.session().state, SessionState::Connected);
        assert_eq!(events.ended(key.epoch).await.state, state);
        assert_eq!(sessions.establish(ID, after(10)).is_none(), refused);
    }
}

#[tokio::test(start_paused = true)]
async fn closed_is_final() {
    let sessions = Sessions::<()>::new("refused");
    sessions.establish(ID, after(10));
    sessions.close(CloseReason::AuthFailed);
    sessions.close(CloseReason::Requested);
    assert!(sessions.establish(ID, after(10)).is_none());
    assert_eq!(sessions.session().state, SessionState::Closed(CloseReason::AuthFailed));
}
