//! `create_ephemeral_sequential`.

use std::time::Duration;

use tokio::time::sleep;
use zlock_core::{CreatedQueue, ErrorKind, Joined, Label, Needs, NodeId, NodeIds, REVOKE, Target};

use crate::Case;
use crate::case::{MOMENT, TOO_MUCH};

/// A node ID that is not a UUID is refused with `InvalidArgument`.
pub async fn token_that_is_no_uuid_is_refused(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    for node_id in ["", "worker-1", "0123abcd-4567-89ab-cdef-0123456789abc"] {
        let refused =
            a.create_ephemeral_sequential(&path, Label::Lock, &NodeId::new(node_id), b"", Needs::Queue).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument, "{node_id:?}");
    }
    assert!(case.has(&path, &[]).await);
}

/// More than 1,000,000 bytes of data are refused with `InvalidArgument`.
pub async fn too_much_data_is_refused(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let (id, data) = (NodeIds::random().next(), vec![7; TOO_MUCH]);
    let refused = a.create_ephemeral_sequential(&path, Label::Lock, &id, &data, Needs::Queue).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(case.has(&path, &[]).await);
    let created =
        a.create_ephemeral_sequential(&path, Label::Lock, &id, &data[1..], Needs::Queue).await.unwrap();
    assert_eq!(case.data(&a, &path, &created.node).await.as_deref(), Some(&data[1..]));
}

/// The node is at the end of the queue, behind every node that any client has seen before.
pub async fn at_the_end_of_the_queue(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let mut made = Vec::new();
    for backend in [&a, &b, &a, &a, &b] {
        let seen = a.children(&path, None).await.unwrap();
        let created = case.create(backend, &path, Label::Lock).await;
        let queue = case.queue(&created);
        let place = queue.position(&created.node.id).unwrap();
        // Nodes other than the one right before may be left out.
        let before = place.checked_sub(1).map(|place| &queue[place].id);
        assert_eq!(before, seen.last().map(|node| &node.id), "{queue:?}");
        for node in seen.iter() {
            assert!(queue.position(&node.id).is_none_or(|other| other < place), "{node:?}");
        }
        made.push(created.node.id);
    }
    let queue = b.children(&path, None).await.unwrap();
    let queue: Vec<_> = queue.iter().filter(|n| made.contains(&n.id)).map(|n| n.id.clone()).collect();
    assert_eq!(queue, made);
}

/// The returned queue contains the node.
pub async fn returned_queue_has_the_node(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    for label in
        [Label::Lock, Label::Read, Label::Write, Label::Permits { weight: 2, max: 5, granted: false }]
    {
        let created = case.create(&a, &path, label).await;
        let queue = case.queue(&created);
        let listed = queue.find(&created.node.id).unwrap();
        assert_eq!((&listed.name, listed.label), (&created.node.name, label));
        assert_eq!(created.node.label, label);
    }
}

/// A node that is returned as alone was the only one in its queue when it was created.
pub async fn alone_is_alone(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    for round in 0..10 {
        let other = if round % 5 == 4 { Some(case.create(&b, &path, Label::Lock).await.node) } else { None };
        let created = case.create(&a, &path, Label::Lock).await;
        let is_alone = matches!(created.queue, CreatedQueue::Alone);
        assert!(!is_alone || case.has(&path, &[&created.node]).await, "{round}: {created:?}");
        a.delete(&path, &Target::Node(created.node), None).await.unwrap();
        if let Some(other) = other {
            b.delete(&path, &Target::Node(other), None).await.unwrap();
        }
    }
}

/// Missing parents are created, and may disappear on their own once they are empty.
pub async fn missing_parents_are_made(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("one/two/three"));
    for _ in 0..2 {
        let created = case.create(&a, &path, Label::Lock).await;
        assert!(case.has(&path, &[&created.node]).await);
        a.delete(&path, &Target::Node(created.node), None).await.unwrap();
        for parent in [&path, &path.parent().unwrap()] {
            case.store.remove_parent(parent).await;
        }
        assert!(a.children(&path, None).await.unwrap().is_empty());
    }
}

/// A parent that disappears at any moment costs a retry and is not an error.
pub async fn vanishing_parent_costs_a_retry(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("one/two"));
    let use_it = async {
        for _ in 0..50 {
            let created = case.create(&a, &path, Label::Lock).await;
            a.delete(&path, &Target::Node(created.node), None).await.unwrap();
        }
    };
    let remove_it = async {
        // Bursts of different lengths interrupt every step of a create; the pauses let it progress.
        for burst in (1..=8).cycle() {
            for _ in 0..burst {
                for parent in [&path, &path.parent().unwrap()] {
                    case.store.remove_parent(parent).await;
                    tokio::task::yield_now().await;
                }
            }
            sleep(Duration::from_millis(3)).await;
        }
    };
    tokio::select! {
        biased;
        () = use_it => {}
        () = remove_it => {}
    }
}

