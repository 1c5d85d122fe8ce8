//! Giving an own node another label: on ZooKeeper, another name.

use zlock_core::{ErrorKind, Label, LockPath, Node, NodeName, Result};
use zookeeper_client::{Acls, CreateMode, Error};

use crate::error::Failure;
use crate::operation::Operation;
use crate::session::{Freshness, Lease, Shared};

/// Renames the node so that its name has `label`, in one transaction: nobody sees the queue without it.
pub(crate) async fn relabel(session: &Shared, parent: &LockPath, node: &Node, label: Label) -> Result<Node> {
    let mut operation = Operation::new(session, "relabel", parent);
    let relabelled = Node { name: NodeName::of(&node.token, label, node.sequence), label, ..node.clone() };
    let _hidden = Hidden::new(session, node);
    // The name that the node has by now, for all we know.
    let mut name = node.name.clone();
    loop {
        let lease = operation.lease().await?;
        if node.session.is_some_and(|id| id != lease.id) {
            return Err(operation.error(ErrorKind::SessionLost));
        }
        let renamed = if name == relabelled.name {
            exists(&operation, lease, &name).await
        } else {
            rename(&mut operation, lease, &name, &relabelled.name).await
        };
        let failure = match renamed {
            Ok(true) => return Ok(relabelled),
            // Gone, or an earlier relabel took effect: the token tells.
            Ok(false) => match operation.list(lease, Freshness::Latest).await {
                Ok(queue) => match queue.find(&node.token) {
                    Some(found) => {
                        name = found.name.clone();
                        continue;
                    }
                    None => {
                        operation.unknown = false;
                        return Err(operation.error(ErrorKind::NodeRemoved));
                    }
                },
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        operation.again(failure).await?;
    }
}

async fn exists(operation: &Operation<'_>, lease: Lease, name: &NodeName) -> Result<bool, Failure> {
    let path = format!("{}/{name}", operation.server_path());
    let stat = operation.ask(lease, move |live| async move { live.client.check_stat(&path).await }).await?;
    Ok(stat.is_some())
}

/// One transaction: create the one, delete the other. `false` if the node was not as we saw it.
async fn rename(
    operation: &mut Operation<'_>,
    lease: Lease,
    from: &NodeName,
    to: &NodeName,
) -> Result<bool, Failure> {
    let parent = operation.server_path();
    let (from, to) = (format!("{parent}/{from}"), format!("{parent}/{to}"));
    let path = from.clone();
    let read = operation.ask(lease, move |live| async move { live.client.get_data(&path).await });
    let (data, stat) = match read.await {
        Ok(read) => read,
        Err(Failure::Zk(Error::NoNode)) => return Ok(false),
        Err(failure) => return Err(failure),
    };
    let acls = operation.session.options.acls.clone();
    let sent = operation.write(lease, move |live| async move {
        let mut transaction = live.client.new_multi_writer();
        transaction.add_create(&to, &data, &CreateMode::Ephemeral.with_acls(Acls::new(&acls)))?;
        // The version: a revocation that was written in between goes along.
        transaction.add_delete(&from, Some(stat.version))?;
        transaction.commit().await.map_err(Error::from)
    });
    match sent.await {
        Ok(_) => Ok(true),
        Err(Failure::Zk(Error::NoNode | Error::NodeExists | Error::BadVersion)) => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// Keeps the node out of the comparison with the session's nodes as long as it lives.
struct Hidden<'a> {
    session: &'a Shared,
    node: &'a Node,
}

impl<'a> Hidden<'a> {
    fn new(session: &'a Shared, node: &'a Node) -> Self {
        session.own.relabelling(&node.token);
        Hidden { session, node }
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        self.session.own.relabelled(&self.node.token);
    }
}
