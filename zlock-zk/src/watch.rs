//! One-shot watches on a node and on a queue.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::sync::Arc;

use zlock_core::kit::SessionKey;
use zlock_core::{Existence, Label, LockPath, Node, NodeName, Queue, Result, Watch, WatchEvent};
use zookeeper_client::{Error, EventType};

use crate::arm::read_armed;
use crate::disagreement::Suspects;
use crate::error::Failure;
use crate::operation::Operation;
use crate::session::{Freshness, Shared};
use crate::watchers::Watched;
use crate::watching::Watching;

/// Arms a watch on `seen` if the node is still as it was seen.
pub(crate) async fn node(shared: &Arc<Shared>, parent: &LockPath, seen: &Node) -> Result<Existence> {
    let mut operation = Operation::new(shared, "exists_with_watch", parent);
    loop {
        let session = operation.budget.session().await?;
        match arm(&operation, shared, session, seen).await {
            Ok(existence) => return Ok(existence),
            Err(failure) => operation.budget.retry(failure).await?,
        }
    }
}

async fn arm(
    operation: &Operation<'_>,
    shared: &Arc<Shared>,
    session: SessionKey,
    seen: &Node,
) -> Result<Existence, Failure> {
    match read_and_watch(operation, session, &seen.name).await? {
        Some((_, watching)) => {
            let suspects = Suspects::new(shared, session, operation.budget.path(), [seen]);
            Ok(Existence::Watching(watch(shared, session, watching, seen.label, suspects.watch())))
        }
        // Such a label never changes, and the session's own server has answered.
        None if seen.label == Label::Lock && !shared.may_be_behind(session) => Ok(Existence::Deleted),
        // The node is gone, or was renamed: only a listing shows which.
        None => {
            let queue = operation.list(session, Freshness::Told).await?;
            match queue.find(&seen.id) {
                None => Ok(Existence::Deleted),
                // A watch connection's server does not have it. The next attempt follows after a pause.
                Some(node) if node.name == seen.name => Err(Failure::ServersDisagree),
                Some(node) => Ok(Existence::Changed(node.clone())),
            }
        }
    }
}

/// Returns the data of a node, whatever its current name, and a watch on its change.
pub(crate) async fn data(
    shared: &Shared,
    parent: &LockPath,
    node: &Node,
) -> Result<Option<(Vec<u8>, Watch)>> {
    let mut operation = Operation::new(shared, "data_with_watch", parent);
    let mut name = node.name.clone();
    loop {
        let session = operation.budget.session().await?;
        let failure = match read_and_watch(&operation, session, &name).await {
            Ok(Some((data, watching))) => {
                return Ok(Some((data, watch(shared, session, watching, node.label, pending()))));
            }
            Ok(None) => match operation.renamed(session, node).await {
                Ok(Some(now)) => {
                    name = now;
                    continue;
                }
                Ok(None) => return Ok(None),
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        operation.budget.retry(failure).await?;
    }
}

/// Sends one request for a node's data, with a watch on the node. `None` without a watch if the node does not exist.
/// (`exists` would leave a watch.)
async fn read_and_watch(
    operation: &Operation<'_>,
    session: SessionKey,
    name: &NodeName,
) -> Result<Option<(Vec<u8>, Watching)>, Failure> {
    let watched = Watched::Node(operation.node_path(name).into());
    let read = read_armed(operation, session, watched, |client, path| {
        Box::pin(async move {
            let (data, _, watcher) = client.get_and_watch_data(path).await?;
            Ok((data, watcher))
        })
    });
    match read.await {
        Ok(read) => Ok(Some(read)),
        Err(Failure::Zk(Error::NoNode)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Returns the queue and a watch on its changes.
pub(crate) async fn queue(shared: &Arc<Shared>, parent: &LockPath) -> Result<(Queue, Watch)> {
    let mut operation = Operation::new(shared, "children_with_watch", parent);
    loop {
        let session = operation.budget.session().await?;
        match list_and_watch(&operation, shared, session).await {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => {}
            Err(failure) => operation.budget.retry(failure).await?,
        }
    }
}

/// Returns `None` if the parent was created in between.
async fn list_and_watch(
    operation: &Operation<'_>,
    shared: &Arc<Shared>,
    session: SessionKey,
) -> Result<Option<(Queue, Watch)>, Failure> {
    let path = operation.server_path();
    let listed = read_armed(operation, session, Watched::Children(path.clone()), |client, path| {
        Box::pin(client.list_and_watch_children(path))
    });
    match listed.await {
        Ok((names, watching)) => {
            let queue = Queue::listed(names);
            let suspects = Suspects::new(shared, session, operation.budget.path(), &*queue);
            let watch = watch_children(shared, session, watching, suspects.watch());
            return Ok(Some((queue, watch)));
        }
        Err(Failure::Zk(Error::NoNode)) => {}
        Err(failure) => return Err(failure),
    }
    // A missing parent has no children to watch, so the watch is on the creation of the parent.
    let watched = read_armed(operation, session, Watched::Missing(path), |client, path| {
        Box::pin(client.check_and_watch_stat(path))
    });
    let (stat, watching) = watched.await?;
    Ok(stat.is_none().then(|| (Queue::default(), watch_children(shared, session, watching, pending()))))
}

/// A node that this event reports as deleted may exist under another name, if its label can change.
fn watch(
    shared: &Shared,
    session: SessionKey,
    watching: Watching,
    label: Label,
    suspects: impl Future<Output = Infallible> + Send + 'static,
) -> Watch {
    one_shot(shared, session, watching, suspects, move |event| match event {
        EventType::NodeDeleted if label == Label::Lock => WatchEvent::Deleted,
        _ => WatchEvent::Changed,
    })
}

fn watch_children(
    shared: &Shared,
    session: SessionKey,
    watching: Watching,
    suspects: impl Future<Output = Infallible> + Send + 'static,
) -> Watch {
    one_shot(shared, session, watching, suspects, |_| WatchEvent::Changed)
}

/// Fires with its event, or when its session ends here, which the client library would report much later.
fn one_shot(
    shared: &Shared,
    session: SessionKey,
    watching: Watching,
    suspects: impl Future<Output = Infallible> + Send + 'static,
    meaning: impl Fn(EventType) -> WatchEvent + Send + 'static,
) -> Watch {
    let ended = shared.sessions.ended(session);
    Watch::new(async move {
        tokio::select! {
            biased;
            () = ended => WatchEvent::Changed,
            event = watching => event.map_or(WatchEvent::Changed, meaning),
            never = suspects => match never {},
        }
    })
}
