//! Reading without a watch.

use std::ops::ControlFlow::{Break, Continue};
use std::time::{Duration, SystemTime};

use zlock_core::kit::{Attempt, SessionKey};
use zlock_core::{FencingToken, Node, NodeData, NodeName, Queue, SessionId};
use zookeeper_client::{Error, Stat};

use crate::error::Failure;
use crate::operations::operation::{Attempted, Leaves, Operation};
use crate::session::{Freshness, catch_up};

/// Lists a queue.
pub(crate) struct Children;

impl<'o> Attempt<Operation<'o>, Failure> for Children {
    type Output = Queue;

    async fn attempt(&mut self, operation: &mut Operation<'o>, session: SessionKey) -> Attempted<Queue> {
        operation.list(session, Freshness::Told).await.map(Break)
    }
}

/// Reads the data of a node, whatever its current name.
pub(crate) struct Data<'a> {
    pub(crate) node: &'a Node,
    /// The node's name, as far as we know.
    pub(crate) name: NodeName,
}

impl<'o> Attempt<Operation<'o>, Failure> for Data<'_> {
    type Output = Option<NodeData>;

    async fn attempt(
        &mut self,
        operation: &mut Operation<'o>,
        session: SessionKey,
    ) -> Attempted<Option<NodeData>> {
        if let Some(data) = read(operation, session, &self.name).await? {
            return Ok(Break(Some(data)));
        }
        let Some(now) = operation.renamed(session, self.node).await? else { return Ok(Break(None)) };
        self.name = now;
        Ok(Continue(()))
    }
}

async fn read(
    operation: &mut Operation<'_>,
    session: SessionKey,
    name: &NodeName,
) -> Result<Option<NodeData>, Failure> {
    let path = operation.node_path(name);
    let read = operation.send(session, Leaves::Nothing, move |live| async move {
        let (synced, read) = tokio::join!(catch_up(&live, Freshness::Told), live.client.get_data(&path));
        synced.and(read)
    });
    match read.await {
        Ok((data, stat)) => Ok(Some(node_data(data, &stat))),
        Err(Failure::Zk(Error::NoNode)) => Ok(None),
        Err(failure) => Err(failure),
    }
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
