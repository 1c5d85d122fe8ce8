//! Writing a value.

use std::sync::Arc;

use tokio::runtime::Handle;
use zlock_core::kit::{Budget, Receipts, SessionKey, ValueStore, ValueWrite};
use zlock_core::{Consistency, GuardNode, NodeId, Version, WriteOutcome};
use zookeeper_client::{Acls, Client, CreateMode, Error, MultiWriteError, MultiWriteResult, MultiWriter};

use super::read::read;
use super::receipt::{self, Receipt};
use super::stored::version;
use crate::error::Failure;
use crate::operations::create::parents::make_above;
use crate::operations::operation::{Leaves, Operation};
use crate::session::witness::Witness;
use crate::session::{ANY_VERSION, Live, Shared, own_id};

impl ValueStore for Shared {
    type Operation<'a> = Operation<'a>;
    type Live = Live;
    /// `None` if the receipt does not exist.
    type Known = Option<Witness>;
    type Failure = Failure;

    fn receipts(&self, session: SessionKey) -> Option<Arc<Receipts<Option<Witness>>>> {
        Some(self.sessions.get(session)?.receipts.clone())
    }

    fn budget<'o, 'a>(operation: &'o mut Self::Operation<'a>) -> &'o mut Budget<'a, Live> {
        &mut operation.budget
    }

    fn own_id(&self, guard: &GuardNode) -> Option<NodeId> {
        let parent = self.options.server_path(&guard.parent);
        Some(own_id(&parent, &guard.deletes.as_ref()?.id))
    }

    async fn write(
        &self,
        write: &mut ValueWrite<'_, Self::Operation<'_>>,
        receipt: &mut Receipt,
    ) -> Result<Option<WriteOutcome>, Failure> {
        let operation = &mut write.operation;
        receipt::remove_surplus(operation, receipt.session).await?;
        let is_proved = |receipt: &Receipt, expected: Version| {
            receipt.known.and_then(|witness| witness.created) == Some(expected.created())
        };
        if let Some(expected) = write.expected.filter(|expected| !is_proved(receipt, *expected)) {
            let now = receipt::establish(operation, receipt).await?;
            if now.as_ref().map(|value| value.version) != Some(expected) {
                return Ok(Some(WriteOutcome::Conflict(now)));
            }
            // Another program has deleted it at once.
            if receipt.known.is_none() {
                return Ok(None);
            }
        }
        let answer = send(write, receipt).await?;
        let operation = &mut write.operation;
        let created = match answer {
            Answer::Written { created } => Some(created),
            // An earlier attempt may have written it. The answer shows that the server has executed all of them.
            _ if operation.budget.ambiguous => receipt::written(operation, receipt).await?,
            _ => None,
        };
        if let Some(created) = created {
            return Ok(Some(written(write, receipt, created)));
        }
        match answer {
            Answer::OtherReceipt => {
                // Another program has deleted it, together with the value if it was known.
                if receipt.known.take().is_some() && operation.budget.ambiguous {
                    return Err(Failure::NoReceipt);
                }
            }
            Answer::NoParent => make_above(operation, receipt.session).await?,
            Answer::GuardGone => return Ok(Some(WriteOutcome::GuardGone)),
            Answer::OtherValue | Answer::Written { .. } => {
                // The server has executed the refused transaction by now, and all before it.
                let now = read(operation, receipt.session, Consistency::Seen).await?;
                return Ok(Some(WriteOutcome::Conflict(now)));
            }
        }
        Ok(None)
    }

    fn runtime(&self) -> Option<&Handle> {
        Some(&self.runtime)
    }

    /// Waits until the write has taken effect or cannot any more: requests of a session are executed in their order.
    async fn void(self: &Arc<Self>, receipt: &mut Receipt) -> Result<(), Failure> {
        let path = receipt.path().clone();
        let read =
            receipt::read(&mut Operation::new(self, "settle_write", &path).unreported(), receipt).await?;
        receipt.known = read.map(|(_, stat)| Witness { version: stat.version, created: None });
        Ok(())
    }
}

/// One transaction: checks or deletes the guard, and writes the value and the receipt.
async fn send(write: &mut ValueWrite<'_, Operation<'_>>, receipt: &Receipt) -> Result<Answer, Failure> {
    let deletes = write.deletes().is_some();
    let (options, operation) = (&write.operation.shared.options, &mut write.operation);
    let (value, path, id) =
        (operation.server_path(), receipt::path(operation, receipt), receipt.id.to_string());
    let guard = write.guard.map(|guard| options.node_path(&guard.parent, &guard.name));
    let (acls, data, expected, known) =
        (options.acls.clone(), write.data.to_owned(), write.expected, receipt.known);
    let sent = operation.send(receipt.session, Leaves::Change, move |live| async move {
        let mut transaction = Transaction::new(&live.client);
        match (expected, known) {
            (Some(expected), Some(witness)) => {
                transaction.set(Part::Receipt, &path, id.as_bytes(), witness.version)?;
                transaction.guard(guard.as_deref(), deletes)?;
                transaction.set(Part::Value, &value, &data, number(expected))?;
            }
            _ => {
                let acls = Acls::new(&acls);
                transaction.guard(guard.as_deref(), deletes)?;
                transaction.create(Part::NewValue, &value, &data, CreateMode::Persistent, acls)?;
                transaction.create(Part::Receipt, &path, b"", CreateMode::Ephemeral, acls)?;
                // Unlike the answer to a create, the one to a write has the stat on all servers.
                transaction.set(Part::Receipt, &path, id.as_bytes(), 0)?;
            }
        }
        transaction.commit().await
    });
    sent.await
}

