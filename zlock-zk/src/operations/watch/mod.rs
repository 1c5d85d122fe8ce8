//! One-shot watches on a node and on a queue.

mod arm;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use zlock_core::kit::SessionKey;
use zlock_core::{
    Consistency, Existence, FencingToken, Head, Label, Node, NodeName, Queue, Watch, WatchEvent,
};
use zookeeper_client::{Error, EventType, Stat};

use crate::error::{Failure, if_exists};
use crate::operations::operation::Operation;
use crate::operations::watch::arm::read_armed;
use crate::session::Shared;
use crate::watches::watchers::Watched;
use crate::watches::watching::Watching;

/// The time between two looks of a wait without a watch.
const LOOK_LATER: Duration = Duration::from_secs(1);

/// Arms a watch on a node if it is still as it was seen.
pub(crate) async fn watch_node(
    operation: &mut Operation<'_>,
    session: SessionKey,
    seen: &Node,
) -> Result<Existence, Failure> {
    let shared = operation.shared;
    let read = match read_and_watch(operation, session, &seen.name).await {
        Err(failure) if failure.is_without_a_watch() => {
            let queue = operation.list(session, Consistency::Seen).await?;
            return Ok(match queue.find(&seen.id) {
                None => Existence::Deleted,
                Some(node) if node.name == seen.name => {
                    Existence::Watching(look_later(operation, session, &failure))
                }
                Some(node) => Existence::Changed(node.clone()),
            });
        }
        read => read?,
    };
    match read {
        Some((_, watching)) => Ok(Existence::Watching(watch(shared, session, watching, seen.label))),
        // Such a label never changes, and the session's own server has answered.
        None if seen.label.is_fixed() && !shared.may_be_behind(session) => Ok(Existence::Deleted),
        // The node is gone, or was renamed: only a listing shows which.
        None => {
            let queue = operation.list(session, Consistency::Seen).await?;
            match queue.find(&seen.id) {
                None => Ok(Existence::Deleted),
                // A watch connection's server does not have it. The next attempt follows after a pause.
                Some(node) if node.name == seen.name => Err(Failure::ServersDisagree),
                Some(node) => Ok(Existence::Changed(node.clone())),
            }
        }
    }
}

/// Reads the data of a node, whatever its current name, and arms a watch on its change. `name` is the last known one.
pub(crate) async fn watch_data(
    operation: &mut Operation<'_>,
    session: SessionKey,
    node: &Node,
    name: &mut NodeName,
) -> Result<Option<(Vec<u8>, Watch)>, Failure> {
    loop {
        if let Some((data, watching)) = read_and_watch(operation, session, name).await? {
            return Ok(Some((data, watch(operation.shared, session, watching, node.label))));
        }
        let Some(now) = operation.renamed(session, node).await? else { return Ok(None) };
        *name = now;
    }
}

/// Lists a queue, and arms a watch on its changes.
pub(crate) async fn watch_queue(
    operation: &mut Operation<'_>,
    session: SessionKey,
) -> Result<(Queue, Watch), Failure> {
    loop {
        if let Some(watched) = try_to_watch_queue(operation, session).await? {
            return Ok(watched);
        }
    }
}

/// Returns `None` if the path was created in between.
async fn try_to_watch_queue(
    operation: &mut Operation<'_>,
    session: SessionKey,
) -> Result<Option<(Queue, Watch)>, Failure> {
    Ok(match watch_names(operation, session).await {
        Err(failure) if failure.is_without_a_watch() => {
            let queue = operation.list(session, Consistency::Seen).await?;
            Some((queue, look_later(operation, session, &failure)))
        }
        names => names?
            .map(|(names, watching)| (Queue::listed(names), watch_any(operation.shared, session, watching))),
    })
}

/// Lists the children of the operation's path, and arms a watch on their changes. A path that does not exist has no children to
/// watch, so the watch is then on its creation. Returns `None` if the path was created in between.
pub(crate) async fn watch_names(
    operation: &mut Operation<'_>,
    session: SessionKey,
) -> Result<Option<(Vec<String>, Watching)>, Failure> {
    let path = operation.server_path();
    let listed = read_armed(operation, session, Watched::Children(path.clone()), |client, path| {
        Box::pin(client.list_and_watch_children(path))
    });
    match listed.await {
        Err(Failure::Zk(Error::NoNode)) => {}
        listed => return listed.map(Some),
    }
    let watching = watch_missing(operation, session, path).await?;
    Ok(watching.map(|watching| (Vec::new(), watching)))
}

