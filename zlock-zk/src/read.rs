//! Reading without a watch.

use zlock_core::{LockPath, Node, Queue, Result};
use zookeeper_client::Error;

use crate::error::Failure;
use crate::operation::Operation;
use crate::session::{Freshness, Lease, Shared, catch_up};

/// The queue of a path.
pub(crate) async fn children(session: &Shared, parent: &LockPath) -> Result<Queue> {
    let mut operation = Operation::new(session, "children", parent);
    loop {
        let lease = operation.lease().await?;
        match operation.list(lease, Freshness::Told).await {
            Ok(queue) => return Ok(queue),
            Err(failure) => operation.again(failure).await?,
        }
    }
}

/// The data of a node, under whatever name it has by now.
pub(crate) async fn data(session: &Shared, parent: &LockPath, node: &Node) -> Result<Option<Vec<u8>>> {
    let mut operation = Operation::new(session, "data", parent);
    let mut name = node.name.clone();
    loop {
        let lease = operation.lease().await?;
        let path = format!("{}/{name}", operation.server_path());
        let failure = match read(&operation, lease, path).await {
            Ok(Some(data)) => return Ok(Some(data)),
            Ok(None) => match operation.renamed(lease, node).await {
                Ok(Some(now)) => {
                    name = now;
                    continue;
                }
                Ok(None) => return Ok(None),
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        operation.again(failure).await?;
    }
}

async fn read(operation: &Operation<'_>, lease: Lease, path: String) -> Result<Option<Vec<u8>>, Failure> {
    let read = operation.ask(lease, move |live| async move {
        let (synced, read) = tokio::join!(catch_up(&live, Freshness::Told), live.client.get_data(&path));
        synced.and(read)
    });
    match read.await {
        Ok((data, _)) => Ok(Some(data)),
        Err(Failure::Zk(Error::NoNode)) => Ok(None),
        Err(failure) => Err(failure),
    }
}