/// The node belongs to the session of the returned epoch, and is removed when that session ends.
pub async fn belongs_to_the_session_of_the_epoch(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    for epoch in 1..=2 {
        let session = case.connected(&a, epoch).await;
        let created = case.create(&a, &path, Label::Lock).await;
        assert_eq!((created.epoch, created.node.session), (epoch, Some(session.id)));
        assert!(case.has(&path, &[&created.node]).await);
        case.store.expire(&a).await;
        case.until_has(&path, &[]).await;
        a.session_events().ended(epoch).await;
    }
}

/// Fencing tokens increase with each create under one parent, even if the parent is removed in between.
pub async fn fencing_tokens_grow(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let mut last = None;
    for backend in [&a, &b, &b, &a] {
        for _ in 0..2 {
            let created = case.create(backend, &path, Label::Lock).await;
            assert!(created.node.fencing_token > last, "{:?} after {last:?}", created.node.fencing_token);
            last = created.node.fencing_token;
            backend.delete(&path, &Target::Node(created.node), None).await.unwrap();
        }
        case.store.remove_parent(&path).await;
    }
}

/// The label does not depend on the data.
pub async fn label_does_not_depend_on_the_data(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    for label in [Label::Lock, Label::Write, Label::Candidate] {
        for data in [&b""[..], REVOKE, b"zlock1 read\nx"] {
            let created = a
                .create_ephemeral_sequential(&path, label, &case.node_id(), data, Needs::Queue)
                .await
                .unwrap();
            let node = created.node;
            let is_as_before = async || {
                let found = b.children(&path, None).await.unwrap().first().map(|node| node.label);
                assert_eq!((node.label, found), (label, Some(label)), "{data:?}");
                assert_eq!(case.data(&b, &path, &node).await.as_deref(), Some(data));
            };
            is_as_before().await;
            b.write_data(&path, &node, None, b"other").await.unwrap();
            b.write_data(&path, &node, None, data).await.unwrap();
            is_as_before().await;
            if label == Label::Candidate && a.write_data(&path, &node, Some(2), data).await.is_ok() {
                is_as_before().await;
            }
            a.delete(&path, &Target::Node(node), None).await.unwrap();
        }
    }
}

/// A member at `parent` does not end with the node, nor the node with the member. Where members cannot have children, the error is
/// `InvalidArgument`.
pub async fn member_at_the_parent_is_independent(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("both"));
    let Joined::Joined(member) = a.join(&path, b"", false).await.unwrap() else {
        panic!("not joined");
    };
    for below in [path.clone(), path.join("below").unwrap()] {
        let (id, session) = (case.node_id(), member.session);
        let created = match b.create_ephemeral_sequential(&below, Label::Lock, &id, b"", Needs::Queue).await {
            Ok(created) => created,
            Err(error) => {
                assert_eq!((error.kind(), error.is_ambiguous()), (ErrorKind::InvalidArgument, false));
                continue;
            }
        };
        a.leave(&path).await.unwrap();
        assert!(case.has(&below, &[&created.node]).await && !created.deletion.is_deleted());
        let again = a.join(&path, b"", false).await.unwrap();
        assert!(matches!(&again, Joined::Joined(again) if again.session == session), "{again:?}");
        b.delete(&below, &Target::Node(created.node), None).await.unwrap();
    }
    let taken = b.join(&path, b"", false).await.unwrap();
    assert!(matches!(taken, Joined::Taken(Some(session)) if session == member.session), "{taken:?}");
}

/// A node that another client deletes while its session is live is reported through `deletion`.
pub async fn deletion_by_others_is_reported(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let (mut deleted, kept) =
        (case.create(&a, &path, Label::Lock).await, case.create(&a, &path, Label::Lock).await);
    sleep(MOMENT).await;
    case.store.remove(&path, deleted.node.name.as_str()).await;
    deleted.deletion.deleted().await;
    assert!(!kept.deletion.is_deleted());
    assert!(a.session_events().is_live(kept.epoch));
}

/// Cases that need [`Store::links`](crate::Store::links).
pub mod links {
    use super::*;

    /// A lost response leaves exactly one node, which is the one returned.
    pub async fn lost_answer_leaves_the_returned_node(case: &Case<'_>) {
        let (a, path) = (case.connect().await, case.path("lock"));
        let before = case.create(&a, &path, Label::Lock).await;
        case.links().mute(&a).await;
        let lose_it = async {
            case.until("the create takes effect", async || case.store.names(&path).await.len() == 2).await;
            case.links().heal(&a).await;
        };
        let (created, ()) = tokio::join!(case.create(&a, &path, Label::Lock), lose_it);
        assert!(case.has(&path, &[&before.node, &created.node]).await, "{:?}", case.store.names(&path).await);
        assert!(case.queue(&created).find(&created.node.id).is_some());
        assert_eq!((created.epoch, created.node.session), (before.epoch, before.node.session));
        assert!(created.node.fencing_token > before.node.fencing_token);
    }
}
