//! `write_data` that expects a number of writes.

use std::time::Duration;

use tokio::time::timeout;
use zlock_core::{DataWrite, ErrorKind, Label, LockPath, Node, Target};

use crate::case::TOO_MUCH;
use crate::{Case, Connection};

async fn replace(backend: &Connection, path: &LockPath, node: &Node, writes: u64, data: &[u8]) -> DataWrite {
    backend.write_data(path, node, Some(writes), data).await.expect("write_data")
}

/// More than 1,000,000 bytes of data are refused with `InvalidArgument`.
pub async fn too_much_data_is_refused(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("election"));
    let node = case.create(&a, &path, Label::Candidate).await.node;
    let refused = a.write_data(&path, &node, Some(0), &[7; TOO_MUCH]).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(replace(&a, &path, &node, 0, b"first").await, DataWrite::Written);
}

/// Each write that expects a number has the number after the last one, and the node stays as it is otherwise.
pub async fn writes_are_numbered(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("election"));
    let created = case.create(&a, &path, Label::Candidate).await;
    let behind = case.create(&b, &path, Label::Candidate).await.node;
    let before = b.children(&path, None).await.unwrap();
    let every_byte: Vec<u8> = (0..=255).collect();
    for (n, data) in [&b"one"[..], b"", b"one", &every_byte].into_iter().enumerate() {
        assert_eq!(replace(&a, &path, &created.node, n as u64, data).await, DataWrite::Written);
        for reader in [&a, &b] {
            assert_eq!(case.data(reader, &path, &created.node).await.as_deref(), Some(data));
        }
    }
    assert_eq!(b.children(&path, None).await.unwrap(), before);
    assert!(!created.deletion.is_deleted());
    case.store.expire(&a).await;
    case.until_has(&path, &[&behind]).await;
}

/// If the data was written another number of times than expected, nothing is written, and the result is that number.
pub async fn another_number_is_a_conflict(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("election"));
    let node = case.create(&a, &path, Label::Candidate).await.node;
    assert_eq!(replace(&a, &path, &node, 1, b"early").await, DataWrite::Conflict(0));
    assert_eq!(replace(&a, &path, &node, 0, b"one").await, DataWrite::Written);
    assert_eq!(replace(&a, &path, &node, 0, b"again").await, DataWrite::Conflict(1));
    // The same data is no excuse without a lost response.
    assert_eq!(replace(&a, &path, &node, 0, b"one").await, DataWrite::Conflict(1));
    assert_eq!(case.data(&a, &path, &node).await.as_deref(), Some(&b"one"[..]));
}

/// If the node no longer exists, the error is `NodeDeleted` and nothing is created.
pub async fn gone_node_is_node_deleted(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("election"));
    let node = case.create(&a, &path, Label::Candidate).await.node;
    a.delete(&path, &Target::Node(node.clone()), None).await.unwrap();
    for _ in 0..2 {
        let error = a.write_data(&path, &node, Some(0), b"late").await.unwrap_err();
        assert_eq!((error.kind(), error.is_ambiguous()), (ErrorKind::NodeDeleted, false), "{error}");
        assert!(case.has(&path, &[]).await);
        case.store.remove_parent(&path).await;
    }
}

/// A later node of the same name is another node.
pub async fn later_node_is_another(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("election"));
    let first = case.create(&a, &path, Label::Candidate).await.node;
    a.delete(&path, &Target::Node(first.clone()), None).await.unwrap();
    let second = case.create(&a, &path, Label::Candidate).await.node;
    let error = a.write_data(&path, &first, Some(0), b"late").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NodeDeleted, "{error}");
    assert_eq!(case.data(&a, &path, &second).await.as_deref(), Some(&b"data"[..]));
}

/// Cases that need [`Store::links`](crate::Store::links).
pub mod links {
    use super::*;

    /// A lost response does not change the result.
    pub async fn lost_response_does_not_change_the_result(case: &Case<'_>) {
        let (a, b, path) = (case.connect().await, case.connect().await, case.path("election"));
        let node = case.create(&a, &path, Label::Candidate).await.node;
        case.links().mute(&a).await;
        let heal = async {
            let written = async || case.data(&b, &path, &node).await.as_deref() == Some(b"new");
            case.until("the write takes effect", written).await;
            case.links().heal(&a).await;
        };
        let (written, ()) = tokio::join!(a.write_data(&path, &node, Some(0), b"new"), heal);
        assert_eq!(written.unwrap(), DataWrite::Written);
        assert_eq!(replace(&a, &path, &node, 1, b"newer").await, DataWrite::Written);
    }

    /// A write that expects a number and was dropped does not undo a later one.
    pub async fn dropped_write_does_not_undo_a_later_one(case: &Case<'_>) {
        let (a, b, path) = (case.connect().await, case.connect().await, case.path("election"));
        let node = case.create(&a, &path, Label::Candidate).await.node;
        // The request is on its way when its future is dropped, and arrives after the link is repaired.
        case.links().freeze(&a).await;
        let early = timeout(Duration::from_millis(20), a.write_data(&path, &node, Some(0), b"early")).await;
        assert!(early.is_err(), "answered over a frozen link: {early:?}");
        let heal = async {
            case.links().heal(&a).await;
        };
        let (mut late, ()) = tokio::join!(replace(&a, &path, &node, 0, b"late"), heal);
        if let DataWrite::Conflict(now) = late {
            assert_eq!(now, 1);
            late = replace(&a, &path, &node, now, b"late").await;
        }
        assert_eq!(late, DataWrite::Written);
        // Long enough for a request that was held back.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(case.data(&b, &path, &node).await.as_deref(), Some(&b"late"[..]));
    }
}
