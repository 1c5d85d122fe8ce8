//! One-shot watches on a node and on a queue.

use zlock_core::{Existence, LockPath, Node, Queue, Result, Watch, WatchEvent};

use crate::error::Failure;
use crate::key::{Keys, Range};
use crate::operation::Operation;
use crate::session::{Lease, Shared};
use crate::stream::{Armed, Change};
use crate::value;

/// Arms a watch on `seen`, if it is still as it was seen.
pub(crate) async fn node(session: &Shared, parent: &LockPath, seen: &Node) -> Result<Existence> {
    let mut operation = Operation::new(session, "exists", parent);
    loop {
        let lease = operation.lease().await?;
        match arm_node(&operation, lease, seen).await {
            Ok(existence) => return Ok(existence),
            Err(failure) => operation.again(failure).await?,
        }
    }
}

async fn arm_node(operation: &Operation<'_>, lease: Lease, seen: &Node) -> Result<Existence, Failure> {
    let range = Range { start: operation.keys.of(&seen.name), end: None };
    let Confirmed { kvs, armed, revision } = confirm(operation, lease, range).await?;
    let node = kvs.first().and_then(|kv| operation.keys.node(kv));
    // Another node may have the name by now: a Go client's, which waits again.
    Ok(match node.filter(|node| node.sequence == seen.sequence) {
        None => Existence::Gone,
        Some(node) if node.label != seen.label => Existence::Changed(node),
        Some(node) => {
            Existence::Watching(one_shot(operation.session, lease, armed, revision, move |change| {
                match &change.value {
                    None => Some(WatchEvent::Deleted),
                    // Data alone is no news.
                    Some(now) if value::read(now).label == node.label => None,
                    Some(_) => Some(WatchEvent::Relabelled),
                }
            }))
        }
    })
}

/// The queue and a watch on its changes.
pub(crate) async fn queue(session: &Shared, parent: &LockPath) -> Result<(Queue, Watch)> {
    let mut operation = Operation::new(session, "children", parent);
    loop {
        let lease = operation.lease().await?;
        match arm_queue(&operation, lease).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => operation.again(failure).await?,
        }
    }
}

async fn arm_queue(operation: &Operation<'_>, lease: Lease) -> Result<(Queue, Watch), Failure> {
    let (mark, range) = (operation.session.own.mark(), operation.keys.range());
    let Confirmed { kvs, armed, revision } = confirm(operation, lease, range.clone()).await?;
    crate::lease::compare(operation.session, lease, mark, &range, &kvs).await?;
    let (queue, keys) = (operation.keys.queue(&kvs), operation.keys.clone());
    let news = move |change: &Change| news(&keys, change);
    Ok((queue, one_shot(operation.session, lease, armed, revision, news)))
}

/// What is below another lock is no news.
fn news(keys: &Keys, change: &Change) -> Option<WatchEvent> {
    keys.name(&change.key).map(|_| WatchEvent::Changed)
}

/// What was read, and a watch that tells all that has changed since.
struct Confirmed {
    kvs: Vec<etcd_client::KeyValue>,
    armed: Armed,
    /// Of the read: the watch may tell of changes that the read has seen.
    revision: i64,
}

/// A watch from now on, and a read that is not older than it: nothing falls in between. Both are under way
/// together; if the read was the first, it is repeated.
async fn confirm(operation: &Operation<'_>, lease: Lease, range: Range) -> Result<Confirmed, Failure> {
    let arm = operation.within(lease, operation.session.watches.arm(range.clone()));
    let (armed, read) = tokio::join!(arm, operation.read(lease, range.clone()));
    // If the read is refused, that says why the watch is.
    let mut read = read?;
    let (armed, since) = armed?;
    loop {
        let revision = read.header().map_or(0, etcd_client::ResponseHeader::revision);
        if revision >= since {
            return Ok(Confirmed { kvs: read.take_kvs(), armed, revision });
        }
        read = operation.read(lease, range.clone()).await?;
    }
}

/// Fires with the first change that means something, when the stream breaks, or when its session ends here.
fn one_shot(
    session: &Shared,
    lease: Lease,
    mut armed: Armed,
    revision: i64,
    meaning: impl Fn(&Change) -> Option<WatchEvent> + Send + Sync + 'static,
) -> Watch {
    let mut events = session.publisher.subscribe();
    Watch::new(async move {
        let change = async {
            loop {
                match armed.next().await {
                    None => return WatchEvent::Changed,
                    Some(change) if change.revision <= revision => {}
                    Some(change) => {
                        if let Some(event) = meaning(&change) {
                            return event;
                        }
                    }
                }
            }
        };
        tokio::select! {
            biased;
            event = change => event,
            _ = events.over(lease.epoch) => WatchEvent::Changed,
        }
    })
}
