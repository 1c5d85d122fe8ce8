//! `close`, and dropping the last handle.

use tokio::time::{Instant, sleep};
use zlock_core::{
    Close, CloseReason, ErrorKind, Existence, Label, LockPath, Needs, Node, Result, SessionState, Target,
};

use crate::case::{MOMENT, timed};
use crate::{Case, Connection};

fn is_closed<T: std::fmt::Debug>(result: Result<T>) {
    match result {
        Err(error) if error.kind() == ErrorKind::Closed => {}
        other => panic!("not the error `Closed`: {other:?}"),
    }
}

async fn all_end_with_closed(case: &Case<'_>, backend: &Connection, path: &LockPath, node: &Node) {
    let node_id = case.node_id();
    tokio::join!(
        async {
            is_closed(
                backend.create_ephemeral_sequential(path, Label::Lock, &node_id, b"", Needs::Queue).await,
            )
        },
        async { is_closed(backend.children(path, None).await) },
        async { is_closed(backend.children_with_watch(path).await) },
        async { is_closed(backend.exists_with_watch(path, node).await) },
        async { is_closed(backend.relabel(path, node, Label::Read).await) },
        async { is_closed(backend.delete(path, &Target::Node(node.clone()), None).await) },
        async { is_closed(backend.data(path, node).await) },
        async { is_closed(backend.data_with_watch(path, node).await) },
        async { is_closed(backend.write_data(path, node, None, b"new").await) },
    );
}

/// Every operation that is waiting or called later fails with `Closed`.
pub async fn later_operations_end_with_closed(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let node = case.create(&a, &path, Label::Write).await.node;
    a.close().await.unwrap();
    assert_eq!(a.session_events().current().state, SessionState::Closed(CloseReason::Requested));
    all_end_with_closed(case, &a, &path, &node).await;
}

/// If the store can be reached, the session's nodes are deleted when this returns [`Close::Ended`].
pub async fn nodes_are_gone_at_once(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    case.create(&a, &path, Label::Lock).await;
    let node = case.create(&b, &path, Label::Lock).await.node;
    assert_eq!(a.close().await.unwrap(), Close::Ended);
    assert!(case.has(&path, &[&node]).await);
}

/// Dropping the last handle does it too.
pub async fn dropping_does_it_too(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    case.create(&a, &path, Label::Lock).await;
    let node = case.create(&b, &path, Label::Lock).await.node;
    let began = Instant::now();
    let mut events = a.session_events();
    drop(a);
    assert!(matches!(events.changed().await.state, SessionState::Closed(_)));
    case.until_has(&path, &[&node]).await;
    assert!(began.elapsed() < case.store.session_timeout() / 2, "it was left to expire");
}

/// Every operation that is waiting or called later fails with `Closed`.
pub async fn watches_fire(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let node = case.create(&a, &path, Label::Lock).await.node;
    let Existence::Watching(on_node) = b.exists_with_watch(&path, &node).await.unwrap() else {
        panic!("not watching {node:?}");
    };
    let (_, on_queue) = b.children_with_watch(&path).await.unwrap();
    let (_, _, closed) = tokio::join!(on_node, on_queue, b.close());
    closed.unwrap();
}

/// Calling it again is harmless. Once it has returned `Ended`, it always does.
pub async fn repeating_is_harmless(case: &Case<'_>) {
    let (a, b) = (case.connect().await, case.connect().await);
    for _ in 0..3 {
        assert_eq!(a.close().await.unwrap(), Close::Ended);
    }
    let (first, second) = tokio::join!(b.close(), b.close());
    assert_eq!((first.unwrap(), second.unwrap()), (Close::Ended, Close::Ended));
}

/// Cases that need [`Store::links`](crate::Store::links).
pub mod links {
    use super::*;

    /// Every operation that is waiting or called later fails with `Closed`.
    pub async fn waiting_operations_end_with_closed(case: &Case<'_>) {
        for silent in [false, true] {
            let (a, path) = (case.connect().await, case.path("lock"));
            let node = case.create(&a, &path, Label::Write).await.node;
            if silent {
                case.links().freeze(&a).await;
            } else {
                case.links().cut(&a).await;
            }
            tokio::join!(all_end_with_closed(case, &a, &path, &node), async {
                sleep(MOMENT).await;
                a.close().await.unwrap();
            });
            case.links().heal(&a).await;
            case.until_has(&path, &[]).await;
        }
    }

    /// If the store cannot be reached or does not answer within two seconds, this returns [`Close::Pending`], and the nodes are
    /// deleted when the session expires.
    pub async fn nodes_of_an_unreachable_client_expire(case: &Case<'_>) {
        let (a, path) = (case.connect().await, case.path("lock"));
        case.create(&a, &path, Label::Lock).await;
        case.links().cut(&a).await;
        assert_eq!(a.close().await.unwrap(), Close::Pending);
        case.until_has(&path, &[]).await;
    }

    /// If the store cannot be reached or does not answer within two seconds, this returns [`Close::Pending`], and the nodes are
    /// deleted when the session expires.
    pub async fn silence_is_no_confirmation(case: &Case<'_>) {
        for requests_arrive in [false, true] {
            let (a, path) = (case.connect().await, case.path("lock"));
            case.create(&a, &path, Label::Lock).await;
            if requests_arrive {
                case.links().mute(&a).await;
            } else {
                case.links().freeze(&a).await;
            }
            let began = Instant::now();
            let (closed, took) = match case.paused {
                true => (a.close().await, began.elapsed()),
                false => timed(a.close()).await,
            };
            assert_eq!(closed.unwrap(), Close::Pending);
            assert!((2000..2020).contains(&took.as_millis()), "{took:?}");
            case.until_has(&path, &[]).await;
            case.links().heal(&a).await;
        }
    }

    /// Calling it again is harmless. Once it has returned `Ended`, it always does.
    pub async fn an_end_is_remembered(case: &Case<'_>) {
        let a = case.connect().await;
        assert_eq!(a.close().await.unwrap(), Close::Ended);
        case.links().cut(&a).await;
        assert_eq!(a.close().await.unwrap(), Close::Ended);
        case.links().heal(&a).await;
    }
}
