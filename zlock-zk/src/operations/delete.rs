//! Removing a node.

use std::sync::Arc;

use tokio::sync::watch;
use zlock_core::kit::{SessionKey, repeat};
use zlock_core::{Consistency, Deletion, ErrorKind, Node, NodeId, NodeName, Queue, Result, Target};
use zookeeper_client::{Error, MultiWriteError};

use crate::error::{Failure, if_exists};
use crate::operations::operation::{Leaves, Operation};
use crate::queues::listings::{Listed, Path};
use crate::session::ANY_VERSION;

/// Begins a delete: from here on, the backend no longer reports the deletion of the node.
pub(crate) fn forget(operation: &Operation<'_>, node_id: &NodeId) {
    let (shared, id) = (operation.shared, operation.own_id(node_id));
    shared.sessions.own().remove(&id);
    shared.contents.remove(&id);
    shared.names.remove(&id);
}

/// Deletes the node if it and `next` exist. Returns `false` if one does not.
async fn hand_over(
    operation: &mut Operation<'_>,
    session: SessionKey,
    node: &Node,
    next: &Node,
) -> Result<bool, Failure> {
    let (path, next) = (operation.node_path(&node.name), operation.node_path(&next.name));
    let handed = operation.send(session, Leaves::Change, move |live| async move {
        let mut transaction = live.client.new_multi_writer();
        transaction.add_delete(&path, None)?;
        transaction.add_check_version(&next, ANY_VERSION)?;
        match transaction.commit().await {
            Ok(_) => Ok(true),
            Err(MultiWriteError::OperationFailed { source: Error::NoNode, .. }) => Ok(false),
            Err(error) => Err(Error::from(error)),
        }
    });
    handed.await
}

/// Removes the node with the target's ID, and returns whether this call did, and whether `next` existed then.
pub(crate) async fn delete(
    mut operation: Operation<'_>,
    target: &Target,
    mut next: Option<&Node>,
) -> Result<Deletion> {
    forget(&operation, target.id());
    if let Target::Node(node) = target {
        operation.budget = operation.budget.of_node(node.session);
    }
    let mut removed = false;
    let attempted = repeat!(operation.budget, |session| {
        attempt(&mut operation, session, target, next.take(), &mut removed)
    });
    let deletion = match attempted {
        Ok(true) => Ok(Deletion::HandedOver),
        Err(error) if error.kind() != ErrorKind::SessionLost => Err(error),
        // The node was removed with its session if that is lost. A request without an answer may have removed it, too.
        _ if removed || operation.budget.ambiguous => Ok(Deletion::Deleted),
        _ => Ok(Deletion::AlreadyDeleted),
    };
    operation.budget.finish(deletion)
}

/// Makes one attempt. Sets `removed` when a request that removed the node is answered. Returns `true` if `next` existed then.
async fn attempt(
    operation: &mut Operation<'_>,
    session: SessionKey,
    target: &Target,
    next: Option<&Node>,
    removed: &mut bool,
) -> Result<bool, Failure> {
    if let Target::Node(node) = target {
        if let Some(next) = next
            && node.session == Some(session.id)
            && hand_over(operation, session, node, next).await?
        {
            return Ok(true);
        }
        let found = by_name(operation, session, &node.name).await?;
        *removed |= found;
        if found {
            operation.shared.alone.removed(&operation.server_path(), session, node);
        }
        // Such a label never changes, so the node cannot have another name by now.
        if found || node.label.is_fixed() {
            return Ok(false);
        }
    }
    // A concurrent relabel may rename the node after the listing. There is never more than one relabel at a time.
    for _ in 0..2 {
        // Requests of one session take effect in the order in which they were sent, so no earlier create of this session can
        // take effect after this listing.
        let queue = listed_together(operation, session).await?;
        let mut renamed = false;
        for name in queue.names_of(target.id()) {
            let found = by_name(operation, session, &name).await?;
            *removed |= found;
            renamed |= !found;
        }
        if !renamed {
            return Ok(false);
        }
    }
    // The next attempt follows after a pause.
    Err(Failure::ServersDisagree)
}

/// Lists the queue as it was at some moment after the call. There is only one listing of a path at a time, and the next one
/// serves all calls that are made meanwhile, because there may be a thousand nodes to look for after an outage.
///
/// # Cancel safety
/// Safe. The listing is a separate task, so a caller that is not polled does not hold up others.
async fn listed_together(operation: &mut Operation<'_>, session: SessionKey) -> Result<Arc<Queue>, Failure> {
    let shared = operation.shared;
    let path = shared.listings.of(&operation.server_path());
    let mut listed = path.join_next(session, || list_next(path.clone(), operation, session));
    let listed = listed.wait_for(Option::is_some);
    let listed = shared.sessions.run_until_ended(session, operation.budget.deadline(), listed).await?;
    let queue = listed.ok().and_then(|queue| queue.clone().flatten());
    match queue {
        Some(queue) => Ok(queue),
        // On a failure, each caller sends its own request.
        None => operation.list(session, Consistency::Latest).await.map(Arc::new),
    }
}

fn list_next(path: Arc<Path>, operation: &Operation<'_>, session: SessionKey) -> Listed {
    let (tell, listed) = watch::channel(None);
    let (shared, parent) = (operation.shared.clone(), operation.budget.path().clone());
    shared.runtime.clone().spawn(async move {
        let _turn = path.turn.lock().await;
        path.take_next(session);
        let mut operation = Operation::new(&shared, "delete", &parent).unreported();
        let queue = operation.list(session, Consistency::Latest).await;
        tell.send_replace(Some(queue.ok().map(Arc::new)));
    });
    listed
}

/// Deletes the node with this name. Returns `false` if it does not exist.
pub(crate) async fn by_name(
    operation: &mut Operation<'_>,
    session: SessionKey,
    name: &NodeName,
) -> Result<bool, Failure> {
    let path = operation.node_path(name);
    let deleted = operation
        .send(session, Leaves::Change, move |live| async move { live.client.delete(&path, None).await });
    if_exists(deleted.await).map(|deleted| deleted.is_some())
}
