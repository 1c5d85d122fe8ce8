//! `relabel`.

use tokio::time::sleep;
use zlock_core::{ErrorKind, Label, Target};

use crate::Case;

/// The place, the ID and the session do not change.
pub async fn place_token_and_session_stay(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let first = case.create(&b, &path, Label::Write).await.node;
    let old = case.create(&a, &path, Label::Write).await.node;
    let last = case.create(&b, &path, Label::Write).await.node;
    let new = a.relabel(&path, &old, Label::Read).await.unwrap();
    assert_eq!(
        (&new.id, new.label, new.sequence, new.session, new.fencing_token),
        (&old.id, Label::Read, old.sequence, old.session, old.fencing_token)
    );
    let queue = b.children(&path, None).await.unwrap();
    let places: Vec<_> = queue.iter().map(|n| (&n.id, n.label)).collect();
    assert_eq!(places, [(&first.id, Label::Write), (&new.id, Label::Read), (&last.id, Label::Write)]);
    assert_eq!(queue[1].sequence, old.sequence);
    case.store.expire(&a).await;
    case.until_has(&path, &[&first, &last]).await;
}

/// Calling it again is harmless.
pub async fn repeating_is_harmless(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let old = case.create(&a, &path, Label::Write).await.node;
    let new = a.relabel(&path, &old, Label::Read).await.unwrap();
    for node in [&old, &new] {
        assert_eq!(a.relabel(&path, node, Label::Read).await.unwrap(), new);
        assert!(case.has(&path, &[&new]).await);
    }
}

/// The error is `NodeDeleted` if the node no longer exists, and `SessionLost` if its session is over.
pub async fn gone_node_is_node_removed(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let node = case.create(&a, &path, Label::Write).await.node;
    case.store.remove(&path, node.name.as_str()).await;
    let error = a.relabel(&path, &node, Label::Read).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NodeDeleted, "{error}");
    assert!(case.has(&path, &[]).await);
}

/// The error is `NodeDeleted` if the node no longer exists, and `SessionLost` if its session is over.
pub async fn node_of_a_lost_session_is_session_lost(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let created = case.create(&a, &path, Label::Write).await;
    case.store.expire(&a).await;
    a.session_events().ended(created.epoch).await;
    for _ in 0..2 {
        let error = a.relabel(&path, &created.node, Label::Read).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SessionLost, "{error}");
        case.connected(&a, created.epoch + 1).await;
    }
    assert!(case.has(&path, &[]).await);
}

/// The node's own deletion notice does not fire.
pub async fn own_notice_stays_silent(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let mut created = case.create(&a, &path, Label::Write).await;
    let mut node = created.node.clone();
    for label in [Label::Read, Label::Write].into_iter().cycle().take(21) {
        node = a.relabel(&path, &node, label).await.unwrap();
        sleep(case.store.session_timeout() / 10).await;
        assert!(!created.deletion.is_deleted());
    }
    case.store.remove(&path, node.name.as_str()).await;
    created.deletion.deleted().await;
}

/// Cases that need [`Store::links`](crate::Store::links).
pub mod links {
    use super::*;

    /// Calling it again is harmless.
    pub async fn lost_answer_is_made_up_for(case: &Case<'_>) {
        let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
        let created = case.create(&a, &path, Label::Write).await;
        case.links().mute(&a).await;
        let lose_it = async {
            case.until("the relabel takes effect", async || {
                let queue = b.children(&path, None).await.unwrap();
                queue.find(&created.node.id).is_some_and(|node| node.label == Label::Read)
            })
            .await;
            case.links().heal(&a).await;
        };
        let (relabelled, ()) = tokio::join!(a.relabel(&path, &created.node, Label::Read), lose_it);
        let relabelled = relabelled.unwrap();
        assert!(case.has(&path, &[&relabelled]).await);
        assert!(!created.deletion.is_deleted());
        a.delete(&path, &Target::Node(created.node), None).await.unwrap();
        assert!(case.has(&path, &[]).await, "deleted by its ID, although under another label");
    }
}