/// Arms a watch on the creation of a node that does not exist. Returns `None` if it was created in between.
pub(crate) async fn watch_missing(
    operation: &mut Operation<'_>,
    session: SessionKey,
    path: Arc<str>,
) -> Result<Option<Watching>, Failure> {
    let watched = read_armed(operation, session, Watched::Missing(path), |client, path| {
        Box::pin(client.check_and_watch_stat(path))
    });
    let (stat, watching) = watched.await?;
    Ok(stat.is_none().then_some(watching))
}

/// Lists a queue, reads its head, and arms a watch on it. `gone` is a head that was listed and then not found.
pub(crate) async fn watch_head(
    operation: &mut Operation<'_>,
    session: SessionKey,
    gone: &mut Option<NodeName>,
) -> Result<(Option<Head>, Watch), Failure> {
    loop {
        let queue = operation.list(session, Consistency::Seen).await?;
        let Some(node) = queue.first() else {
            match try_to_watch_queue(operation, session).await? {
                Some((queue, watch)) if queue.is_empty() => return Ok((None, watch)),
                _ => continue,
            }
        };
        let path = operation.node_path(&node.name).into();
        if let Some((data, stat, watching)) = read_all_and_watch(operation, session, path).await? {
            let token = FencingToken::new(stat.czxid.cast_unsigned());
            let watch = watch(operation.shared, session, watching, node.label);
            return Ok((Some(Head::new(node.clone(), data, token)), watch));
        }
        // A head that was deleted since the listing has a successor, or the queue is empty. If it is listed again, a watch
        // connection's server does not have it.
        if gone.replace(node.name.clone()).as_ref() == Some(&node.name) {
            return Err(Failure::ServersDisagree);
        }
    }
}

/// Sends one request for a node's data, with a watch on the node. `None` without a watch if the node does not exist.
/// (`exists` would leave a watch.)
async fn read_and_watch(
    operation: &mut Operation<'_>,
    session: SessionKey,
    name: &NodeName,
) -> Result<Option<(Vec<u8>, Watching)>, Failure> {
    let path = operation.node_path(name).into();
    let read = read_all_and_watch(operation, session, path).await?;
    Ok(read.map(|(data, _, watching)| (data, watching)))
}

/// Does the same for the node of any path, and returns its stat as well.
pub(crate) async fn read_all_and_watch(
    operation: &mut Operation<'_>,
    session: SessionKey,
    path: Arc<str>,
) -> Result<Option<(Vec<u8>, Stat, Watching)>, Failure> {
    let read = read_armed(operation, session, Watched::Node(path), |client, path| {
        Box::pin(async move {
            let (data, stat, watcher) = client.get_and_watch_data(path).await?;
            Ok(((data, stat), watcher))
        })
    });
    Ok(if_exists(read.await)?.map(|((data, stat), watching)| (data, stat, watching)))
}

/// A node that this event reports as deleted may exist under another name, if its label can change.
fn watch(shared: &Shared, session: SessionKey, watching: Watching, label: Label) -> Watch {
    one_shot(shared, session, watching, move |event| match event {
        EventType::NodeDeleted if label.is_fixed() => WatchEvent::Deleted,
        _ => WatchEvent::Changed,
    })
}

/// A watch on a queue, on a value, which need not exist, or on a group and its members.
pub(crate) fn watch_any(shared: &Shared, session: SessionKey, watching: Watching) -> Watch {
    one_shot(shared, session, watching, |_| WatchEvent::Changed)
}

/// Fires after a while: for a wait that no connection has room for. Otherwise its own node, which may be the first by now, would keep
/// the whole queue waiting.
fn look_later(operation: &Operation<'_>, session: SessionKey, why: &Failure) -> Watch {
    // Each second, for each such wait.
    tracing::debug!(path = %operation.budget.path(), ?why, "a wait without a watch: the queue is looked at each second");
    let ended = operation.shared.sessions.ended(session);
    Watch::new(async move {
        tokio::select! {
            biased;
            () = ended => {}
            () = sleep(LOOK_LATER) => {}
        }
        WatchEvent::Changed
    })
}

/// Fires with its event, or when its session ends here, which the client library would report much later.
fn one_shot(
    shared: &Shared,
    session: SessionKey,
    watching: Watching,
    meaning: impl Fn(EventType) -> WatchEvent + Send + 'static,
) -> Watch {
    let ended = shared.sessions.ended(session);
    Watch::new(async move {
        tokio::select! {
            biased;
            () = ended => WatchEvent::Changed,
            event = watching => event.map_or(WatchEvent::Changed, meaning),
        }
    })
}
