//! Removing a node.

use std::sync::Arc;

use tokio::time::timeout_at;
use zlock_core::kit::{Interrupted, SessionKey};
use zlock_core::{Deletion, Label, LockPath, NodeName, Queue, Result, Target};
use zookeeper_client::Error;

use crate::error::Failure;
use crate::listings::Latest;
use crate::operation::Operation;
use crate::session::{Freshness, Shared};

/// Removes the node with the target's ID, and says whether it did.
pub(crate) async fn delete(shared: &Shared, parent: &LockPath, target: &Target) -> Result<Deletion> {
    let mut operation = Operation::new(shared, "delete", parent);
    let id = operation.own_id(target.id());
    shared.sessions.own().remove(&id);
    shared.contents.remove(&id);
    let mut removed = false;
    loop {
        if let Target::Node(node) = target
            && shared.sessions.closed().is_none()
            && node.session.is_some_and(|id| shared.sessions.is_past(id))
        {
            return Ok(deletion(&operation, removed));
        }
        let session = operation.budget.session().await?;
        match once(&mut operation, session, target, &mut removed).await {
            Ok(()) => return Ok(deletion(&operation, removed)),
            Err(failure) => operation.budget.retry(failure).await?,
        }
    }
}

/// A request without an answer may have removed it, too.
fn deletion(operation: &Operation<'_>, removed: bool) -> Deletion {
    if removed || operation.budget.ambiguous { Deletion::Deleted } else { Deletion::AlreadyDeleted }
}

/// One try; sets `removed` when a request was answered that removed the node.
async fn once(
    operation: &mut Operation<'_>,
    session: SessionKey,
    target: &Target,
    removed: &mut bool,
) -> Result<(), Failure> {
    if let Target::Node(node) = target {
        let found = by_name(operation, session, &node.name).await?;
        *removed |= found;
        // A label that is never changed: there is no other name that the node could have by now.
        if found || node.label == Label::Lock {
            return Ok(());
        }
    }
    // A relabel at the same time may give the node another name after the listing, and only one relabel is ever under way.
    for _ in 0..2 {
        // Requests of one session take effect in the order in which they were sent: after this listing no earlier
        // create of this session can come to light.
        let queue = listed_together(operation, session).await?;
        let mut renamed = false;
        for name in queue.names_of(target.id()) {
            let found = by_name(operation, session, &name).await?;
            *removed |= found;
            renamed |= !found;
        }
        if !renamed {
            return Ok(());
        }
    }
    // The next try comes after a pause.
    Err(Failure::ServersDisagree)
}

/// Lists the queue with all that any server was told before the call. One listing of a path is under way at a time, and
/// the next one serves everybody who came meanwhile: after an outage there may be a thousand nodes to look for.
async fn listed_together(operation: &Operation<'_>, session: SessionKey) -> Result<Arc<Queue>, Failure> {
    let listings = &operation.shared.listings;
    let came = listings.moment();
    let latest = listings.of(operation.server_path(), session);
    let turn = timeout_at(operation.budget.deadline(), latest.lock()).await;
    let mut latest = turn.map_err(|_| Interrupted::TimedOut)?;
    if latest.session != session || latest.asked <= came {
        let asked = listings.moment();
        let queue = Arc::new(operation.list(session, Freshness::Latest).await?);
        *latest = Latest { session, asked, queue };
    }
    Ok(latest.queue.clone())
}

/// Deletes the node of this name; `false` if there is none.
pub(crate) async fn by_name(
    operation: &mut Operation<'_>,
    session: SessionKey,
    name: &NodeName,
) -> Result<bool, Failure> {
    let path = operation.node_path(name);
    match operation.write(session, move |live| async move { live.client.delete(&path, None).await }).await {
        Ok(()) => Ok(true),
        Err(Failure::Zk(Error::NoNode)) => Ok(false),
        Err(failure) => Err(failure),
    }
}
