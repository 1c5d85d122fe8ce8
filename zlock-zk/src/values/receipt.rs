//! The receipts of writes: what they prove, and how they are made and removed.

use std::sync::Arc;

use zlock_core::kit::{self, SessionKey, ValueStore as _};
use zlock_core::{Consistency, Value};
use zookeeper_client::{CreateMode, Error, Stat};

use super::read::read as read_value;
use super::stored::may_be_a_container;
use crate::error::Failure;
use crate::operations::operation::{Leaves, Operation};
use crate::session::Live;
use crate::session::witness::Witness;

/// A receipt; `None` is known of one that does not exist.
pub(super) type Receipt = kit::Receipt<Option<Witness>>;

/// The number of receipts that a session keeps. Each saves the next write of its value two requests.
const KEPT: usize = 1024;

/// The child of a value that was written over a node that may have been a container.
const KEEP: &str = "_r_keep";

/// Removes receipts of the session that have not been used for long, if there are too many.
pub(super) async fn remove_surplus(
    operation: &mut Operation<'_>,
    session: SessionKey,
) -> Result<(), Failure> {
    let shared = operation.shared;
    let receipts = shared.receipts(session).ok_or_else(|| shared.sessions.interrupted())?;
    while let Some(surplus) = receipts.take_surplus(session, KEPT) {
        let path = path(operation, &surplus);
        let delete = move |live: Arc<Live>| async move { live.client.delete(&path, None).await };
        match operation.send(session, Leaves::Nothing, delete).await {
            Ok(()) | Err(Failure::Zk(Error::NoNode)) => surplus.forget(),
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// Reads a receipt, including what any earlier request has written.
pub(super) async fn read(
    operation: &mut Operation<'_>,
    receipt: &Receipt,
) -> Result<Option<(Vec<u8>, Stat)>, Failure> {
    operation.data(receipt.session, path(operation, receipt), Consistency::Latest).await
}

/// Returns the transaction that created the receipt if the write has left its ID there.
pub(super) async fn written(
    operation: &mut Operation<'_>,
    receipt: &Receipt,
) -> Result<Option<i64>, Failure> {
    let id = receipt.id.to_string();
    let read = read(operation, receipt).await?;
    Ok(read.filter(|(data, _)| data == id.as_bytes()).map(|(_, stat)| stat.czxid))
}

/// Makes the receipt a proof that the value was not deleted since it is read here. Returns what was read.
pub(super) async fn establish(
    operation: &mut Operation<'_>,
    receipt: &mut Receipt,
) -> Result<Option<Value>, Failure> {
    let (session, path) = (receipt.session, path(operation, receipt));
    // It writes no value, so its outcome does not make the write's uncertain.
    let created = operation.create(session, Leaves::Nothing, path, b"", CreateMode::Ephemeral);
    let version = match created.await {
        Ok(_) => Some(0),
        // Left by an abandoned write, or by one that has just been answered.
        Err(Failure::Zk(Error::NodeExists)) => read(operation, receipt).await?.map(|(_, stat)| stat.version),
        Err(Failure::Zk(Error::NoNode)) => return Ok(None),
        Err(Failure::Zk(Error::NoChildrenForEphemerals)) => return Err(Failure::NotAValue),
        Err(failure) => return Err(failure),
    };
    // The server has executed the create by now.
    let value = read_value(operation, session, Consistency::Seen).await?;
    if value.as_ref().is_some_and(may_be_a_container) && !keep(operation, session).await? {
        return Ok(None);
    }
    let created = value.as_ref().map(|value| value.version.created());
    receipt.known = version.map(|version| Witness { version, created });
    Ok(value)
}

/// Creates a child that keeps the server from removing the value. Returns `false` if the value is gone.
async fn keep(operation: &mut Operation<'_>, session: SessionKey) -> Result<bool, Failure> {
    let path = format!("{}/{KEEP}", operation.server_path());
    let created = operation.create(session, Leaves::Nothing, path, b"", CreateMode::Persistent);
    match created.await {
        Ok(_) | Err(Failure::Zk(Error::NodeExists)) => Ok(true),
        Err(Failure::Zk(Error::NoNode)) => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// Returns the path of a receipt at the server.
pub(super) fn path(operation: &Operation<'_>, receipt: &Receipt) -> String {
    let value = operation.shared.options.server_path(receipt.path());
    format!("{value}/_r_{:x}.{}", receipt.session.id.get(), receipt.number)
}
