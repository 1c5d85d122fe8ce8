//! `children_with_watch`.

use zlock_core::{Label, Target};

use crate::Case;

/// No change between the response and the watch is lost.
pub async fn fires_on_any_change(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let (queue, watch) = b.children_with_watch(&path).await.unwrap();
    assert!(queue.is_empty());
    let created = case.create(&a, &path, Label::Write).await;
    watch.await;

    let (queue, watch) = b.children_with_watch(&path).await.unwrap();
    assert!(queue.find(&created.node.id).is_some());
    let relabelled = a.relabel(&path, &created.node, Label::Read).await.unwrap();
    watch.await;

    let (queue, watch) = b.children_with_watch(&path).await.unwrap();
    assert_eq!(queue.find(&created.node.id).unwrap().label, Label::Read);
    a.delete(&path, &Target::Node(relabelled), None).await.unwrap();
    watch.await;
}

/// No change between the response and the watch is lost.
pub async fn no_change_is_lost(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    for _ in 0..30 {
        let (created, looked) =
            tokio::join!(case.create(&a, &path, Label::Lock), b.children_with_watch(&path));
        let (queue, watch) = looked.unwrap();
        if queue.find(&created.node.id).is_none() {
            watch.await;
        }
        let target = Target::Node(created.node.clone());
        let (deleted, looked) = tokio::join!(a.delete(&path, &target, None), b.children_with_watch(&path));
        deleted.unwrap();
        let (queue, watch) = looked.unwrap();
        if queue.find(&created.node.id).is_some() {
            watch.await;
        }
    }
}

/// A missing parent can be watched.
pub async fn works_on_a_missing_parent(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("one/two"));
    for _ in 0..2 {
        let (queue, watch) = b.children_with_watch(&path).await.unwrap();
        assert!(queue.is_empty());
        let (created, mut event) = tokio::join!(case.create(&a, &path, Label::Lock), async {
            watch.await;
            b.children_with_watch(&path).await.unwrap()
        });
        // The first event may be that of the parent.
        while event.0.find(&created.node.id).is_none() {
            event.1.await;
            event = b.children_with_watch(&path).await.unwrap();
        }
        drop(event);
        a.delete(&path, &Target::Node(created.node), None).await.unwrap();
        for parent in [&path, &path.parent().unwrap()] {
            case.store.remove_parent(parent).await;
        }
    }
}

/// Cases that need [`Store::watches`](crate::Store::watches).
pub mod watches {
    use super::*;

    /// A dropped watch is removed from the server.
    pub async fn dropped_watch_leaves_none(case: &Case<'_>) {
        let (a, path) = (case.connect().await, case.path("lock"));
        for made in [false, true] {
            if made {
                case.create(&a, &path, Label::Lock).await;
            }
            let (_, watch) = a.children_with_watch(&path).await.unwrap();
            assert!(case.watches().await > 0, "no watch is counted on a parent that is there: {made}");
            drop(watch);
            case.until("no watch", async || case.watches().await == 0).await;
        }
    }
}
