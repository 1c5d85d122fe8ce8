//! `write_data`.

use tokio::time::{sleep, timeout};
use zlock_core::{ErrorKind, Existence, Label, Target, WatchEvent};

use crate::Case;
use crate::case::{MOMENT, TOO_MUCH};

/// More than 1,000,000 bytes of data are refused with `InvalidArgument`.
pub async fn too_much_data_is_refused(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let node = case.create(&a, &path, Label::Lock).await.node;
    a.write_data(&path, &node, None, b"before").await.unwrap();
    let refused = a.write_data(&path, &node, None, &[7; TOO_MUCH]).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(case.data(&a, &path, &node).await.as_deref(), Some(&b"before"[..]));
}

/// Any session may write.
pub async fn any_session_may(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let created = case.create(&a, &path, Label::Write).await.node;
    let listed = b.children(&path, None).await.unwrap().find(&created.id).cloned().unwrap();
    let every_byte: Vec<u8> = (0..=255).collect();
    for (backend, data) in [(&b, &b"__REVOKE__"[..]), (&a, b""), (&b, &every_byte), (&b, &[7; 4096])] {
        backend.write_data(&path, &listed, None, data).await.unwrap();
        for reader in [&a, &b] {
            assert_eq!(case.data(reader, &path, &created).await.as_deref(), Some(data));
        }
    }
}

/// The label, the place and the session do not change, and the node's deletion notice does not fire.
pub async fn label_place_and_session_stay(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let first = case.create(&b, &path, Label::Write).await.node;
    let created = case.create(&a, &path, Label::Write).await;
    let last = case.create(&b, &path, Label::Write).await.node;
    let before = a.children(&path, None).await.unwrap();
    for backend in [&b, &a] {
        backend.write_data(&path, &created.node, None, b"new").await.unwrap();
        assert_eq!(a.children(&path, None).await.unwrap(), before);
    }
    // Long enough for a heartbeat.
    sleep(case.store.session_timeout() / 3).await;
    assert!(!created.deletion.is_deleted());
    case.store.expire(&a).await;
    case.until_has(&path, &[&first, &last]).await;
}

/// If the node no longer exists, the error is `NodeDeleted` and nothing is created.
pub async fn gone_node_is_node_removed(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    for label in [Label::Lock, Label::Write, Label::Read] {
        let node = case.create(&a, &path, label).await.node;
        a.delete(&path, &Target::Node(node.clone()), None).await.unwrap();
        for _ in 0..2 {
            for backend in [&a, &b] {
                let error = backend.write_data(&path, &node, None, b"new").await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NodeDeleted, "{error}");
                assert!(case.has(&path, &[]).await);
            }
            case.store.remove_parent(&path).await;
        }
    }
}

/// A concurrent write and relabel both take effect.
pub async fn with_a_relabel_both_take_effect(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let mut node = case.create(&a, &path, Label::Write).await.node;
    for i in 0..30_u8 {
        let label = if i % 2 == 0 { Label::Read } else { Label::Write };
        let data = [i, 7];
        let (relabelled, written) =
            tokio::join!(a.relabel(&path, &node, label), b.write_data(&path, &node, None, &data));
        written.unwrap();
        node = relabelled.unwrap();
        assert!(case.has(&path, &[&node]).await);
        assert_eq!(case.data(&a, &path, &node).await.as_deref(), Some(&data[..]));
    }
    // One after the other, too.
    b.write_data(&path, &node, None, b"before").await.unwrap();
    let node = a.relabel(&path, &node, Label::Read).await.unwrap();
    assert_eq!(case.data(&b, &path, &node).await.as_deref(), Some(&b"before"[..]));
}

/// A watch of `exists_with_watch` may fire, but not with `Deleted`.
pub async fn is_no_deletion_for_a_watch(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    for label in [Label::Lock, Label::Write] {
        let node = case.create(&a, &path, label).await.node;
        let Existence::Watching(mut watch) = b.exists_with_watch(&path, &node).await.unwrap() else {
            panic!("gone");
        };
        a.write_data(&path, &node, None, b"new").await.unwrap();
        if let Ok(event) = timeout(MOMENT, &mut watch).await {
            assert_ne!(event, WatchEvent::Deleted);
            continue;
        }
        a.delete(&path, &Target::Node(node), None).await.unwrap();
        watch.await;
    }
}

/// Cases that need [`Store::links`](crate::Store::links).
pub mod links {
    use super::*;

    /// Calling it again is harmless.
    pub async fn lost_answer_is_made_up_for(case: &Case<'_>) {
        let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
        let node = case.create(&a, &path, Label::Write).await.node;
        case.links().mute(&b).await;
        let lose_it = async {
            let written = async || case.data(&a, &path, &node).await.as_deref() == Some(b"new");
            case.until("the write takes effect", written).await;
            case.links().heal(&b).await;
        };
        let (written, ()) = tokio::join!(b.write_data(&path, &node, None, b"new"), lose_it);
        written.unwrap();
        assert_eq!(case.data(&a, &path, &node).await.as_deref(), Some(&b"new"[..]));
        assert!(case.has(&path, &[&node]).await);
    }
}
