//! Removing a node.

use std::mem::take;

use etcd_client::{Txn, TxnOp};
use zlock_core::kit::{Failure as _, SessionKey, repeat};
use zlock_core::{Deletion, ErrorKind, Node, NodeId, Result, Target};

use crate::error::Failure;
use crate::keys::key::PlaceName;
use crate::keys::revision;
use crate::operations::operation::Operation;
use crate::requests::fence::Fence;
use crate::requests::txn::{Write, is_still, was_created_at};
use crate::session::Live;

/// Removes the node with the target's ID, and returns whether this call did, and whether `next` existed then.
pub(crate) async fn delete(
    mut operation: Operation<'_>,
    target: &Target,
    mut next: Option<&Node>,
) -> Result<Deletion> {
    // A key that another client has put in the place of a node that it deleted is not ours. Only the first attempt may be plain:
    // see `names.rs`.
    let mut may_be_plain = next.is_none() && operation.shared.sessions.own().contains(target.id());
    forget(&operation, target.id());
    if let Target::Node(node) = target {
        operation.budget = operation.budget.of_node(node.session);
    }
    let deleted = repeat!(operation.budget, |lease| {
        once(&mut operation, lease, target, next.take(), take(&mut may_be_plain))
    });
    // A request without an answer may have removed the node, too.
    let not_found = if operation.budget.ambiguous { Deletion::Deleted } else { Deletion::AlreadyDeleted };
    let deletion = match deleted {
        Ok(deletion) => Ok(deletion.unwrap_or(not_found)),
        // The node was removed with its session.
        Err(error) if error.kind() == ErrorKind::SessionLost => Ok(not_found),
        Err(error) => Err(error),
    };
    operation.budget.finish(deletion)
}

/// Begins a delete: from here on, the backend no longer reports the deletion of the node.
fn forget(operation: &Operation<'_>, node_id: &NodeId) {
    operation.shared.sessions.own().remove(node_id);
    operation.shared.contents.remove(node_id);
}

/// Deletes the node if it and `next` exist. Returns `false` if one does not.
async fn hand_over(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    node: &Node,
    next: &Node,
) -> Result<bool, Failure> {
    let live = operation.shared.live(lease)?;
    let are_there =
        [node, next].into_iter().map(|node| is_still(&operation.keys.of(&node.name), node)).collect();
    let key = operation.keys.of(&node.name);
    let delete = vec![TxnOp::delete(key.as_str(), None)];
    let write = Write::new(&operation.keys, &key, 0, are_there, delete, vec![]);
    let answer = operation.write(lease, write).await?;
    if answer.succeeded() {
        live.names.lock().free(&node.id, Some(node.sequence.get()));
    }
    Ok(answer.succeeded())
}

/// Makes one attempt. Returns `None` if the node did not exist. Once it is answered, the node's name may be used again.
async fn once(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    target: &Target,
    next: Option<&Node>,
    may_be_plain: bool,
) -> Result<Option<Deletion>, Failure> {
    if let (Target::Node(node), Some(next)) = (target, next)
        && node.session == Some(lease.id)
        && hand_over(operation, lease, node, next).await?
    {
        return Ok(Some(Deletion::HandedOver));
    }
    let removed = remove(operation, lease, target, may_be_plain).await?;
    Ok(removed.then_some(Deletion::Deleted))
}

/// Removes the node. Returns `false` if it did not exist.
async fn remove(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    target: &Target,
    may_be_plain: bool,
) -> Result<bool, Failure> {
    let live = operation.shared.live(lease)?;
    let (key, created) = match target {
        Target::Node(node) => (operation.keys.of(&node.name), Some(node.sequence.get())),
        Target::Id(node_id) => {
            let place =
                live.names.lock().get(node_id).filter(|place| *place.prefix == *operation.keys.prefix());
            // Not a node of this session; those of earlier sessions are gone.
            let Some(place) = place else { return Ok(false) };
            (operation.keys.of(PlaceName::new(lease.id, place.number)), place.created)
        }
    };
    let Some(created) = created else {
        let fence = live.fences.of(operation.shared.options.prefix(), lease.id, &key);
        return void_creates(operation, lease, &live, &fence, target.id(), &key).await;
    };
    let answer = if may_be_plain && live.names.lock().begin_plain(target.id(), created) {
        let answer = operation.write(lease, Write::plain_delete(&operation.keys, &key)).await;
        if answer.as_ref().err().is_none_or(|failure| !failure.classify().ambiguous) {
            live.names.lock().end_plain(target.id());
        }
        answer?
    } else {
        let is_it = vec![was_created_at(&key, created)];
        let delete = vec![TxnOp::delete(key.as_str(), None)];
        operation.write(lease, Write::new(&operation.keys, &key, 0, is_it, delete, vec![])).await?
    };
    live.names.lock().free(target.id(), Some(created));
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
        if !live.names.lock().begin_voiding(node_id, known) {
            return Ok(false);
        }
        let txn = Txn::new()
            .when([fence.is(known)])
            .and_then([fence.raise(), TxnOp::delete(key, None)])
            .or_else([fence.get()]);
        let answer = operation.write_alone(lease, txn).await?;
        if answer.succeeded() {
            fence.raised_by(&answer);
            live.names.lock().end_voiding(node_id, revision::of(answer.header()));
            return Ok(answer.has_deleted());
        }
        fence.read(known, &answer).ok_or_else(|| operation.shared.lost(lease))?;
    }
}
