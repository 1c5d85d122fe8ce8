//! Reading without a watch.

use std::time::{Duration, SystemTime};

use zlock_core::kit::SessionKey;
use zlock_core::{Consistency, FencingToken, Node, NodeData, NodeName};
use zookeeper_client::Stat;

use crate::error::Failure;
use crate::operations::operation::{Operation, owner};

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
    let read = operation.data(session, operation.node_path(name), Consistency::Seen).await?;
    Ok(read.map(|(data, stat)| node_data(data, &stat)))
}

/// Returns the contents of a response. The time is that of the leader's clock when the node got its current name.
fn node_data(data: Vec<u8>, stat: &Stat) -> NodeData {
    let token = FencingToken::new(stat.czxid.cast_unsigned());
    let told = NodeData::new(data, owner(stat)).with_fencing_token(token);
    let since_epoch = u64::try_from(stat.ctime).ok().map(Duration::from_millis);
    match since_epoch.and_then(|time| SystemTime::UNIX_EPOCH.checked_add(time)) {
        Some(created) => told.with_created(created),
        None => told,
    }
}
