//! The head of a queue, and a watch on it.

use std::ops::ControlFlow::{Break, Continue};

use etcd_client::{GetOptions, KeyValue, SortOrder, SortTarget};
use zlock_core::kit::{Attempt, SessionKey};
use zlock_core::{FencingToken, Head, Node, Watch, WatchEvent};

use crate::connection::connect::By;
use crate::error::Failure;
use crate::keys::key::Range;
use crate::keys::revision;
use crate::keys::value;
use crate::operations::detached::{self, Detached};
use crate::operations::operation::{Attempted, Operation};
use crate::operations::watch::{arm, arm_queue, until};

/// Reads the head of a queue with its data, and arms a watch on its key alone: a node that is created behind it costs nothing.
pub(crate) struct WatchHead;

impl<'o> Attempt<Operation<'o>, Failure> for WatchHead {
    type Output = (Option<Head>, Watch);

    async fn attempt(
        &mut self,
        operation: &mut Operation<'o>,
        lease: SessionKey,
    ) -> Attempted<(Option<Head>, Watch)> {
        let Some((node, kv, revision)) = first(operation, lease).await? else {
            let (queue, watch) = arm_queue(operation, lease).await?;
            return Ok(if queue.is_empty() { Break((None, watch)) } else { Continue(()) });
        };
        arm_head(operation, lease, node, kv, revision).await
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

async fn arm_head(
    operation: &Operation<'_>,
    lease: SessionKey,
    node: Node,
    mut kv: KeyValue,
    mut seen: i64,
) -> Attempted<(Option<Head>, Watch)> {
    let shared = operation.shared;
    let Detached::Owned { look_again } =
        detached::clear(operation, lease, std::slice::from_ref(&node)).await?
    else {
        return Ok(Continue(()));
    };
    let range = Range { start: operation.keys.of(&node.name), end: None };
    let (mut armed, since) = arm(operation, lease, range.clone()).await?;
    if since > seen {
        // Something was written in between.
        let mut read = operation.read(lease, range).await?;
        seen = revision::of(read.header());
        match read.take_kvs().into_iter().find(|now| now.create_revision() == kv.create_revision()) {
            Some(now) => kv = now,
            None => return Ok(Continue(())),
        }
    }
    let mut events = shared.sessions.events();
    let watch = Watch::new(async move {
        tokio::select! {
            biased;
            _ = armed.next_after(seen) => {}
            _ = events.ended(lease.epoch) => {}
        }
        WatchEvent::Changed
    });
    let data = value::read(kv.value()).data.to_owned();
    let token = FencingToken::new(kv.create_revision().cast_unsigned());
    Ok(Break((Some(Head::new(node, data, token)), until(look_again, watch))))
}
