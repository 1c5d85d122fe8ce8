//! `exists_with_watch`.

use zlock_core::{Existence, Label, LockPath, Node, Target, Watch, WatchEvent};

use crate::{Case, Connection};

const WAITING: Label = Label::Permits { weight: 1, max: 3, granted: false };
const GRANTED: Label = Label::Permits { weight: 1, max: 3, granted: true };

/// The watch on a node that is there.
async fn watch(backend: &Connection, path: &LockPath, seen: &Node) -> Watch {
    match backend.exists_with_watch(path, seen).await.unwrap() {
        Existence::Watching(watch) => watch,
        other => panic!("{other:?} of {seen:?}"),
    }
}

/// A node that no longer exists is `Deleted`, and no watch is left.
pub async fn gone_node_is_gone(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    for label in [Label::Lock, Label::Write, Label::Read, WAITING] {
        let created = case.create(&a, &path, label).await;
        a.delete(&path, &Target::Node(created.node.clone()), None).await.unwrap();
        for parent_is_there in [true, false] {
            for backend in [&a, &b] {
                let existence = backend.exists_with_watch(&path, &created.node).await.unwrap();
                assert!(matches!(existence, Existence::Deleted), "{existence:?}, parent {parent_is_there}");
            }
            case.store.remove_parent(&path).await;
        }
    }
}

/// A node whose label differs from that in `seen` is `Changed`, however often it was relabelled in between.
pub async fn other_label_is_changed(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    for (first, second) in [(Label::Write, Label::Read), (WAITING, GRANTED)] {
        let old = case.create(&a, &path, first).await.node;
        let new = a.relabel(&path, &old, second).await.unwrap();
        for backend in [&a, &b] {
            match backend.exists_with_watch(&path, &old).await.unwrap() {
                Existence::Changed(node) => {
                    assert_eq!((&node.id, node.label, &node.name), (&old.id, second, &new.name));
                }
                other => panic!("{other:?}"),
            }
            drop(watch(backend, &path, &new).await);
        }
        let back = a.relabel(&path, &new, first).await.unwrap();
        assert!(matches!(b.exists_with_watch(&path, &new).await.unwrap(), Existence::Changed(_)));
        drop(watch(&b, &path, &back).await);
    }
}

/// No deletion or relabel between the response and the watch is lost.
pub async fn no_deletion_is_lost(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    for _ in 0..30 {
        let node = case.create(&a, &path, Label::Lock).await.node;
        let target = Target::Node(node.clone());
        let (deleted, existence) =
            tokio::join!(a.delete(&path, &target, None), b.exists_with_watch(&path, &node));
        deleted.unwrap();
        match existence.unwrap() {
            Existence::Deleted => {}
            Existence::Watching(watch) => assert_ne!(watch.await, WatchEvent::Relabelled),
            other => panic!("{other:?}"),
        }
    }
}

/// No deletion or relabel between the response and the watch is lost.
pub async fn no_relabel_is_lost(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    for _ in 0..30 {
        let node = case.create(&a, &path, Label::Write).await.node;
        let (relabelled, existence) =
            tokio::join!(a.relabel(&path, &node, Label::Read), b.exists_with_watch(&path, &node));
        match existence.unwrap() {
            Existence::Watching(watch) => assert_ne!(watch.await, WatchEvent::Deleted),
            Existence::Changed(node) => assert_eq!(node.label, Label::Read),
            other => panic!("{other:?}"),
        }
        a.delete(&path, &Target::Node(relabelled.unwrap()), None).await.unwrap();
    }
}

/// A relabel is never reported as `Deleted`.
pub async fn relabel_is_not_a_deletion(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let mut node = case.create(&a, &path, WAITING).await.node;
    for label in [GRANTED, WAITING, GRANTED] {
        let (others, own) = (watch(&b, &path, &node).await, watch(&a, &path, &node).await);
        node = a.relabel(&path, &node, label).await.unwrap();
        assert_ne!(others.await, WatchEvent::Deleted);
        assert_ne!(own.await, WatchEvent::Deleted);
    }
    let others = watch(&b, &path, &node).await;
    a.delete(&path, &Target::Node(node), None).await.unwrap();
    assert_ne!(others.await, WatchEvent::Relabelled);
}

/// The watch fires, with any event, when its session ends.
pub async fn fires_when_its_session_ends(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let node = case.create(&a, &path, Label::Lock).await.node;
    let expired = watch(&b, &path, &node).await;
    case.store.expire(&b).await;
    assert_ne!(expired.await, WatchEvent::Deleted);
    let closed = watch(&b, &path, &node).await;
    let (event, ended) = tokio::join!(closed, b.close());
    assert_ne!(event, WatchEvent::Deleted);
    ended.unwrap();
}

/// Cases that need [`Store::watches`](crate::Store::watches).
pub mod watches {
    use super::*;

    /// A dropped watch is removed from the server.
    pub async fn dropped_watch_leaves_none(case: &Case<'_>) {
        let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
        let node = case.create(&a, &path, Label::Lock).await.node;
        let (first, second) = (watch(&b, &path, &node).await, watch(&b, &path, &node).await);
        assert!(case.watches().await > 0);
        drop(first);
        let third = watch(&b, &path, &node).await;
        drop((second, third));
        case.until("no watch", async || case.watches().await == 0).await;
    }

    /// A node that no longer exists is `Deleted`, and no watch is left.
    pub async fn gone_and_changed_leave_no_watch(case: &Case<'_>) {
        let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
        let old = case.create(&a, &path, Label::Write).await.node;
        let new = a.relabel(&path, &old, Label::Read).await.unwrap();
        assert!(matches!(b.exists_with_watch(&path, &old).await.unwrap(), Existence::Changed(_)));
        a.delete(&path, &Target::Node(new.clone()), None).await.unwrap();
        assert!(matches!(b.exists_with_watch(&path, &new).await.unwrap(), Existence::Deleted));
        case.until("no watch", async || case.watches().await == 0).await;
    }
}
