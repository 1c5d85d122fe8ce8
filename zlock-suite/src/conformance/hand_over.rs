//! `hand_over`.

use zlock_core::{Deletion, HandOver, Label, LockPath, Node, Target};

use crate::{Case, Connection};

/// A holder, and the two that are behind it.
async fn three(case: &Case<'_>, a: &Connection, path: &LockPath) -> (Node, [Node; 2]) {
    let holder = case.create(a, path, Label::Lock).await.node;
    let next = [case.create(a, path, Label::Lock).await.node, case.create(a, path, Label::Lock).await.node];
    (holder, next)
}

/// `Confirmed` if the backend confirms at all.
fn assert_handed_over(handed: HandOver) {
    let is_ok = matches!(handed, HandOver::Confirmed | HandOver::Unconfirmed(Deletion::Deleted));
    assert!(is_ok, "{handed:?}");
}

/// The node is removed whether or not this is confirmed.
pub async fn removes_the_node(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let (holder, next) = three(case, &a, &path).await;
    assert_handed_over(a.hand_over(&path, &holder, &next).await.unwrap());
    assert!(case.has(&path, &[&next[0], &next[1]]).await);
    assert_handed_over(a.hand_over(&path, &next[0], &next[1..]).await.unwrap());
    assert_handed_over(a.hand_over(&path, &next[1], &[]).await.unwrap());
    assert!(case.has(&path, &[]).await);
}

/// The removal is not confirmed if a node of `next` no longer exists.
pub async fn gone_successor_is_not_confirmed(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    for gone in [0, 1] {
        let (holder, next) = three(case, &a, &path).await;
        case.store.remove(&path, next[gone].name.as_str()).await;
        let handed = a.hand_over(&path, &holder, &next).await.unwrap();
        assert_eq!(handed, HandOver::Unconfirmed(Deletion::Deleted));
        assert!(case.has(&path, &[&next[1 - gone]]).await);
        a.delete(&path, &Target::Node(next[1 - gone].clone())).await.unwrap();
    }
}

/// The removal is not confirmed if `node` had been deleted before, or if its session is over.
pub async fn gone_node_is_not_confirmed(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.path("lock"));
    let (holder, next) = three(case, &a, &path).await;
    case.store.remove(&path, holder.name.as_str()).await;
    let gone = HandOver::Unconfirmed(Deletion::AlreadyDeleted);
    assert_eq!(a.hand_over(&path, &holder, &next).await.unwrap(), gone);
    assert!(case.has(&path, &[&next[0], &next[1]]).await);
    let epoch = a.session_events().current().epoch;
    case.store.expire(&a).await;
    case.connected(&a, epoch + 1).await;
    let newcomer = case.create(&a, &path, Label::Lock).await.node;
    let after = std::slice::from_ref(&newcomer);
    assert_eq!(a.hand_over(&path, &next[0], after).await.unwrap(), gone);
    assert!(case.has(&path, &[&newcomer]).await);
}

/// Cases that need [`Store::links`](crate::Store::links).
pub mod links {
    use super::*;

    /// A lost response costs a retry, or the confirmation.
    pub async fn lost_answer_costs_no_node(case: &Case<'_>) {
        let (a, path) = (case.connect().await, case.path("lock"));
        let (holder, next) = three(case, &a, &path).await;
        case.links().mute(&a).await;
        let mend = async {
            case.until_has(&path, &[&next[0], &next[1]]).await;
            case.links().heal(&a).await;
        };
        let (handed, ()) = tokio::join!(a.hand_over(&path, &holder, &next), mend);
        assert_handed_over(handed.unwrap());
        assert!(case.has(&path, &[&next[0], &next[1]]).await);
    }
}
