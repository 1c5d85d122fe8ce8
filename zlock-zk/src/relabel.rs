//! Giving an own node another label: on ZooKeeper, another name.

use zlock_core::kit::SessionKey;
use zlock_core::{ErrorKind, Label, LockPath, Node, NodeId, NodeName, Result};
use zookeeper_client::{Acls, CreateMode, Error};

use crate::contents::Contents;
use crate::error::Failure;
use crate::operation::Operation;
use crate::session::{Freshness, Shared};

/// Renames the node so that its name has `label`, in one transaction: no client sees the queue without it.
pub(crate) async fn relabel(shared: &Shared, parent: &LockPath, node: &Node, label: Label) -> Result<Node> {
    let mut operation = Operation::new(shared, "relabel", parent);
    let relabelled = node.clone().relabelled(NodeName::of(&node.id, label, node.sequence), label);
    let id = operation.own_id(&node.id);
    let _hidden = shared.sessions.own().hide(&id);
    shared.names.remove(&id);
    // The current name of the node, as far as we know.
    let mut name = node.name.clone();
    let mut is_repeated = false;
    loop {
        let session = operation.budget.session().await?;
        if node.session.is_some_and(|id| id != session.id) {
            return Err(operation.budget.error(ErrorKind::SessionLost));
        }
        let renamed = if name == relabelled.name {
            exists(&operation, session, &name).await
        } else {
            rename(&mut operation, session, &id, &name, &relabelled.name).await
        };
        let failure = match renamed {
            Ok(true) => {
                shared.names.insert(&id, relabelled.name.clone());
                return Ok(relabelled);
            }
            // The node is gone, or an earlier relabel took effect. The ID shows which.
            Ok(false) => match operation.list(session, Freshness::Latest).await {
                Ok(queue) => match queue.find(&node.id) {
                    // Once it may have the same name: another client has written its data since we read them.
                    Some(found) if found.name != name || !std::mem::replace(&mut is_repeated, true) => {
                        name = found.name.clone();
                        continue;
                    }
                    Some(_) => Failure::ServersDisagree,
                    None => {
                        operation.budget.ambiguous = false;
                        return Err(operation.budget.error(ErrorKind::NodeDeleted));
                    }
                },
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        operation.budget.retry(failure).await?;
    }
}

async fn exists(operation: &Operation<'_>, session: SessionKey, name: &NodeName) -> Result<bool, Failure> {
    let path = operation.node_path(name);
    let stat = operation.ask(session, move |live| async move { live.client.check_stat(&path).await }).await?;
    Ok(stat.is_some())
}

/// One transaction: creates the new node and deletes the old one. Returns `false` if the node was not as expected.
async fn rename(
    operation: &mut Operation<'_>,
    session: SessionKey,
    id: &NodeId,
    from: &NodeName,
    to: &NodeName,
) -> Result<bool, Failure> {
    let (from, to) = (operation.node_path(from), operation.node_path(to));
    let known = operation.shared.contents.get(id);
    let contents = match known {
        Some(contents) => contents,
        None => match read(operation, session, from.clone()).await? {
            Some(contents) => contents,
            None => return Ok(false),
        },
    };
    let (acls, Contents { data, version }) = (operation.shared.options.acls.clone(), contents.clone());
    let sent = operation.write(session, move |live| async move {
        let mut transaction = live.client.new_multi_writer();
        transaction.add_create(&to, &data, &CreateMode::Ephemeral.with_acls(Acls::new(&acls)))?;
        // With the version, so that data which another client wrote in between, such as a revocation, is not lost.
        transaction.add_delete(&from, Some(version))?;
        transaction.commit().await.map_err(Error::from)
    });
    match sent.await {
        Ok(_) => {
            operation.shared.contents.insert(id, Contents::new(contents.data));
            Ok(true)
        }
        Err(Failure::Zk(Error::NoNode | Error::NodeExists | Error::BadVersion)) => {
            operation.shared.contents.remove(id);
            Ok(false)
        }
        Err(failure) => Err(failure),
    }
}

async fn read(
    operation: &Operation<'_>,
    session: SessionKey,
    path: String,
) -> Result<Option<Contents>, Failure> {
    match operation.ask(session, move |live| async move { live.client.get_data(&path).await }).await {
        Ok((data, stat)) => Ok(Some(Contents { data: data.into(), version: stat.version })),
        Err(Failure::Zk(Error::NoNode)) => Ok(None),
        Err(failure) => Err(failure),
    }
}
