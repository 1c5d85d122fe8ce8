//! `create_ephemeral_sequential` by a caller that may not need the queue.

use zlock_core::{Created, CreatedQueue, Label, LockPath, Needs, SessionState, Target};

use crate::{Case, Connection};

async fn create_unlisted(case: &Case<'_>, backend: &Connection, path: &LockPath) -> Created {
    let (label, node_id, needs) = (Label::Lock, case.node_id(), Needs::Number);
    backend.create_ephemeral_sequential(path, label, &node_id, b"data", needs).await.expect("create")
}

/// Apart from the queue, the result does not depend on `needs`.
pub async fn makes_the_same_node(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("one/two"));
    for epoch in 1..=2 {
        let session = case.connected(&a, epoch).await;
        let listed = case.create(&a, &path, Label::Lock).await;
        let created = create_unlisted(case, &a, &path).await;
        assert!(case.has(&path, &[&listed.node, &created.node]).await);
        assert_eq!((created.epoch, created.node.session), (epoch, Some(session.id)));
        assert_eq!(created.node.label, Label::Lock);
        assert!(created.node.sequence > listed.node.sequence);
        assert!(created.node.fencing_token > listed.node.fencing_token);
        assert_eq!(case.data(&a, &path, &created.node).await.as_deref(), Some(&b"data"[..]));
        if let CreatedQueue::Listed(queue) = created.queue {
            assert_eq!(queue.position(&created.node.id), Some(1));
        }
        // The backend reports the deletion of this node, too.
        let mut deletion = created.deletion;
        case.store.remove(&path, created.node.name.as_str()).await;
        deletion.deleted().await;
        case.store.expire(&a).await;
        case.until_has(&path, &[]).await;
        // The next session begins without a parent.
        case.store.remove_parent(&path).await;
        a.session_events().ended(epoch).await;
    }
    case.connected(&a, 3).await;
    let first = create_unlisted(case, &a, &path).await;
    assert!(case.has(&path, &[&first.node]).await);
}

/// If the queue is left out and the number is one more than that of a node that still exists, nothing was created under
/// the parent between the two: no node, nothing nested, nothing without a number.
pub async fn next_number_has_nothing_between(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let nested = case.path("lock/nested");
    let mut before = create_unlisted(case, &a, &path).await;
    for between in 0..10 {
        let mut other = None;
        match between {
            1 => other = Some((&path, case.create(&b, &path, Label::Lock).await.node)),
            2 => other = Some((&path, case.create(&b, &path, Label::Read).await.node)),
            3 => other = Some((&nested, case.create(&b, &nested, Label::Lock).await.node)),
            5 => case.put(&path, "config").await,
            // It is gone again when the next node is created.
            7 => {
                let gone = case.create(&b, &path, Label::Lock).await.node;
                b.delete(&path, &Target::Node(gone), None).await.unwrap();
            }
            _ => {}
        }
        let created = create_unlisted(case, &a, &path).await;
        let is_next = created.node.sequence.get() == before.node.sequence.get() + 1;
        if let CreatedQueue::Unlisted = created.queue {
            assert_eq!(is_next, !matches!(between, 1 | 2 | 3 | 5 | 7), "{between}: {created:?}");
        }
        if let Some((path, other)) = other {
            b.delete(path, &Target::Node(other), None).await.unwrap();
        }
        a.delete(&path, &Target::Node(before.node), None).await.unwrap();
        before = created;
    }
    case.store.remove_parent(&nested).await;
}

/// Cases that need [`Store::links`](crate::Store::links).
pub mod links {
    use super::*;

    /// After an attempt of unknown outcome the queue is not left out.
    pub async fn lost_answer_brings_the_queue(case: &Case<'_>) {
        let (a, path) = (case.connect().await, case.path("lock"));
        let before = create_unlisted(case, &a, &path).await;
        case.links().mute(&a).await;
        let lose_it = async {
            case.until("the create takes effect", async || case.store.names(&path).await.len() == 2).await;
            // Until then, its answer may be in flight.
            let state = || a.session_events().current().state;
            case.until("the connection is given up", async || state() == SessionState::Suspended).await;
            case.links().heal(&a).await;
        };
        let (created, ()) = tokio::join!(create_unlisted(case, &a, &path), lose_it);
        assert!(case.has(&path, &[&before.node, &created.node]).await, "{:?}", case.store.names(&path).await);
        assert!(case.queue(&created).find(&created.node.id).is_some());
    }
}
