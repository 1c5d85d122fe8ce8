//! Writing a node's data.

use zlock_core::kit::SessionKey;
use zlock_core::{ErrorKind, LockPath, Node, Result};
use zookeeper_client::Error;

use crate::error::Failure;
use crate::operation::Operation;
use crate::session::Shared;

/// The maximum size of the data. The rest of one request is well below what remains of the server's 1 MB.
const MAX_DATA: usize = 1_000_000;

/// Refuses a size that makes the server break the connection.
pub(crate) fn check_size(operation: &Operation<'_>, data: &[u8]) -> Result<()> {
    if data.len() <= MAX_DATA {
        return Ok(());
    }
    let message = format!("{} bytes of node data; the limit is {MAX_DATA}", data.len());
    Err(operation.budget.error(ErrorKind::InvalidArgument).with_message(message))
}

/// Writes the data of a node, whatever its current name.
pub(crate) async fn data(shared: &Shared, parent: &LockPath, node: &Node, data: &[u8]) -> Result<()> {
    let mut operation = Operation::new(shared, "set_data", parent);
    check_size(&operation, data)?;
    let mut name = node.name.clone();
    loop {
        let session = operation.budget.session().await?;
        let path = operation.node_path(&name);
        let failure = match write(&mut operation, session, path, data).await {
            Ok(true) => return Ok(()),
            Ok(false) => match operation.renamed(session, node).await {
                // The leader has no node of this name, and the connected server has applied that.
                Ok(Some(now)) if now == name => Failure::ServersDisagree,
                Ok(Some(now)) => {
                    name = now;
                    continue;
                }
                Ok(None) => {
                    operation.budget.ambiguous = false;
                    return Err(operation.budget.error(ErrorKind::NodeDeleted));
                }
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        operation.budget.retry(failure).await?;
    }
}

/// Returns `false` if the node does not exist.
async fn write(
    operation: &mut Operation<'_>,
    session: SessionKey,
    path: String,
    data: &[u8],
) -> Result<bool, Failure> {
    let data = data.to_owned();
    let written =
        operation.write(session, move |live| async move { live.client.set_data(&path, &data, None).await });
    match written.await {
        Ok(_) => Ok(true),
        Err(Failure::Zk(Error::NoNode)) => Ok(false),
        Err(failure) => Err(failure),
    }
}
