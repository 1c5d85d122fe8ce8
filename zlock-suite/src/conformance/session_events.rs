//! `session_events`.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock_core::{Close, ErrorKind, Label, SessionListener, SessionState, Target};

use crate::Case;
use crate::case::MOMENT;

/// The next state that is not `Suspended`: an outage may be seen or not.
async fn next_settled(listener: &mut SessionListener) -> (u64, SessionState) {
    loop {
        let session = listener.next().await.expect("closed by itself");
        if session.state != SessionState::Suspended {
            return (session.epoch, session.state);
        }
    }
}

/// A session that ended is `Lost`, then `Connected` in the next epoch.
pub async fn ended_session_is_lost_then_connected(case: &Case<'_>) {
    let a = case.connect().await;
    let mut listener = a.session_events().listen();
    let mut session = case.connected(&a, 1).await;
    assert_eq!(next_settled(&mut listener).await, (session.epoch, SessionState::Connected));
    for _ in 0..2 {
        case.store.expire(&a).await;
        assert_eq!(next_settled(&mut listener).await, (session.epoch, SessionState::Lost));
        let next = case.connected(&a, session.epoch + 1).await;
        assert_eq!(next_settled(&mut listener).await, (session.epoch + 1, SessionState::Connected));
        assert_ne!(next.id, session.id);
        session = next;
    }
}

/// Cases that need [`Store::links`](crate::Store::links).
pub mod links {
    use super::*;

    /// The deadline is never later than the instant at which the store ends the session.
    pub async fn deadline_is_before_the_end(case: &Case<'_>) {
        const CLIENTS: u32 = 5;
        let path = case.path("lock");
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let client = case.connect().await;
            let created = case.create(&client, &path, Label::Lock).await;
            case.links().freeze(&client).await;
            clients.push((client, created));
            // At different moments of their heartbeats.
            sleep(case.store.session_timeout() / CLIENTS).await;
        }
        let mut waiting: Vec<_> = clients.iter().collect();
        while !waiting.is_empty() {
            let names = case.store.names(&path).await;
            // The read at the server comes before the read of the clock: if the node was gone by then and the client still
            // considers it live, the deadline was too late.
            waiting.retain(|(client, created)| {
                let is_live = client.session_events().is_live(created.epoch);
                let is_there = names.iter().any(|name| name == created.node.name.as_str());
                assert!(
                    is_there || !is_live,
                    "the server has ended a session that its client takes for live"
                );
                is_live
            });
            sleep(Duration::from_millis(5)).await;
        }
        for (client, created) in &clients {
            case.links().heal(client).await;
            case.connected(client, created.epoch + 1).await;
        }
        case.until_has(&path, &[]).await;
    }

    /// There is a deadline from the response to a create until the delete of the session's last node begins.
    pub async fn deadline_while_it_owns_a_node(case: &Case<'_>) {
        let (a, path, timeout) = (case.connect().await, case.path("lock"), case.store.session_timeout());
        let session = || a.session_events().current();
        for _ in 0..2 {
            let created = case.create(&a, &path, Label::Lock).await;
            let made = session();
            let deadline = made.deadline.expect("it owns a node");
            assert!(deadline > Instant::now() && deadline <= Instant::now() + timeout, "{made:?}");
            sleep(timeout).await;
            assert!(session().deadline > Some(deadline), "it has moved on");
            assert_eq!((session().epoch, session().id, created.epoch), (1, made.id, 1));
            a.delete(&path, &Target::Node(created.node), None).await.unwrap();
            sleep(2 * timeout).await;
        }
    }

    /// An outage shorter than the session is `Suspended`, then `Connected` in the same epoch.
    pub async fn short_outage_keeps_the_epoch(case: &Case<'_>) {
        let (a, path) = (case.connect().await, case.path("lock"));
        let created = case.create(&a, &path, Label::Lock).await;
        let mut events = a.session_events();
        for _ in 0..2 {
            case.links().cut(&a).await;
            while events.current().state != SessionState::Suspended {
                let session = events.changed().await;
                assert!(session.is_live(), "{session:?}");
            }
            sleep(case.store.session_timeout() / 10).await;
            case.links().heal(&a).await;
            let session = case.connected(&a, 1).await;
            assert_eq!((session.epoch, Some(session.id)), (created.epoch, created.node.session));
            assert!(case.has(&path, &[&created.node]).await);
        }
        assert!(a.children(&path, None).await.unwrap().find(&created.node.id).is_some());
        assert!(!created.deletion.is_deleted());
    }

    /// A session that ended is `Lost`, then `Connected` in the next epoch.
    pub async fn long_outage_is_a_new_epoch(case: &Case<'_>) {
        let (a, path) = (case.connect().await, case.path("lock"));
        let created = case.create(&a, &path, Label::Lock).await;
        let mut listener = a.session_events().listen();
        assert_eq!(next_settled(&mut listener).await, (created.epoch, SessionState::Connected));
        case.links().cut(&a).await;
        assert_eq!(next_settled(&mut listener).await, (created.epoch, SessionState::Lost));
        case.until_has(&path, &[]).await;
        case.links().heal(&a).await;
        assert_eq!(next_settled(&mut listener).await, (created.epoch + 1, SessionState::Connected));
        let next = case.create(&a, &path, Label::Lock).await;
        assert_eq!(next.epoch, created.epoch + 1);
    }

    /// Before the first session it is `Lost` in epoch 0, and operations wait for the session within their budget.
    pub async fn first_session_is_waited_for(case: &Case<'_>) {
        let (a, path) = (case.connect_cut().await, case.path("lock"));
        let mut listener = a.session_events().listen();
        assert_eq!(next_settled(&mut listener).await, (0, SessionState::Lost));
        let error = a.children(&path, None).await.unwrap_err();
        assert_eq!((error.kind(), error.is_ambiguous()), (ErrorKind::Unavailable, false), "{error}");
        let session = a.session_events().current();
        assert_eq!((session.epoch, session.state, session.deadline), (0, SessionState::Lost, None));
        let (created, ()) = tokio::join!(case.create(&a, &path, Label::Lock), async {
            sleep(MOMENT).await;
            case.links().heal(&a).await;
        });
        assert_eq!(created.epoch, 1);
        assert_eq!(next_settled(&mut listener).await, (1, SessionState::Connected));
        assert!(case.has(&path, &[&created.node]).await);
        // A backend that is closed before it had a session has nothing to end.
        let b = case.connect_cut().await;
        assert_eq!(b.close().await.unwrap(), Close::Ended);
        let error = b.children(&path, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
}
