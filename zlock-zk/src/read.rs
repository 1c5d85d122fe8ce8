//! Reading without a watch.

use std::time::{Duration, SystemTime};

use zlock_core::kit::SessionKey;
use zlock_core::{FencingToken, LockPath, Node, NodeData, Queue, Result, SessionId};
use zookeeper_client::{Error, Stat};

use crate::error::Failure;
use crate::operation::Operation;
use crate::session::{Freshness, Shared, catch_up};

/// Returns the queue of a path.
pub(crate) async fn children(shared: &Shared, parent: &LockPath) -> Result<Queue> {
    let mut operation = Operation::new(shared, "children", parent);
    loop {
        let session = operation.budget.session().await?;
        match operation.list(session, Freshness::Told).await {
            Ok(queue) => return Ok(queue),
            Err(failure) => operation.budget.retry(failure).await?,
        }
    }
}

/// Returns the data of a node, whatever its current name.
pub(crate) async fn data(shared: &Shared, parent: &LockPath, node: &Node) -> Result<Option<NodeData>> {
    let mut operation = Operation::new(shared, "data", parent);
    let mut name = node.name.clone();
    loop {
        let session = operation.budget.session().await?;
        let path = operation.node_path(&name);
        let failure = match read(&operation, session, path).await {
            Ok(Some(data)) => return Ok(Some(data)),
            Ok(None) => match operation.renamed(session, node).await {
                Ok(Some(now)) => {
                    name = now;
                    continue;
                }
                Ok(None) => return Ok(None),
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        operation.budget.retry(failure).await?;
    }
}

async fn read(
    operation: &Operation<'_>,
    session: SessionKey,
    path: String,
) -> Result<Option<NodeData>, Failure> {
    let read = operation.ask(session, move |live| async move {
        let (synced, read) = tokio::join!(catch_up(&live, Freshness::Told), live.client.get_data(&path));
        synced.and(read)
    });
    match read.await {
        Ok((data, stat)) => Ok(Some(told(data, &stat))),
        Err(Failure::Zk(Error::NoNode)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Returns the contents of a response. The time is that of the leader's clock when the node got its current name.
fn told(data: Vec<u8>, stat: &Stat) -> NodeData {
    let owner = stat.ephemeral_owner.cast_unsigned();
    let token = FencingToken::new(stat.czxid.cast_unsigned());
    let told = NodeData::new(data, (owner != 0).then(|| SessionId::new(owner))).with_fencing_token(token);
    let since_epoch = u64::try_from(stat.ctime).ok().map(Duration::from_millis);
    match since_epoch.and_then(|time| SystemTime::UNIX_EPOCH.checked_add(time)) {
        Some(created) => told.with_created(created),
        None => told,
    }
}
