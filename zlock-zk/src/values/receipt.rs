//! The receipts of writes: what they prove, and how they are made and removed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use zlock_core::kit::{Receipt, SessionKey};
use zlock_core::{Consistency, SessionId, Value};
use zookeeper_client::{Acls, CreateMode, Error, Stat};

use super::read::read;
use super::stored::may_be_a_container;
use crate::error::Failure;
use crate::operations::operation::{Leaves, Operation};
use crate::session::witness::Witness;
use crate::session::{Live, Shared, catch_up};

/// The number of receipts that a session keeps. Each saves the next write of its value two requests.
const KEPT: usize = 1024;

/// The child of a value that was written over a node that may have been a container.
const KEEP: &str = "_r_keep";

/// The pause between two attempts to find out what an abandoned write has done.
const PAUSE: Duration = Duration::from_millis(100);

/// A receipt in use.
pub(super) struct Used {
    pub(super) session: SessionKey,
    /// What is known is `None` if it does not exist.
    pub(super) receipt: Receipt<Arc<str>, Option<Witness>>,
    /// Whether the outcome of a request that writes it is unknown.
    pub(super) is_unknown: bool,
}

impl Used {
    /// Takes a receipt, and removes some that have not been used for long if there are too many.
    pub(super) async fn take(operation: &mut Operation<'_>, session: SessionKey) -> Result<Self, Failure> {
        let shared = operation.shared;
        let live = shared.sessions.get(session).ok_or_else(|| shared.sessions.interrupted())?;
        let (receipts, value) = (live.receipts.clone(), operation.server_path());
        drop(live);
        let taken = receipts.take(&value, operation.budget.path());
        let receipt = shared.sessions.run_until_ended(session, operation.budget.deadline(), taken).await?;
        while let Some(surplus) = receipts.take_surplus(KEPT, operation.budget.path()) {
            let path = path(surplus.key(), session.id, surplus.number);
            let delete = move |live: Arc<Live>| async move { live.client.delete(&path, None).await };
            match operation.send(session, Leaves::Nothing, delete).await {
                Ok(()) | Err(Failure::Zk(Error::NoNode)) => surplus.forget(),
                Err(failure) => return Err(failure),
            }
        }
        Ok(Used { session, receipt, is_unknown: false })
    }

    pub(super) fn path(&self) -> String {
        path(self.receipt.key(), self.session.id, self.receipt.number)
    }

    /// Reads the receipt, including what any earlier request has written.
    async fn read(&self, operation: &mut Operation<'_>) -> Result<Option<(Vec<u8>, Stat)>, Failure> {
        let path = self.path();
        let read = operation.send(self.session, Leaves::Nothing, move |live| async move {
            let (synced, read) =
                tokio::join!(catch_up(&live, Consistency::Latest), live.client.get_data(&path));
            synced.and(read)
        });
        match read.await {
            Ok(read) => Ok(Some(read)),
            Err(Failure::Zk(Error::NoNode)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the transaction that created the receipt if the write has left its ID there.
    pub(super) async fn written(&self, operation: &mut Operation<'_>) -> Result<Option<i64>, Failure> {
        let id = self.receipt.id.to_string();
        let read = self.read(operation).await?;
        Ok(read.filter(|(data, _)| data == id.as_bytes()).map(|(_, stat)| stat.czxid))
    }

    /// Makes the receipt a proof that the value was not deleted since it is read here. Returns what was read.
    pub(super) async fn establish(
        &mut self,
        operation: &mut Operation<'_>,
    ) -> Result<Option<Value>, Failure> {
        let (path, acls) = (self.path(), operation.shared.options.acls.clone());
        // It writes no value, so its outcome does not make the write's uncertain.
        let created = operation.send(self.session, Leaves::Nothing, move |live| async move {
            live.client.create(&path, b"", &CreateMode::Ephemeral.with_acls(Acls::new(&acls))).await
        });
        let version = match created.await {
            Ok(_) => Some(0),
            // Left by an abandoned write, or by one that has just been answered.
            Err(Failure::Zk(Error::NodeExists)) => self.read(operation).await?.map(|(_, stat)| stat.version),
            Err(Failure::Zk(Error::NoNode)) => return Ok(None),
            Err(Failure::Zk(Error::NoChildrenForEphemerals)) => return Err(Failure::NotAValue),
            Err(failure) => return Err(failure),
        };
        // The server has executed the create by now.
        let value = read(operation, self.session, Consistency::Seen).await?;
        if value.as_ref().is_some_and(may_be_a_container) && !keep(operation, self.session).await? {
            return Ok(None);
        }
        let created = value.as_ref().map(|value| value.version.created());
        self.receipt.known = version.map(|version| Witness { version, created });
        Ok(value)
    }
}

/// Creates a child that keeps the server from removing the value. Returns `false` if the value is gone.
async fn keep(operation: &mut Operation<'_>, session: SessionKey) -> Result<bool, Failure> {
    let (path, acls) = (format!("{}/{KEEP}", operation.server_path()), operation.shared.options.acls.clone());
    let created = operation.send(session, Leaves::Nothing, move |live| async move {
        live.client.create(&path, b"", &CreateMode::Persistent.with_acls(Acls::new(&acls))).await
    });
    match created.await {
        Ok(_) | Err(Failure::Zk(Error::NodeExists)) => Ok(true),
        Err(Failure::Zk(Error::NoNode)) => Ok(false),
        Err(failure) => Err(failure),
    }
}

fn path(value: &str, session: SessionId, number: u32) -> String {
    format!("{value}/_r_{:x}.{number}", session.get())
}

/// Waits until an abandoned write has taken effect or cannot any more: requests of a session are executed in their order.
pub(super) async fn settle(shared: Arc<Shared>, mut used: Used) {
    let path = used.receipt.path().clone();
    while shared.sessions.get(used.session).is_some() {
        let mut operation = Operation::new(&shared, "settle_write", &path);
        match used.read(&mut operation).await {
            Ok(read) => {
                used.receipt.known = read.map(|(_, stat)| Witness { version: stat.version, created: None });
                return;
            }
            Err(failure) => tracing::debug!(%path, ?failure, "an abandoned write is not settled yet"),
        }
        sleep(PAUSE).await;
    }
}
