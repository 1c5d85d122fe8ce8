//! Reading without a watch.

use etcd_client::{GetResponse, KeyValue};
use zlock_core::kit::SessionKey;
use zlock_core::{FencingToken, Node, NodeData, Queue};

use crate::connection::connect::By;
use crate::error::Failure;
use crate::keys::key::{self, Range};
use crate::keys::revision;
use crate::keys::value;
use crate::operations::detached::{self, Detached};
use crate::operations::operation::Operation;
use crate::requests::txn::last_two;
use crate::session::lease;

/// Lists a queue, at least up to an own node. Without one, also finds out at no cost whether a node of ours is missing.
pub(crate) async fn list(
    operation: &Operation<'_>,
    lease: SessionKey,
    up_to: Option<&Node>,
) -> Result<Queue, Failure> {
    let Operation { shared, keys, .. } = operation;
    if let Some(node) = up_to
        && let Some(queue) = list_up_to(operation, lease, node).await?
    {
        return Ok(queue);
    }
    loop {
        let mark = shared.sessions.own().mark();
        let listed = operation.read(lease, keys.range()).await?;
        lease::compare(shared, lease, mark, keys, listed.kvs()).await?;
        let queue = operation.queue(lease, listed.kvs());
        if detached::clear(operation, lease, &queue).await? != Detached::Cleared {
            shared.listings.note(keys, &queue, true, revision::of(listed.header()));
            return Ok(queue);
        }
    }
}

/// Lists the own node and the node right before it. `None` if the node before may not be among two keys.
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
async fn list_up_to(
    operation: &Operation<'_>,
    lease: SessionKey,
    node: &Node,
) -> Result<Option<Queue>, Failure> {
    let Operation { shared, keys, .. } = operation;
    loop {
        let listed = read_up_to(operation, lease, node).await?;
        if listed.more() && !operation.are_places(lease, listed.kvs()) {
            // One of them belongs to a lock further down or to no lock.
            return Ok(None);
        }
        let queue = operation.queue(lease, listed.kvs());
        if !queue.iter().any(|listed| listed.sequence == node.sequence) {
            lease::missed(shared, lease, node).await?;
        }
        if detached::clear(operation, lease, &queue).await? != Detached::Cleared {
            shared.listings.note(keys, &queue, !listed.more(), revision::of(listed.header()));
            return Ok(Some(queue));
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
    let (range, newest) = (operation.keys.range(), operation.shared.endpoints.history().now().revision);
    let read = operation.get(lease, By::Member, range.clone(), both.clone()).await?;
    if revision::of(read.header()) >= newest {
        return Ok(read);
    }
    operation.get(lease, By::Cluster, range, both).await
}

/// Reads the data of a node.
pub(crate) async fn content(
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
        NodeData::new(value::read(kv.value()).data.to_owned(), key::owner(kv))
            .with_fencing_token(FencingToken::new(kv.create_revision().cast_unsigned()))
    };
    Ok(kv.map(told))
}
