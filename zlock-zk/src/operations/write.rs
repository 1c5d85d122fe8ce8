//! Writing a node's data.

use std::ops::ControlFlow::{Break, Continue};

use zlock_core::kit::{Attempt, SessionKey};
use zlock_core::{Node, NodeName, Replaced};
use zookeeper_client::Error;

use crate::error::Failure;
use crate::operations::operation::{Attempted, Leaves, Operation};
use crate::session::{Freshness, catch_up};

/// Writes the data of a node, whatever its current name.
pub(crate) struct Write<'a> {
    pub(crate) node: &'a Node,
    /// The node's name, as far as we know.
    pub(crate) name: NodeName,
    pub(crate) data: &'a [u8],
}

impl<'o> Attempt<Operation<'o>, Failure> for Write<'_> {
    type Output = ();

    async fn attempt(&mut self, operation: &mut Operation<'o>, session: SessionKey) -> Attempted<()> {
        if write(operation, session, &self.name, self.data).await? {
            return Ok(Break(()));
        }
        match operation.renamed(session, self.node).await? {
            // The leader has no node of this name, and the connected server has applied that.
            Some(now) if now == self.name => Err(Failure::ServersDisagree),
            Some(now) => {
                self.name = now;
                Ok(Continue(()))
            }
            None => Err(operation.node_deleted()),
        }
    }
}

/// Writes the data of a candidate if it was written this often.
pub(crate) struct Replace<'a> {
    pub(crate) node: &'a Node,
    pub(crate) writes: u64,
    pub(crate) data: &'a [u8],
}

impl<'o> Attempt<Operation<'o>, Failure> for Replace<'_> {
    type Output = Replaced;

    async fn attempt(&mut self, operation: &mut Operation<'o>, session: SessionKey) -> Attempted<Replaced> {
        if self.node.session.is_some_and(|id| id != session.id) {
            return Err(Failure::OtherSession);
        }
        let (path, data) = (operation.node_path(&self.node.name), self.data.to_owned());
        // The server counts the writes. No number of writes is the version that means any.
        let version = i32::try_from(self.writes).unwrap_or(i32::MAX);
        let written = operation.send(session, Leaves::Change, move |live| async move {
            live.client.set_data(&path, &data, Some(version)).await
        });
        match written.await {
            Ok(_) => return Ok(Break(Replaced::Written)),
            Err(Failure::Zk(Error::NoNode)) => return Err(operation.node_deleted()),
            Err(Failure::Zk(Error::BadVersion)) => {}
            Err(failure) => return Err(failure),
        }
        let path = operation.node_path(&self.node.name);
        let read = operation.send(session, Leaves::Nothing, move |live| async move {
            let (synced, read) = tokio::join!(catch_up(&live, Freshness::Told), live.client.get_data(&path));
            synced.and(read)
        });
        let (data, stat) = match read.await {
            Err(Failure::Zk(Error::NoNode)) => return Err(operation.node_deleted()),
            read => read?,
        };
        let now = u64::from(stat.version.cast_unsigned());
        // By an earlier attempt whose answer was lost.
        let is_ours = operation.budget.ambiguous && now == self.writes + 1 && data == self.data;
        Ok(Break(if is_ours { Replaced::Written } else { Replaced::Conflict(now) }))
    }
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
    match written.await {
        Ok(_) => Ok(true),
        Err(Failure::Zk(Error::NoNode)) => Ok(false),
        Err(failure) => Err(failure),
    }
}