/// Records that the write was executed. `created` is the transaction that created the receipt.
fn written(write: &ValueWrite<'_, Operation<'_>>, receipt: &mut Receipt, created: i64) -> WriteOutcome {
    let (version, of_receipt) = match (write.expected, receipt.known) {
        (Some(expected), Some(witness)) => {
            let number = next(number(expected)).cast_unsigned().into();
            (Version::new(expected.created(), number), witness.version)
        }
        // The value was created together with the receipt.
        _ => (version(created, 0), 0),
    };
    receipt.known = Some(Witness { version: next(of_receipt), created: Some(version.created()) });
    if let Some((guard, node)) = write.guard.and_then(|guard| Some((guard, guard.deletes.as_ref()?))) {
        let shared = write.operation.shared;
        let parent = shared.options.server_path(&guard.parent);
        let own_id = own_id(&parent, &node.id);
        shared.contents.remove(&own_id);
        shared.names.remove(&own_id);
        shared.alone.removed(&parent, receipt.session, node);
    }
    WriteOutcome::Written(version)
}

/// The answer to a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Written {
        /// The transaction that created the node that was written last.
        created: i64,
    },
    /// The receipt is not in the state that was known.
    OtherReceipt,
    /// The value has another version, or exists already.
    OtherValue,
    GuardGone,
    NoParent,
}

/// What an operation of the transaction is about.
#[derive(Clone, Copy)]
enum Part {
    Receipt,
    Guard,
    Value,
    NewValue,
}

/// A transaction with the part that each of its operations is about.
struct Transaction<'a> {
    writer: MultiWriter<'a>,
    parts: Vec<Part>,
}

impl<'a> Transaction<'a> {
    fn new(client: &'a Client) -> Self {
        Transaction { writer: client.new_multi_writer(), parts: Vec::new() }
    }

    fn guard(&mut self, guard: Option<&str>, deletes: bool) -> Result<(), Error> {
        let Some(guard) = guard else { return Ok(()) };
        self.parts.push(Part::Guard);
        match deletes {
            true => self.writer.add_delete(guard, None),
            false => self.writer.add_check_version(guard, ANY_VERSION),
        }
    }

    fn create(
        &mut self,
        part: Part,
        path: &str,
        data: &[u8],
        mode: CreateMode,
        acls: Acls<'_>,
    ) -> Result<(), Error> {
        self.parts.push(part);
        self.writer.add_create(path, data, &mode.with_acls(acls))
    }

    /// Writes the data of a node that has this version. Twice if it would have the version afterwards that means any.
    fn set(&mut self, part: Part, path: &str, data: &[u8], version: i32) -> Result<(), Error> {
        if version == ANY_VERSION {
            return Err(Error::BadArguments(
                &"the value has the version -1, which the server does not check",
            ));
        }
        self.parts.push(part);
        self.writer.add_set_data(path, data, Some(version))?;
        if next(version) != version.wrapping_add(1) {
            self.parts.push(part);
            self.writer.add_set_data(path, data, None)?;
        }
        Ok(())
    }

    async fn commit(mut self) -> Result<Answer, Error> {
        match self.writer.commit().await {
            Ok(results) => match results.last() {
                Some(MultiWriteResult::SetData { stat }) => Ok(Answer::Written { created: stat.czxid }),
                _ => Err(Error::UnexpectedError("no stat of the last write".into())),
            },
            Err(MultiWriteError::OperationFailed { index, source }) => {
                let refused = self.parts.get(index).and_then(|part| refused(*part, &source));
                refused.ok_or(source)
            }
            Err(error) => Err(Error::from(error)),
        }
    }
}

fn refused(part: Part, error: &Error) -> Option<Answer> {
    match (part, error) {
        (Part::Receipt, Error::NoNode | Error::BadVersion | Error::NodeExists) => Some(Answer::OtherReceipt),
        (Part::Guard, Error::NoNode) => Some(Answer::GuardGone),
        (Part::NewValue, Error::NoNode) => Some(Answer::NoParent),
        (Part::NewValue, Error::NodeExists) | (Part::Value, Error::NoNode | Error::BadVersion) => {
            Some(Answer::OtherValue)
        }
        _ => None,
    }
}

fn number(version: Version) -> i32 {
    // It was made from one.
    (version.number() as u32).cast_signed()
}

/// Returns the version after a write, which is never the one that means any.
fn next(version: i32) -> i32 {
    match version.wrapping_add(1) {
        ANY_VERSION => 0,
        next => next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_means_any_is_skipped() {
        assert_eq!([0, i32::MAX, -3, -2].map(next), [1, i32::MIN, -2, 0]);
    }
}
