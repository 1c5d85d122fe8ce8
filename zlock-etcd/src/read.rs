//! Reading without a watch.

use etcd_client::{GetResponse, KeyValue};
use zlock_core::kit::SessionKey;
use zlock_core::{FencingToken, LockPath, Node, NodeData, Queue, Result};

use crate::connect::By;
use crate::detached::{self, Detached};
use crate::error::Failure;
use crate::key::{self, Range};
use crate::lease;
use crate::operation::Operation;
use crate::revision;
use crate::session::Shared;
use crate::txn::last_two;
use crate::value;

/// Returns the queue of a path.
pub(crate) async fn children(shared: &Shared, parent: &LockPath) -> Result<Queue> {
    let mut operation = Operation::new(shared, "children", parent);
    loop {
        let lease = operation.budget.session().await?;
        match list(&operation, lease).await {
            Ok(queue) => return Ok(queue),
            Err(failure) => operation.budget.retry(failure).await?,
        }
    }
}

/// Reads the queue. Also finds out, at no cost, whether a node of ours is missing.
async fn list(operation: &Operation<'_>, lease: SessionKey) -> Result<Queue, Failure> {
    let Operation { shared, keys, .. } = operation;
    loop {
        let mark = shared.sessions.own().mark();
        let listed = operation.read(lease, keys.range()).await?;
        lease::compare(shared, lease, mark, keys, listed.kvs()).await?;
        let queue = operation.queue(lease, listed.kvs());
        if detached::clear(operation, lease, &queue).await? != Detached::Removed {
            shared.listings.note(keys, &queue, true, revision::of(listed.header()));
            return Ok(queue);
        }
    }
}

/// Returns the own node and the node right before it.
///
/// # Reading from one server
/// The server need not ask the others, so it may be behind. It may even be behind an event of its own, which it sends a
/// moment before the write ends. An answer counts only if it is not older than what this backend has seen:
///
/// - The backend has seen the create of `node`. Nothing is ever created with a lower revision than what exists, so every
///   state since then contains all nodes before `node` that exist now.
/// - It has seen the deletion that woke the waiter. The answer may still contain another node before `node` that is gone by
///   now. The waiter then tries to watch that node, learns that it is gone, and asks again.
/// - The answer may still contain `node` itself although it is gone. If its session is over, the session's deadline here has
///   passed, and a grant checks that. If an operator deleted it, no way of reading helps, because that may also happen right
///   after the answer.
pub(crate) async fn children_up_to(shared: &Shared, parent: &LockPath, node: &Node) -> Result<Queue> {
    let mut operation = Operation::new(shared, "children_up_to", parent);
    loop {
        let lease = operation.budget.session().await?;
        match list_up_to(&operation, lease, node).await {
            Ok(queue) => return Ok(queue),
            Err(failure) => operation.budget.retry(failure).await?,
        }
    }
}

async fn list_up_to(operation: &Operation<'_>, lease: SessionKey, node: &Node) -> Result<Queue, Failure> {
    let Operation { shared, keys, .. } = operation;
    loop {
        let listed = read_up_to(operation, lease, node).await?;
        if listed.more() && !listed.kvs().iter().all(|kv| keys.node(kv).is_some()) {
            // One of the two keys belongs to a lock further down or to no lock, so the node before may not be among them.
            return list(operation, lease).await;
        }
        let queue = operation.queue(lease, listed.kvs());
        if !queue.iter().any(|listed| listed.sequence == node.sequence) {
            lease::missed(shared, lease, node).await?;
        }
        if detached::clear(operation, lease, &queue).await? != Detached::Removed {
            shared.listings.note(keys, &queue, !listed.more(), revision::of(listed.header()));
            return Ok(queue);
        }
    }
}

/// Reads the last two keys up to that of the node, in a state that is not older than what this backend has seen.
async fn read_up_to(
    operation: &Operation<'_>,
    lease: SessionKey,
    node: &Node,
) -> Result<GetResponse, Failure> {
    let both = last_two().with_max_create_revision(node.sequence.get());
    let (range, newest) = (operation.keys.range(), operation.shared.newest.get());
    let read = operation.get(lease, By::Member, range.clone(), both.clone()).await?;
    if revision::of(read.header()) >= newest {
        return Ok(read);
    }
    operation.get(lease, By::Cluster, range, both).await
}

/// Returns the data of a node.
pub(crate) async fn data(shared: &Shared, parent: &LockPath, node: &Node) -> Result<Option<NodeData>> {
    let mut operation = Operation::new(shared, "data", parent);
    loop {
        let lease = operation.budget.session().await?;
        match content(&operation, lease, node).await {
            Ok(data) => return Ok(data),
            Err(failure) => operation.budget.retry(failure).await?,
        }
    }
}

async fn content(
    operation: &Operation<'_>,
    lease: SessionKey,
    node: &Node,
) -> Result<Option<NodeData>, Failure> {
    let key = operation.keys.of(&node.name);
    let answer = operation.read(lease, Range { start: key, end: None }).await?;
    let kv = answer.kvs().first().filter(|kv| kv.create_revision() == node.sequence.get());
    if kv.is_none() {
        lease::missed(operation.shared, lease, node).await?;
    }
    let told = |kv: &KeyValue| {
        NodeData::new(value::read(node.name.as_str(), kv.value()).data.to_owned(), key::owner(kv))
            .with_fencing_token(FencingToken::new(kv.create_revision().cast_unsigned()))
    };
    Ok(kv.map(told))
}
