//! The head of a queue, and a watch on it.

use etcd_client::{GetOptions, KeyValue, SortOrder, SortTarget};
use zlock_core::kit::SessionKey;
use zlock_core::{FencingToken, Head, Node, Watch, WatchEvent};

use crate::connection::connect::By;
use crate::error::Failure;
use crate::keys::key::Range;
use crate::keys::revision;
use crate::keys::value;
use crate::operations::detached::{self, Detached};
use crate::operations::operation::Operation;
use crate::operations::watch::{arm, arm_queue, until};

/// Reads the head of a queue with its data, and arms a watch on its key alone: a node that is created behind it costs nothing.
pub(crate) async fn arm_head(
    operation: &Operation<'_>,
    lease: SessionKey,
) -> Result<(Option<Head>, Watch), Failure> {
    loop {
        if let Some((node, kv, revision)) = first(operation, lease).await? {
            if let Some((head, watch)) = arm_node(operation, lease, node, kv, revision).await? {
                return Ok((Some(head), watch));
            }
        } else {
            let (queue, watch) = arm_queue(operation, lease).await?;
            if queue.is_empty() {
                return Ok((None, watch));
            }
        }
    }
}

/// Reads the first node of the queue, with its key and the revision of the response.
async fn first(
    operation: &Operation<'_>,
    lease: SessionKey,
) -> Result<Option<(Node, KeyValue, i64)>, Failure> {
    let oldest = GetOptions::new().with_sort(SortTarget::Create, SortOrder::Ascend);
    let range = operation.keys.range();
    let mut read = operation.get(lease, By::Cluster, range.clone(), oldest.clone().with_limit(1)).await?;
    if read.more() && !operation.are_places(lease, read.kvs()) {
        // The oldest key belongs to a lock further down or to no lock.
        read = operation.get(lease, By::Cluster, range, oldest).await?;
    }
    let revision = revision::of(read.header());
    let node =
        |kv: KeyValue| operation.shared.node(lease, &operation.keys, &kv).map(|node| (node, kv, revision));
    Ok(read.take_kvs().into_iter().find_map(node))
}

/// Arms the watch. `None` if the node is gone by now.
async fn arm_node(
    operation: &Operation<'_>,
    lease: SessionKey,
    node: Node,
    mut kv: KeyValue,
    mut seen: i64,
) -> Result<Option<(Head, Watch)>, Failure> {
    let Detached::Owned { look_again } =
        detached::clear(operation, lease, std::slice::from_ref(&node)).await?
    else {
        return Ok(None);
    };
    let range = Range { start: operation.keys.of(&node.name), end: None };
    let (mut armed, since) = arm(operation, lease, range.clone()).await?;
    if since > seen {
        // Something was written in between.
        let mut read = operation.read(lease, range).await?;
        seen = revision::of(read.header());
        match read.take_kvs().into_iter().find(|now| now.create_revision() == kv.create_revision()) {
            Some(now) => kv = now,
            None => return Ok(None),
        }
    }
    let watch = operation.shared.sessions.watch(lease, async move {
        armed.next_after(seen).await;
        WatchEvent::Changed
    });
    let data = value::read(kv.value()).data.to_owned();
    let token = FencingToken::new(kv.create_revision().cast_unsigned());
    Ok(Some((Head::new(node, data, token), until(look_again, watch))))
}
