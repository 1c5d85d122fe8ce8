//! Reading without a watch.

use std::time::{Duration, SystemTime};

use zlock_core::kit::SessionKey;
use zlock_core::{Consistency, FencingToken, Node, NodeData, NodeName, SessionId};
use zookeeper_client::Stat;

use crate::error::{Failure, if_exists};
use crate::operations::operation::{Leaves, Operation};
use crate::session::catch_up;

/// Reads the data of a node, whatever its current name. `name` is the last known one.
pub(crate) async fn content(
    operation: &mut Operation<'_>,
    session: SessionKey,
    node: &Node,
    name: &mut NodeName,
) -> Result<Option<NodeData>, Failure> {
    loop {
        if let Some(data) = read(operation, session, name).await? {
            return Ok(Some(data));
        }
        let Some(now) = operation.renamed(session, node).await? else { return Ok(None) };
        *name = now;
    }
}

async fn read(
    operation: &mut Operation<'_>,
    session: SessionKey,
    name: &NodeName,
) -> Result<Option<NodeData>, Failure> {
    let path = operation.node_path(name);
    let read = operation.send(session, Leaves::Nothing, move |live| async move {
        let (synced, read) = tokio::join!(catch_up(&live, Consistency::Seen), live.client.get_data(&path));
        synced.and(read)
    });
    Ok(if_exists(read.await)?.map(|(data, stat)| node_data(data, &stat)))
}

/// Returns the contents of a response. The time is that of the leader's clock when the node got its current name.
fn node_data(data: Vec<u8>, stat: &Stat) -> NodeData {
    let owner = stat.ephemeral_owner.cast_unsigned();
    let token = FencingToken::new(stat.czxid.cast_unsigned());
    let told = NodeData::new(data, (owner != 0).then(|| SessionId::new(owner))).with_fencing_token(token);
    let since_epoch = u64::try_from(stat.ctime).ok().map(Duration::from_millis);
    match since_epoch.and_then(|time| SystemTime::UNIX_EPOCH.checked_add(time)) {
        Some(created) => told.with_created(created),
        None => told,
    }
}
