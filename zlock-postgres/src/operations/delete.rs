//! Removing a node.

use std::future::ready;
use zlock_core::kit::{SessionKey, repeat};
use zlock_core::{Deletion, ErrorKind, Node, NodeId, Result, Target};

use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::Operation;
use crate::session::sent::Sent;
use crate::session::shared::session_id;

/// Removes the node with the target's ID, and returns whether this call did, and whether `next` existed then.
pub(crate) async fn delete(
    mut operation: Operation<'_>,
    target: &Target,
    mut next: Option<&Node>,
) -> Result<Deletion> {
    // From here on, the backend no longer reports the deletion of the node.
    operation.shared.sessions.own().remove(target.id());
    if let Target::Node(node) = target {
        operation.budget = operation.budget.of_node(node.session);
    }
    let deleted = repeat!(operation.budget, |session| attempt(&mut operation, session, target, next.take()));
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

/// Makes one attempt. Returns `None` if the node did not exist.
async fn attempt(
    operation: &mut Operation<'_>,
    session: SessionKey,
    target: &Target,
    next: Option<&Node>,
) -> Result<Option<Deletion>, Failure> {
    // A create that may still be executed has to be voided.
    let is_settled =
        operation.shared.sessions.get(session).is_some_and(|live| live.creates.get(target.id()).is_none());
    if let (Target::Node(node), Some(next)) = (target, next)
        && node.session == Some(session.id)
        && is_settled
    {
        match hand_over(operation, session, node, next).await? {
            3 => return Ok(Some(Deletion::HandedOver)),
            0 => return Ok(Some(Deletion::Deleted)),
            _ => {}
        }
    }
    Ok(once(operation, session, target.id()).await?.then_some(Deletion::Deleted))
}

async fn hand_over(
    operation: &mut Operation<'_>,
    session: SessionKey,
    node: &Node,
    next: &Node,
) -> Result<i32, Failure> {
    let (shared, until) = (operation.shared, operation.budget.deadline());
    let (id, node_id, is_sync) = (session_id(session), node.id.as_str(), shared.is_sync());
    let next = [next.id.as_str()].to_vec();
    let params: Params<'_> = &[&id, &operation.path, &node_id, &next, &is_sync];
    let answer = shared.send(session, until, &statement::HAND_OVER, params).await;
    operation.change('d', &node.id, answer).await
}

/// Removes the node. Returns `false` if it did not exist.
async fn once(operation: &mut Operation<'_>, session: SessionKey, node_id: &NodeId) -> Result<bool, Failure> {
    let (shared, until) = (operation.shared, operation.budget.deadline());
    let live = shared.live(session)?;
    let link = match live.creates.get(node_id) {
        Some(Sent::Once(number)) => shared.pool.find(number),
        _ => None,
    };
    let voids = live.creates.get(node_id).is_some() && link.is_none();
    let void = voids.then(|| session_id(session));
    let id = node_id.as_str();
    let params: Params<'_> = &[&operation.path, &id, &void];
    let answer = match link {
        Some(link) => shared.send_over(session, until, ready(Ok(link)), &statement::DELETE, params).await,
        None => shared.send(session, until, &statement::DELETE, params).await,
    };
    let outcome = operation.change('d', node_id, answer).await?;
    live.creates.forget(node_id);
    Ok(outcome == 0)
}
