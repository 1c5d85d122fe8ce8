//! `delete`.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio::time::sleep;
use zlock_core::{Deletion, Label, LockPath, Needs, NodeId, Target};

use crate::case::MOMENT;
use crate::{Case, Connection};

/// A node or a parent that no longer exists is not an error.
pub async fn gone_already_is_ok(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    for label in [Label::Lock, Label::Write] {
        let node = case.create(&a, &path, label).await.node;
        let target = Target::Node(node);
        for _ in 0..2 {
            a.delete(&path, &target, None).await.unwrap();
            assert!(case.has(&path, &[]).await);
        }
        case.store.remove_parent(&path).await;
        a.delete(&path, &target, None).await.unwrap();
        a.delete(&case.path("never/made"), &target, None).await.unwrap();
    }
    a.delete(&path, &Target::Id(case.node_id()), None).await.unwrap();
}

/// A node that another client deleted is `AlreadyDeleted`, whatever its label was.
pub async fn says_whether_it_removed_the_node(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let permits = |granted| Label::Permits { weight: 1, max: 2, granted };
    for (label, relabel) in [
        (Label::Lock, None),
        (Label::Write, None),
        (Label::Write, Some(Label::Read)),
        (permits(false), Some(permits(true))),
    ] {
        for by_hand in [false, true] {
            // Identified by its previous name, and by its current one.
            for old in [true, false] {
                let made = case.create(&a, &path, label).await.node;
                let now = match relabel {
                    Some(label) => a.relabel(&path, &made, label).await.unwrap(),
                    None => made.clone(),
                };
                if by_hand {
                    case.store.remove(&path, now.name.as_str()).await;
                }
                let expected = if by_hand { Deletion::AlreadyDeleted } else { Deletion::Deleted };
                let target = Target::Node(if old { made } else { now });
                let what = format!("{label:?} to {relabel:?}, old {old}");
                assert_eq!(a.delete(&path, &target, None).await.unwrap(), expected, "{what}");
                assert_eq!(
                    a.delete(&path, &target, None).await.unwrap(),
                    Deletion::AlreadyDeleted,
                    "{what}, again"
                );
            }
        }
        let left = Target::Id(case.create(&a, &path, label).await.node.id);
        assert_eq!(a.delete(&path, &left, None).await.unwrap(), Deletion::Deleted, "{label:?} by ID");
        assert_eq!(
            a.delete(&path, &left, None).await.unwrap(),
            Deletion::AlreadyDeleted,
            "{label:?} by ID, again"
        );
    }
    assert_eq!(a.delete(&path, &Target::Id(case.node_id()), None).await.unwrap(), Deletion::AlreadyDeleted);
}

/// Another node with the same number is never removed.
pub async fn never_another_with_the_same_number(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    for label in [Label::Lock, Label::Write] {
        let old = case.create(&a, &path, label).await.node;
        a.delete(&path, &Target::Node(old.clone()), None).await.unwrap();
        case.store.remove_parent(&path).await;
        let new = case.create(&a, &path, label).await.node;
        a.delete(&path, &Target::Node(old.clone()), None).await.unwrap();
        a.delete(&path, &Target::Id(old.id), None).await.unwrap();
        assert!(case.has(&path, &[&new]).await);
        a.delete(&path, &Target::Node(new), None).await.unwrap();
        case.store.remove_parent(&path).await;
    }
}

/// Removes exactly the node with this ID, whatever its label is by now.
pub async fn whatever_its_label(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let other = case.create(&a, &path, Label::Write).await.node;
    let node = case.create(&a, &path, Label::Write).await.node;
    a.relabel(&path, &node, Label::Read).await.unwrap();
    a.delete(&path, &Target::Node(node), None).await.unwrap();
    assert!(case.has(&path, &[&other]).await);
}

/// A concurrent relabel of the node leaves nothing behind, whichever takes effect first.
pub async fn while_it_is_relabelled(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let other = case.create(&a, &path, Label::Write).await.node;
    for polls in 0.. {
        let node = case.create(&a, &path, Label::Write).await.node;
        let mut relabel = pin!(a.relabel(&path, &node, Label::Read));
        let mut done = 0;
        let relabelled = poll_fn(|cx| {
            if done == polls {
                return Poll::Ready(None);
            }
            done += 1;
            relabel.as_mut().poll(cx).map(Some)
        })
        .await;
        let target = Target::Node(node.clone());
        let is_done = relabelled.is_some();
        let (relabelled, deleted) = match relabelled {
            Some(relabelled) => (relabelled, a.delete(&path, &target, None).await),
            None => tokio::join!(relabel, a.delete(&path, &target, None)),
        };
        deleted.unwrap();
        assert!(relabelled.is_ok_and(|n| n.id == node.id) || !is_done, "after {polls} polls");
        assert!(case.has(&path, &[&other]).await, "after {polls} polls");
        if is_done {
            break;
        }
    }
}

