//! Removing a node.

use std::future::ready;
use zlock_core::kit::{SessionKey, repeat};
use zlock_core::{Deletion, ErrorKind, HandOver, Node, NodeId, Result, Target};

use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::Operation;
use crate::session::sent::Sent;
use crate::session::shared::session_id;

/// Removes the node with the target's ID, and returns whether this call did.
pub(crate) async fn delete(operation: Operation<'_>, target: &Target) -> Result<Deletion> {
    forget(&operation, target.id());
    complete(operation, target).await
}

/// Removes the node of an own lock, and returns whether all of `next` existed then.
pub(crate) async fn hand_over(mut operation: Operation<'_>, node: &Node, next: &[Node]) -> Result<HandOver> {
    forget(&operation, &node.id);
    let session = operation.budget.session().await?;
    // A create that may still be executed has to be voided.
    let is_settled =
        operation.shared.sessions.get(session).is_some_and(|live| live.creates.get(&node.id).is_none());
    if node.session == Some(session.id) && is_settled {
        match all_or_nothing(&mut operation, session, node, next).await {
            Ok(3) => return Ok(HandOver::Confirmed),
            Ok(0) => return Ok(HandOver::Unconfirmed(Deletion::Deleted)),
            Ok(_) => {}
            Err(failure) => operation.budget.retry(failure).await?,
        }
    }
    complete(operation, &Target::Node(node.clone())).await.map(HandOver::Unconfirmed)
}

/// Begins a delete: from here on, the backend no longer reports the deletion of the node.
fn forget(operation: &Operation<'_>, node_id: &NodeId) {
    operation.shared.sessions.own().remove(node_id);
}

async fn all_or_nothing(
    operation: &mut Operation<'_>,
    session: SessionKey,
    node: &Node,
    next: &[Node],
) -> Result<i32, Failure> {
    let (shared, until) = (operation.shared, operation.budget.deadline());
    let (id, node_id, is_sync) = (session_id(session), node.id.as_str(), shared.is_sync());
    let next: Vec<_> = next.iter().map(|node| node.id.as_str()).collect();
    let params: Params<'_> = &[&id, &operation.path, &node_id, &next, &is_sync];
    let answer = shared.send(session, until, &statement::HAND_OVER, params).await;
    operation.change('d', &node.id, answer).await
}

async fn complete(mut operation: Operation<'_>, target: &Target) -> Result<Deletion> {
    if let Target::Node(node) = target {
        operation.budget = operation.budget.of_node(node.session);
    }
    match repeat!(operation.budget, |session| once(&mut operation, session, target.id())) {
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

/// Makes one attempt. Returns `false` if the node did not exist.
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
