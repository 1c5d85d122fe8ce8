//! `data_with_watch`.

use tokio::time::{sleep, timeout};
use zlock_core::{Existence, Label, LockPath, Node, Target, Watch, WatchEvent};

use crate::case::MOMENT;
use crate::{Case, Connection};

/// The data of a node that is there, and the watch.
async fn look(backend: &Connection, path: &LockPath, node: &Node) -> (Vec<u8>, Watch) {
    backend.data_with_watch(path, node).await.unwrap().unwrap_or_else(|| panic!("gone: {node:?}"))
}

/// No write and no deletion between the response and the watch is lost.
pub async fn fires_on_a_write_and_on_the_deletion(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    for label in [Label::Lock, Label::Write] {
        let node = case.create(&a, &path, label).await.node;
        for (before, after) in [(&b"data"[..], &b"one"[..]), (b"one", b""), (b"", b"two")] {
            let (mine, others) = (look(&a, &path, &node).await, look(&b, &path, &node).await);
            assert_eq!((&mine.0[..], &others.0[..]), (before, before));
            b.write_data(&path, &node, None, after).await.unwrap();
            assert_ne!(mine.1.await, WatchEvent::Deleted);
            assert_ne!(others.1.await, WatchEvent::Deleted);
        }
        let (_, watch) = look(&b, &path, &node).await;
        a.delete(&path, &Target::Node(node), None).await.unwrap();
        watch.await;
    }
}

/// No write and no deletion between the response and the watch is lost.
pub async fn no_change_is_lost(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    for _ in 0..30 {
        let node = case.create(&a, &path, Label::Lock).await.node;
        let (written, read) =
            tokio::join!(b.write_data(&path, &node, None, b"new"), a.data_with_watch(&path, &node));
        written.unwrap();
        let (data, watch) = read.unwrap().unwrap();
        if data == b"data" {
            watch.await;
            assert_eq!(look(&a, &path, &node).await.0, b"new");
        }
        let target = Target::Node(node.clone());
        let (deleted, read) = tokio::join!(a.delete(&path, &target, None), b.data_with_watch(&path, &node));
        deleted.unwrap();
        if let Some((_, watch)) = read.unwrap() {
            watch.await;
        }
    }
}

/// On a relabel, the watch fires or follows the node. It never reports the node as `Deleted`.
pub async fn relabel_loses_nothing(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let first = case.create(&a, &path, Label::Write).await.node;
    let (mut node, mut data) = (first.clone(), b"data".to_vec());
    for label in [Label::Read, Label::Write, Label::Read] {
        let (before, mut watch) = look(&b, &path, &first).await;
        assert_eq!(before, data);
        node = a.relabel(&path, &node, label).await.unwrap();
        data.push(b'+');
        match timeout(MOMENT, &mut watch).await {
            Ok(event) => {
                assert_ne!(event, WatchEvent::Deleted);
                b.write_data(&path, &first, None, &data).await.unwrap();
            }
            Err(_) => {
                b.write_data(&path, &first, None, &data).await.unwrap();
                watch.await;
            }
        }
        assert_eq!(look(&a, &path, &first).await.0, data);
    }
    a.delete(&path, &Target::Node(node), None).await.unwrap();
}

/// The watch fires, with any event, when its session ends.
pub async fn fires_when_its_session_ends(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let node = case.create(&a, &path, Label::Lock).await.node;
    let (_, expired) = look(&b, &path, &node).await;
    case.store.expire(&b).await;
    assert_ne!(expired.await, WatchEvent::Deleted);
    let (_, closed) = look(&b, &path, &node).await;
    let (event, ended) = tokio::join!(closed, b.close());
    assert_ne!(event, WatchEvent::Deleted);
    ended.unwrap();
}

/// A dropped watch is removed from the server, and no other watch is removed with it.
pub async fn dropped_watch_leaves_the_others(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    for drop_existence in [false, true] {
        let node = case.create(&a, &path, Label::Lock).await.node;
        let (_, data) = look(&b, &path, &node).await;
        let (_, kept) = look(&b, &path, &node).await;
        let Existence::Watching(existence) = b.exists_with_watch(&path, &node).await.unwrap() else {
            panic!("gone");
        };
        let left = if drop_existence {
            drop((data, existence));
            kept
        } else {
            drop((data, kept));
            existence
        };
        // Time for the server to receive it.
        sleep(MOMENT / 10).await;
        a.delete(&path, &Target::Node(node), None).await.unwrap();
        left.await;
    }
}

/// Cases that need [`Store::watches`](crate::Store::watches).
pub mod watches {
    use super::*;

    /// A dropped watch is removed from the server, and no other watch is removed with it.
    pub async fn dropped_watch_leaves_none(case: &Case<'_>) {
        let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
        let node = case.create(&a, &path, Label::Write).await.node;
        let (first, second) = (look(&b, &path, &node).await, look(&b, &path, &node).await);
        assert!(case.watches().await > 0);
        drop(first);
        let third = look(&b, &path, &node).await;
        drop((second, third));
        case.until("no watch", async || case.watches().await == 0).await;
        a.delete(&path, &Target::Node(node.clone()), None).await.unwrap();
        assert!(b.data_with_watch(&path, &node).await.unwrap().is_none());
        case.until("no watch", async || case.watches().await == 0).await;
    }
}
