//! Writing a node's data.

use zlock_core::kit::SessionKey;
use zlock_core::{Consistency, DataWrite, Node, NodeName};
use zookeeper_client::Error;

use crate::error::{Failure, if_exists};
use crate::operations::operation::{Leaves, Operation};

/// Writes the data of a node, whatever its current name. `name` is the last known one.
pub(crate) async fn set(
    operation: &mut Operation<'_>,
    session: SessionKey,
    node: &Node,
    name: &mut NodeName,
    data: &[u8],
) -> Result<DataWrite, Failure> {
    while !write(operation, session, name, data).await? {
        match operation.renamed(session, node).await? {
            // The leader has no node of this name, and the connected server has applied that.
            Some(now) if now == *name => return Err(Failure::ServersDisagree),
            Some(now) => *name = now,
            None => return Err(operation.node_deleted()),
        }
    }
    Ok(DataWrite::Written)
}

/// Writes the data of a candidate if it was written this often.
pub(crate) async fn replace(
    operation: &mut Operation<'_>,
    session: SessionKey,
    node: &Node,
    writes: u64,
    data: &[u8],
) -> Result<DataWrite, Failure> {
    if node.session.is_some_and(|id| id != session.id) {
        return Err(Failure::OtherSession);
    }
    let (path, sent) = (operation.node_path(&node.name), data.to_owned());
    // The server counts the writes. No number of writes is the version that means any.
    let version = i32::try_from(writes).unwrap_or(i32::MAX);
    let written = operation.send(session, Leaves::Change, move |live| async move {
        live.client.set_data(&path, &sent, Some(version)).await
    });
    match written.await {
        Ok(_) => return Ok(DataWrite::Written),
        Err(Failure::Zk(Error::NoNode)) => return Err(operation.node_deleted()),
        Err(Failure::Zk(Error::BadVersion)) => {}
        Err(failure) => return Err(failure),
    }
    let read = operation.data(session, operation.node_path(&node.name), Consistency::Seen).await?;
    let Some((read, stat)) = read else { return Err(operation.node_deleted()) };
    let now = u64::from(stat.version.cast_unsigned());
    // By an earlier attempt whose answer was lost.
    let is_ours = operation.budget.ambiguous && now == writes + 1 && read == data;
    Ok(if is_ours { DataWrite::Written } else { DataWrite::Conflict(now) })
}

/// Returns `false` if the node does not exist.
async fn write(
    operation: &mut Operation<'_>,
    session: SessionKey,
    name: &NodeName,
    data: &[u8],
) -> Result<bool, Failure> {
    let (path, data) = (operation.node_path(name), data.to_owned());
    let written = operation.send(session, Leaves::Change, move |live| async move {
        live.client.set_data(&path, &data, None).await
    });
    if_exists(written.await).map(|written| written.is_some())
}
