//! Removing a node.

use std::mem::take;

use etcd_client::{Txn, TxnOp};
use zlock_core::kit::{Failure as _, SessionKey, repeat};
use zlock_core::{Deletion, ErrorKind, HandOver, Node, NodeId, Result, Target};

use crate::error::Failure;
use crate::keys::key::PlaceName;
use crate::keys::revision;
use crate::operations::operation::Operation;
use crate::requests::fence::Fence;
use crate::requests::txn::{Write, is_still, was_created_at};
use crate::session::Live;

/// Removes the node with the target's ID, and returns whether this call did.
pub(crate) async fn delete(operation: Operation<'_>, target: &Target) -> Result<Deletion> {
    // A key that another client has put in the place of a node that it deleted is not ours.
    let is_ours = operation.shared.sessions.own().contains(target.id());
    forget(&operation, target.id());
    complete(operation, target, is_ours).await
}

/// Removes the node of an own lock, and returns whether all of `next` existed then.
pub(crate) async fn hand_over(mut operation: Operation<'_>, node: &Node, next: &[Node]) -> Result<HandOver> {
    forget(&operation, &node.id);
    let lease = operation.budget.session().await?;
    if node.session == Some(lease.id) {
        match all_or_nothing(&mut operation, lease, node, next).await {
            Ok(true) => return Ok(HandOver::Confirmed),
            Ok(false) => {}
            Err(failure) => operation.budget.retry(failure).await?,
        }
    }
    complete(operation, &Target::Node(node.clone()), false).await.map(HandOver::Unconfirmed)
}

/// Begins a delete: from here on, the backend no longer reports the deletion of the node.
fn forget(operation: &Operation<'_>, node_id: &NodeId) {
    operation.shared.sessions.own().remove(node_id);
    operation.shared.contents.remove(node_id);
}

/// Deletes the node if it and all of `next` exist. Returns `false` if one does not.
async fn all_or_nothing(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    node: &Node,
    next: &[Node],
) -> Result<bool, Failure> {
    let live = operation.shared.live(lease)?;
    let are_there: Vec<_> = std::iter::once(node)
        .chain(next)
        .map(|node| is_still(&operation.keys.of(&node.name), node))
        .collect();
    let key = operation.keys.of(&node.name);
    let delete = vec![TxnOp::delete(key.as_str(), None)];
    let write = Write::new(&operation.keys, &key, 0, are_there, delete, vec![]);
    let answer = operation.write(lease, write).await?;
    if answer.succeeded() {
        live.names().free(&node.id, Some(node.sequence.get()));
    }
    Ok(answer.succeeded())
}

/// Removes a node. The first request may be plain: see `names.rs`.
async fn complete(mut operation: Operation<'_>, target: &Target, mut may_be_plain: bool) -> Result<Deletion> {
    if let Target::Node(node) = target {
        operation.budget = operation.budget.of_node(node.session);
    }
    match repeat!(operation.budget, |lease| once(&mut operation, lease, target, take(&mut may_be_plain))) {
        Ok(removed) => Ok(deletion(&operation, removed)),
        // The node was removed with its session.
        Err(error) if error.kind() == ErrorKind::SessionLost => Ok(deletion(&operation, false)),
        Err(error) => Err(error),
    }
}

/// Returns the outcome. A request without an answer may have removed the node, too.
fn deletion(operation: &Operation<'_>, removed: bool) -> Deletion {
    if removed || operation.budget.ambiguous { Deletion::Deleted } else { Deletion::AlreadyDeleted }
}

/// Makes one attempt. Returns `false` if the node did not exist. Once it is answered, the node's name may be used again.
async fn once(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    target: &Target,
    may_be_plain: bool,
) -> Result<bool, Failure> {
    let live = operation.shared.live(lease)?;
    let (key, created) = match target {
        Target::Node(node) => (operation.keys.of(&node.name), Some(node.sequence.get())),
        Target::Id(node_id) => {
            let place = live.names().get(node_id).filter(|place| *place.prefix == *operation.keys.prefix());
            // Not a node of this session; those of earlier sessions are gone.
            let Some(place) = place else { return Ok(false) };
            (operation.keys.of(PlaceName::new(lease.id, place.number)), place.created)
        }
    };
    let Some(created) = created else {
        let fence = live.fences.of(operation.shared.options.prefix(), lease.id, &key);
        return void_creates(operation, lease, &live, &fence, target.id(), &key).await;
    };
    let answer = if may_be_plain && live.names().begin_plain(target.id(), created) {
        let answer = operation.write(lease, Write::plain_delete(&operation.keys, &key)).await;
        if answer.as_ref().err().is_none_or(|failure| !failure.classify().ambiguous) {
            live.names().end_plain(target.id());
        }
        answer?
    } else {
        let is_it = vec![was_created_at(&key, created)];
        let delete = vec![TxnOp::delete(key.as_str(), None)];
        operation.write(lease, Write::new(&operation.keys, &key, 0, is_it, delete, vec![])).await?
    };
    live.names().free(target.id(), Some(created));
    Ok(answer.has_deleted())
}

/// Voids creates of unknown outcome, and removes what they left under this key.
async fn void_creates(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    live: &Live,
    fence: &Fence<'_>,
    node_id: &NodeId,
    key: &str,
) -> Result<bool, Failure> {
    loop {
        let known = fence.known();
        if !live.names().begin_voiding(node_id, known) {
            return Ok(false);
        }
        let txn = Txn::new()
            .when([fence.is(known)])
            .and_then([fence.raise(), TxnOp::delete(key, None)])
            .or_else([fence.get()]);
        let answer = operation.write_alone(lease, txn).await?;
        if answer.succeeded() {
            fence.raised_by(&answer);
            live.names().end_voiding(node_id, revision::of(answer.header()));
            return Ok(answer.has_deleted());
        }
        fence.read(known, &answer).ok_or_else(|| operation.shared.lost(lease))?;
    }
}
