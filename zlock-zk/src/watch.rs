//! One-shot watches on a node and on a queue.

use zlock_core::{Existence, Label, LockPath, Node, NodeName, Queue, Result, Watch, WatchEvent};
use zookeeper_client::{Error, EventType, OneshotWatcher};

use crate::error::Failure;
use crate::operation::Operation;
use crate::session::{Freshness, Lease, Shared, catch_up};

/// Arms a watch on `seen`, if it is still as it was seen.
pub(crate) async fn node(session: &Shared, parent: &LockPath, seen: &Node) -> Result<Existence> {
    let mut operation = Operation::new(session, "exists_with_watch", parent);
    loop {
        let lease = operation.lease().await?;
        match arm(&operation, lease, seen).await {
            Ok(existence) => return Ok(existence),
            Err(failure) => operation.again(failure).await?,
        }
    }
}

async fn arm(operation: &Operation<'_>, lease: Lease, seen: &Node) -> Result<Existence, Failure> {
    match read_and_watch(operation, lease, &seen.name).await? {
        Some((_, watcher)) => Ok(Existence::Watching(watch(operation.session, lease, watcher, seen.label))),
        None if seen.label == Label::Lock => Ok(Existence::Gone),
        // Gone, or renamed: only a listing can tell.
        None => {
            let queue = operation.list(lease, Freshness::Told).await?;
            Ok(match queue.find(&seen.token) {
                None => Existence::Gone,
                Some(node) => Existence::Changed(node.clone()),
            })
        }
    }
}

/// The data of a node, under whatever name it has by now, and a watch on its change.
pub(crate) async fn data(
    session: &Shared,
    parent: &LockPath,
    node: &Node,
) -> Result<Option<(Vec<u8>, Watch)>> {
    let mut operation = Operation::new(session, "data_with_watch", parent);
    let mut name = node.name.clone();
    loop {
        let lease = operation.lease().await?;
        let failure = match read_and_watch(&operation, lease, &name).await {
            Ok(Some((data, watcher))) => {
                return Ok(Some((data, watch(session, lease, watcher, node.label))));
            }
            Ok(None) => match operation.renamed(lease, node).await {
                Ok(Some(now)) => {
                    name = now;
                    continue;
                }
                Ok(None) => return Ok(None),
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        operation.again(failure).await?;
    }
}

/// One request for a node's data, with a watch on the node. `None` if there is no such node, and no watch:
/// `exists` would leave one.
async fn read_and_watch(
    operation: &Operation<'_>,
    lease: Lease,
    name: &NodeName,
) -> Result<Option<(Vec<u8>, OneshotWatcher)>, Failure> {
    let path = operation.node_path(name);
    let read = operation.ask(lease, move |live| async move {
        let (synced, read) =
            tokio::join!(catch_up(&live, Freshness::Told), live.client.get_and_watch_data(&path));
        let (data, _, watcher) = read?;
        synced.map(|()| (data, watcher))
    });
    match read.await {
        Ok(read) => Ok(Some(read)),
        Err(Failure::Zk(Error::NoNode)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The queue and a watch on its changes.
pub(crate) async fn queue(session: &Shared, parent: &LockPath) -> Result<(Queue, Watch)> {
    let mut operation = Operation::new(session, "children_with_watch", parent);
    loop {
        let lease = operation.lease().await?;
        match list_and_watch(&operation, lease).await {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => {}
            Err(failure) => operation.again(failure).await?,
        }
    }
}

/// `None` if the parent came to be in between.
async fn list_and_watch(operation: &Operation<'_>, lease: Lease) -> Result<Option<(Queue, Watch)>, Failure> {
    let path = operation.server_path();
    let listed = operation.ask(lease, move |live| async move {
        let (synced, listed) =
            tokio::join!(catch_up(&live, Freshness::Told), live.client.list_and_watch_children(&path));
        let listed = listed?;
        synced.map(|()| listed)
    });
    match listed.await {
        Ok((names, watcher)) => {
            let watch = watch_children(operation.session, lease, watcher);
            return Ok(Some((Queue::of_names(names), watch)));
        }
        Err(Failure::Zk(Error::NoNode)) => {}
        Err(failure) => return Err(failure),
    }
    // No parent, no children to watch: watch for the parent.
    let path = operation.server_path();
    let watched =
        operation.ask(lease, move |live| async move { live.client.check_and_watch_stat(&path).await });
    let (stat, watcher) = watched.await?;
    Ok(stat.is_none().then(|| (Queue::default(), watch_children(operation.session, lease, watcher))))
}

/// A node that is gone by this event may be there under another name, if its label is one that is changed.
fn watch(session: &Shared, lease: Lease, watcher: OneshotWatcher, label: Label) -> Watch {
    one_shot(session, lease, watcher, move |event| match event {
        EventType::NodeDeleted if label == Label::Lock => WatchEvent::Deleted,
        _ => WatchEvent::Changed,
    })
}

fn watch_children(session: &Shared, lease: Lease, watcher: OneshotWatcher) -> Watch {
    one_shot(session, lease, watcher, |_| WatchEvent::Changed)
}

/// Fires with its event, or when its session ends here: the client library would tell that much later.
fn one_shot(
    session: &Shared,
    lease: Lease,
    watcher: OneshotWatcher,
    meaning: impl Fn(EventType) -> WatchEvent + Send + 'static,
) -> Watch {
    let mut events = session.publisher.subscribe();
    Watch::new(async move {
        tokio::select! {
            // The library's watcher panics when it is polled after the end of its runtime.
            biased;
            _ = events.over(lease.epoch) => WatchEvent::Changed,
            event = watcher.changed() => meaning(event.event_type),
        }
    })
}
