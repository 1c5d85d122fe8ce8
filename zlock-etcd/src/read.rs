//! Reading without a watch.

use etcd_client::KeyValue;
use zlock_core::kit::SessionKey;
use zlock_core::{LockPath, Node, NodeData, Queue, Result};

use crate::detached::{self, Detached};
use crate::error::Failure;
use crate::key::{self, Range};
use crate::lease;
use crate::operation::Operation;
use crate::session::Shared;
use crate::value;

/// The queue of a path.
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

/// The keys of the queue; also finds out, at no cost, whether one of ours is not among them any more.
async fn list(operation: &Operation<'_>, lease: SessionKey) -> Result<Queue, Failure> {
    let Operation { shared, keys, .. } = operation;
    loop {
        let mark = shared.sessions.own().mark();
        let listed = operation.read(lease, keys.range()).await?;
        lease::compare(shared, lease, mark, keys, listed.kvs()).await?;
        let queue = operation.queue(lease, listed.kvs());
        if detached::clear(operation, lease, &queue).await? != Detached::Removed {
            let revision = listed.header().map_or(0, etcd_client::ResponseHeader::revision);
            shared.listings.note(keys, &queue, true, revision);
            return Ok(queue);
        }
    }
}

/// The data of a node.
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
    };
    Ok(kv.map(told))
}
