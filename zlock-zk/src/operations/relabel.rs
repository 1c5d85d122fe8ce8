//! Giving an own node another label: on ZooKeeper, another name.

use std::mem::replace;
use zlock_core::kit::SessionKey;
use zlock_core::{Consistency, Label, Node, NodeId, NodeName};
use zookeeper_client::{Acls, CreateMode, Error, Stat};

use crate::error::{Failure, if_exists};
use crate::operations::operation::{Leaves, Operation};
use crate::session::contents::Contents;

/// The state between the attempts at a relabel.
pub(crate) struct Relabel<'a> {
    node: &'a Node,
    /// The node as it will be.
    relabelled: Node,
    /// The node's name, as far as we know.
    name: NodeName,
    /// `true` if the node was found under that name after an attempt had not found it.
    is_repeated: bool,
}

impl<'a> Relabel<'a> {
    pub(crate) fn new(node: &'a Node, label: Label) -> Self {
        let relabelled = node.clone().relabelled(NodeName::of(&node.id, label, node.sequence), label);
        Relabel { node, relabelled, name: node.name.clone(), is_repeated: false }
    }

    /// Renames a node so that its name has another label, in one transaction: no client sees the queue without it.
    pub(crate) async fn attempt(
        &mut self,
        operation: &mut Operation<'_>,
        session: SessionKey,
    ) -> Result<Node, Failure> {
        if self.node.session.is_some_and(|id| id != session.id) {
            return Err(Failure::OtherSession);
        }
        let id = operation.own_id(&self.node.id);
        loop {
            let is_renamed = if self.name == self.relabelled.name {
                exists(operation, session, &self.name).await?
            } else {
                rename(operation, session, &id, &self.name, &self.relabelled.name).await?
            };
            if is_renamed {
                break;
            }
            // The node is gone, or an earlier relabel took effect. The ID shows which.
            let queue = operation.list(session, Consistency::Latest).await?;
            match queue.find(&self.node.id) {
                // Once it may have the same name: another client has written its data since we read them.
                Some(found) if found.name != self.name || !replace(&mut self.is_repeated, true) => {
                    self.name = found.name.clone();
                }
                Some(_) => return Err(Failure::ServersDisagree),
                None => return Err(operation.node_deleted()),
            }
        }
        let shared = operation.shared;
        shared.names.insert(&id, self.relabelled.name.clone());
        // A delete that was sent meanwhile has the node under its new name, and has forgotten the old one already.
        if !shared.sessions.own().contains(&id) {
            shared.names.remove(&id);
            shared.contents.remove(&id);
        }
        Ok(self.relabelled.clone())
    }
}

async fn exists(
    operation: &mut Operation<'_>,
    session: SessionKey,
    name: &NodeName,
) -> Result<bool, Failure> {
    Ok(operation.stat(session, operation.node_path(name)).await?.is_some())
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
    let sent = operation.send(session, Leaves::Change, move |live| async move {
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
    operation: &mut Operation<'_>,
    session: SessionKey,
    path: String,
) -> Result<Option<Contents>, Failure> {
    let read = operation
        .send(session, Leaves::Nothing, move |live| async move { live.client.get_data(&path).await });
    let contents = |(data, stat): (Vec<u8>, Stat)| Contents { data: data.into(), version: stat.version };
    Ok(if_exists(read.await)?.map(contents))
}
