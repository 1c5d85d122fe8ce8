//! Joining a group.

use tokio::time::Instant;
use zlock_core::kit::SessionKey;
use zlock_core::{Joined, NodeId, NodeName, Registration};
use zookeeper_client::{Acls, CreateMode, Error, MultiWriteError, MultiWriteResult};

use crate::error::Failure;
use crate::operations::create::parents::make_above;
use crate::operations::operation::{Leaves, Operation, owner};

pub(super) struct Join<'a> {
    pub(super) data: &'a [u8],
    pub(super) replaces: bool,
    /// Whether the last attempt has found another node than the one that kept its create out.
    pub(super) is_repeated: bool,
}

impl Join<'_> {
    pub(super) async fn attempt(
        &mut self,
        operation: &mut Operation<'_>,
        session: SessionKey,
    ) -> Result<Joined, Failure> {
        loop {
            let sent = Instant::now();
            let path = operation.server_path();
            let created =
                operation.create(session, Leaves::Change, path.clone(), self.data, CreateMode::Ephemeral);
            match created.await {
                Ok(stat) => return registered(operation, session, stat.czxid, sent),
                Err(Failure::Zk(Error::NoNode)) => {
                    // The group may already be gone again when the next attempt begins.
                    make_above(operation, session).await?;
                    continue;
                }
                Err(Failure::Zk(Error::NodeExists)) => {}
                Err(failure) => return Err(failure),
            }
            let Some(stat) = operation.stat(session, path.clone()).await? else {
                self.again()?;
                continue;
            };
            let owner = owner(&stat);
            if owner == Some(session.id) {
                // The server may follow a leader that was replaced since. So a write has to confirm that the node exists.
                if operation.is_there(session, path).await? {
                    return registered(operation, session, stat.czxid, sent);
                }
                continue;
            }
            // A node that belongs to no session is a value, or the parent of a lock.
            if !self.replaces || owner.is_none() {
                return Ok(Joined::Taken(owner));
            }
            match self.replace(operation, session, stat.version).await? {
                Some(number) => return registered(operation, session, number, sent),
                None => self.again()?,
            }
        }
    }

    /// Tries again: at once, since the node may just have gone or been replaced, and later after a pause, since the servers may
    /// disagree.
    fn again(&mut self) -> Result<(), Failure> {
        if std::mem::replace(&mut self.is_repeated, true) { Err(Failure::ServersDisagree) } else { Ok(()) }
    }

    /// Replaces the node that has this version. Returns the number of the new one, or `None` if another has come in between.
    ///
    /// A value that has taken its place has the same version, but a receipt below it, so that it is not deleted.
    ///
    /// The new node's version differs, so that the client that owned the old one cannot take it for its own and delete it.
    async fn replace(
        &self,
        operation: &mut Operation<'_>,
        session: SessionKey,
        version: i32,
    ) -> Result<Option<i64>, Failure> {
        let (path, data) = (operation.server_path(), self.data.to_owned());
        let acls = operation.shared.options.acls.clone();
        let replaced = operation.send(session, Leaves::Change, move |live| async move {
            let mut transaction = live.client.new_multi_writer();
            transaction.add_delete(&path, Some(version))?;
            transaction.add_create(&path, b"", &CreateMode::Ephemeral.with_acls(Acls::new(&acls)))?;
            if version == 1 {
                transaction.add_set_data(&path, b"", None)?;
            }
            // Unlike the answer to a create, the one to a write has the stat on all servers. The data is sent once, since a
            // request has a maximum size.
            transaction.add_set_data(&path, &data, None)?;
            match transaction.commit().await {
                Ok(results) => match results.last() {
                    Some(MultiWriteResult::SetData { stat }) => Ok(Some(stat.czxid)),
                    _ => Err(Error::UnexpectedError("no stat of the last write".into())),
                },
                Err(MultiWriteError::OperationFailed {
                    source: Error::NoNode | Error::BadVersion | Error::NodeExists | Error::NotEmpty,
                    ..
                }) => Ok(None),
                Err(error) => Err(Error::from(error)),
            }
        });
        replaced.await
    }
}

/// Adds the member: from here on, the backend reports its deletion.
fn registered(
    operation: &mut Operation<'_>,
    session: SessionKey,
    czxid: i64,
    sent: Instant,
) -> Result<Joined, Failure> {
    // Until the caller knows the member.
    operation.budget.ambiguous = true;
    let path = operation.server_path();
    let name = NodeName::new(path.rsplit('/').next().unwrap_or_default());
    let deletion = operation.shared.insert_own_as(session, &NodeId::new(path), &name, sent)?;
    let number = czxid.cast_unsigned();
    Ok(Joined::Joined(Registration::new(session.id, session.epoch, number, deletion)))
}
