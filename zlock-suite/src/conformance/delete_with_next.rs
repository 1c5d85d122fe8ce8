//! `delete`, with the node behind.

use zlock_core::{Deletion, Label, LockPath, Node, Target};

use crate::{Case, Connection};

/// A holder, and the one that is behind it.
async fn two(case: &Case<'_>, a: &Connection, path: &LockPath) -> (Node, Node) {
    (case.create(a, path, Label::Lock).await.node, case.create(a, path, Label::Lock).await.node)
}

async fn hand_over(a: &Connection, path: &LockPath, node: &Node, next: &Node) -> Deletion {
    a.delete(path, &Target::Node(node.clone()), Some(next)).await.expect("delete")
}

/// `HandedOver` if the backend checks the next node at all.
fn assert_handed_over(deletion: Deletion) {
    assert!(matches!(deletion, Deletion::HandedOver | Deletion::Deleted), "{deletion:?}");
}

/// The node is removed whether or not `next` exists.
pub async fn removes_the_node(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let (holder, next) = two(case, &a, &path).await;
    assert_handed_over(hand_over(&a, &path, &holder, &next).await);
    assert!(case.has(&path, &[&next]).await);
    assert_eq!(hand_over(&a, &path, &next, &holder).await, Deletion::Deleted);
    assert!(case.has(&path, &[]).await);
}

/// The result is not `HandedOver` if `next` no longer exists.
pub async fn gone_successor_is_not_confirmed(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let (holder, next) = two(case, &a, &path).await;
    let last = case.create(&a, &path, Label::Lock).await.node;
    case.store.remove(&path, next.name.as_str()).await;
    assert_eq!(hand_over(&a, &path, &holder, &next).await, Deletion::Deleted);
    assert!(case.has(&path, &[&last]).await);
}

/// The result is not `HandedOver` if the node had been deleted before, or if its session is over.
pub async fn gone_node_is_not_confirmed(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let (holder, next) = two(case, &a, &path).await;
    case.store.remove(&path, holder.name.as_str()).await;
    assert_eq!(hand_over(&a, &path, &holder, &next).await, Deletion::AlreadyDeleted);
    assert!(case.has(&path, &[&next]).await);
    let epoch = a.session_events().current().epoch;
    case.store.expire(&a).await;
    case.connected(&a, epoch + 1).await;
    let newcomer = case.create(&a, &path, Label::Lock).await.node;
    assert_eq!(hand_over(&a, &path, &next, &newcomer).await, Deletion::AlreadyDeleted);
    assert!(case.has(&path, &[&newcomer]).await);
}

/// Cases that need [`Store::links`](crate::Store::links).
pub mod links {
    use super::*;

    /// A lost response costs a retry, or the statement about `next`.
    pub async fn lost_answer_costs_no_node(case: &Case<'_>) {
        let (a, path) = (case.connect().await, case.path("lock"));
        let (holder, next) = two(case, &a, &path).await;
        case.links().mute(&a).await;
        let mend = async {
            case.until_has(&path, &[&next]).await;
            case.links().heal(&a).await;
        };
        let (handed, ()) = tokio::join!(hand_over(&a, &path, &holder, &next), mend);
        assert_handed_over(handed);
        assert!(case.has(&path, &[&next]).await);
    }
}
