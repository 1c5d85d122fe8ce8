//! `head_with_watch`.

use tokio::time::timeout;
use zlock_core::{Head, Label, LockPath, Target, Watch};

use crate::case::MOMENT;
use crate::{Case, Connection};

async fn look(backend: &Connection, path: &LockPath) -> (Option<Head>, Watch) {
    backend.head_with_watch(path).await.expect("head_with_watch")
}

/// The head is the first node of the queue, with its data byte for byte.
pub async fn head_is_the_first_with_its_data(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("election"));
    case.put(&path, "foreign").await;
    let first = case.create(&a, &path, Label::Candidate).await.node;
    let second = case.create(&b, &path, Label::Candidate).await.node;
    for reader in [&a, &b] {
        let (head, _watch) = look(reader, &path).await;
        let head = head.unwrap();
        assert_eq!((&head.node.name, Some(head.fencing_token)), (&first.name, first.fencing_token));
        assert_eq!(head.data, b"data");
    }
    a.delete(&path, &Target::Node(first), None).await.unwrap();
    let every_byte: Vec<u8> = (0..=255).collect();
    b.write_data(&path, &second, Some(0), &every_byte).await.unwrap();
    let head = look(&a, &path).await.0.unwrap();
    assert_eq!((head.node.name, head.data), (second.name, every_byte));
}

/// No change of the head or its data between the response and the watch is lost.
pub async fn no_change_is_lost(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("election"));
    for n in 0..15 {
        let node = case.create(&a, &path, Label::Candidate).await.node;
        let (written, (head, watch)) =
            tokio::join!(a.write_data(&path, &node, Some(0), b"new"), look(&b, &path));
        written.unwrap();
        if head.is_none_or(|head| head.data != b"new") {
            let fired = timeout(case.store.session_timeout(), watch).await;
            assert!(fired.is_ok(), "write {n} was neither read nor reported");
        }
        let target = Target::Node(node);
        let (deleted, (head, watch)) = tokio::join!(a.delete(&path, &target, None), look(&b, &path));
        deleted.unwrap();
        if head.is_some() {
            let fired = timeout(case.store.session_timeout(), watch).await;
            assert!(fired.is_ok(), "deletion {n} was neither read nor reported");
        }
    }
}

/// A missing parent has no head, and can be watched.
pub async fn missing_parent_can_be_watched(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("election"));
    let (head, watch) = look(&b, &path).await;
    assert_eq!(head, None);
    let node = case.create(&a, &path, Label::Candidate).await.node;
    watch.await;
    let (head, watch) = look(&b, &path).await;
    assert_eq!(head.unwrap().node.name, node.name);
    a.delete(&path, &Target::Node(node), None).await.unwrap();
    watch.await;
    let (head, watch) = look(&b, &path).await;
    assert_eq!(head, None);
    case.create(&a, &path, Label::Candidate).await;
    watch.await;
}

/// A node that is created behind the head does not fire the watch.
pub async fn node_behind_fires_nothing(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("election"));
    let first = case.create(&a, &path, Label::Candidate).await.node;
    let (_, mut watch) = look(&b, &path).await;
    let second = case.create(&b, &path, Label::Candidate).await.node;
    b.delete(&path, &Target::Node(second), None).await.unwrap();
    assert!(timeout(MOMENT, &mut watch).await.is_err(), "fired for a node behind the head");
    a.delete(&path, &Target::Node(first), None).await.unwrap();
    watch.await;
}

/// The watch fires, with any event, when its session ends.
pub async fn end_of_its_session_fires(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("election"));
    let (_, empty) = look(&b, &path).await;
    case.store.expire(&b).await;
    empty.await;
    case.create(&a, &path, Label::Candidate).await;
    let (_, full) = look(&b, &path).await;
    case.store.expire(&b).await;
    full.await;
}

/// Cases that need [`Store::watches`](crate::Store::watches).
pub mod watches {
    use super::*;

    /// A dropped watch is removed from the server.
    pub async fn dropped_watch_leaves_none(case: &Case<'_>) {
        let (a, path, empty) = (case.connect().await, case.path("election"), case.path("empty"));
        case.create(&a, &path, Label::Candidate).await;
        let before = case.watches().await;
        let both = (look(&a, &path).await, look(&a, &empty).await);
        assert!(case.watches().await > before);
        drop(both);
        case.until("the watches are removed", async || case.watches().await <= before).await;
    }
}