/// After a create of unknown outcome, [`Target::Id`] finds and removes the node, if there is one. A create whose future
/// was dropped before this call cannot take effect after this call returned `Ok`.
pub async fn by_token_finds_what_a_create_left(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let other = case.create(&a, &path, Label::Lock).await.node;
    for label in [Label::Lock, Label::Read] {
        let left = case.create(&a, &path, label).await.node;
        a.delete(&path, &Target::Id(left.id), None).await.unwrap();
        assert!(case.has(&path, &[&other]).await);
    }
}

/// Polls a create so many times and drops it; `false` if it ended before.
async fn abandon(backend: &Connection, path: &LockPath, node_id: &NodeId, polls: usize) -> bool {
    let mut create =
        pin!(backend.create_ephemeral_sequential(path, Label::Lock, node_id, b"abandoned", Needs::Queue));
    let mut done = 0;
    poll_fn(|cx| {
        if done == polls {
            return Poll::Ready(true);
        }
        done += 1;
        match create.as_mut().poll(cx) {
            Poll::Ready(created) => {
                created.unwrap();
                Poll::Ready(false)
            }
            Poll::Pending if done == polls => Poll::Ready(true),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// After a create of unknown outcome, [`Target::Id`] finds and removes the node, if there is one. A create whose future
/// was dropped before this call cannot take effect after this call returned `Ok`.
pub async fn by_token_after_any_poll_of_a_create(case: &Case<'_>) {
    let a = case.connect().await;
    for parent_is_there in [false, true] {
        let path = case.path(if parent_is_there { "there" } else { "missing" });
        if parent_is_there {
            let node = case.create(&a, &path, Label::Lock).await.node;
            a.delete(&path, &Target::Node(node), None).await.unwrap();
        }
        for polls in 1.. {
            let node_id = case.node_id();
            let abandoned = abandon(&a, &path, &node_id, polls).await;
            a.delete(&path, &Target::Id(node_id), None).await.unwrap();
            assert!(case.has(&path, &[]).await, "after {polls} polls");
            sleep(MOMENT / 10).await;
            assert!(case.has(&path, &[]).await, "a while after {polls} polls");
            if !parent_is_there {
                case.store.remove_parent(&path).await;
            }
            if !abandoned {
                break;
            }
        }
    }
}

/// Cases that need [`Store::links`](crate::Store::links).
pub mod links {
    use super::*;

    /// A node that an earlier attempt of this call may have deleted is `Deleted` if the response of that attempt was lost.
    pub async fn lost_answer_counts_as_removed(case: &Case<'_>) {
        let (a, path) = (case.connect().await, case.path("lock"));
        for label in [Label::Lock, Label::Write] {
            let target = Target::Node(case.create(&a, &path, label).await.node);
            case.links().mute(&a).await;
            let mend = async {
                case.until_has(&path, &[]).await;
                case.links().heal(&a).await;
            };
            let (deleted, ()) = tokio::join!(a.delete(&path, &target, None), mend);
            assert_eq!(deleted.unwrap(), Deletion::Deleted, "{label:?}");
            assert_eq!(
                a.delete(&path, &target, None).await.unwrap(),
                Deletion::AlreadyDeleted,
                "{label:?}, again"
            );
        }
    }

    /// After a create of unknown outcome, [`Target::Id`] finds and removes the node, if there is one. A create whose future
    /// was dropped before this call cannot take effect after this call returned `Ok`.
    pub async fn by_token_over_a_harmed_link(case: &Case<'_>) {
        let (a, path) = (case.connect().await, case.path("lock"));
        let other = case.create(&a, &path, Label::Lock).await.node;
        for mute in [true, false] {
            if mute {
                case.links().mute(&a).await;
            } else {
                case.links().freeze(&a).await;
            }
            let node_id = case.node_id();
            let create =
                a.create_ephemeral_sequential(&path, Label::Lock, &node_id, b"abandoned", Needs::Queue);
            assert!(
                tokio::time::timeout(MOMENT, create).await.is_err(),
                "answered over a link that is {mute}"
            );
            let mend = async {
                sleep(MOMENT).await;
                case.links().heal(&a).await;
            };
            let target = Target::Id(node_id);
            let (deleted, ()) = tokio::join!(a.delete(&path, &target, None), mend);
            deleted.unwrap();
            assert!(case.has(&path, &[&other]).await, "{:?}", case.store.names(&path).await);
            sleep(2 * MOMENT).await;
            assert!(case.has(&path, &[&other]).await, "it took effect after the delete");
        }
    }
}
