//! Writing a value.

use std::sync::Arc;

use zlock_core::kit::{Failure as _, SessionKey, WriteAttempts};
use zlock_core::{Consistency, Version, WriteOutcome};
use zookeeper_client::{Acls, Client, CreateMode, Error, MultiWriteError, MultiWriteResult, MultiWriter};

use super::guard::DeletedGuard;
use super::read::{read, settled};
use super::receipt::{Used, settle};
use super::stored::version;
use crate::error::Failure;
use crate::operations::create::parents::make_above;
use crate::operations::operation::{Leaves, Operation};
use crate::session::witness::Witness;
use crate::session::{ANY_VERSION, Shared};

/// The value to write.
#[derive(Clone)]
struct Wanted<'a> {
    expected: Option<Version>,
    data: &'a [u8],
    /// The path of the guard's node at the server.
    guard: Option<String>,
    deletes_guard: bool,
}

/// A write of a value.
pub(super) struct WriteValue<'a> {
    shared: Arc<Shared>,
    wanted: Wanted<'a>,
    deleted: Option<DeletedGuard>,
    attempts: WriteAttempts,
    /// The receipt in the session of the last attempt.
    used: Option<Used>,
}

impl<'a> WriteValue<'a> {
    pub(super) fn new(
        shared: Arc<Shared>,
        expected: Option<Version>,
        data: &'a [u8],
        guard: Option<String>,
        deleted: Option<DeletedGuard>,
    ) -> Self {
        let wanted = Wanted { expected, data, guard, deletes_guard: deleted.is_some() };
        WriteValue { shared, wanted, deleted, attempts: WriteAttempts::default(), used: None }
    }

    pub(super) async fn attempt(
        &mut self,
        operation: &mut Operation<'_>,
        session: SessionKey,
    ) -> Result<WriteOutcome, Failure> {
        let used = match &mut self.used {
            Some(used) if used.session == session => used,
            used => used.insert(Used::take(operation, session).await?),
        };
        let outcome = loop {
            settled(operation, session).await?;
            if !self.attempts.begin(session, self.wanted.expected, operation.budget.ambiguous) {
                return Err(Failure::PastWrite);
            }
            let outcome = attempt(operation, &self.wanted, used).await?;
            operation.budget.ambiguous = self.attempts.is_past_unknown();
            if let Some(outcome) = outcome {
                break outcome;
            }
        };
        self.used = None;
        if let (WriteOutcome::Written(_), Some(deleted)) = (&outcome, &self.deleted) {
            deleted.deleted(operation.shared, session);
        }
        if self.attempts.is_conclusive(&outcome) { Ok(outcome) } else { Err(Failure::PastWrite) }
    }
}

/// A write of unknown outcome is settled, also if its future is dropped. Until then, later operations on the path wait.
impl Drop for WriteValue<'_> {
    fn drop(&mut self) {
        if let Some(mut used) = self.used.take().filter(|used| used.is_unknown) {
            used.receipt.abandon();
            self.shared.runtime.spawn(settle(self.shared.clone(), used));
        }
    }
}

/// Makes an attempt. Returns `None` if the next one may follow at once.
async fn attempt(
    operation: &mut Operation<'_>,
    wanted: &Wanted<'_>,
    used: &mut Used,
) -> Result<Option<WriteOutcome>, Failure> {
    let is_proved = |expected: Version| {
        used.receipt.known.and_then(|witness| witness.created) == Some(expected.created())
    };
    if let Some(expected) = wanted.expected.filter(|expected| !is_proved(*expected) && !used.is_unknown) {
        let now = used.establish(operation).await?;
        if now.as_ref().map(|value| value.version) != Some(expected) {
            return Ok(Some(WriteOutcome::Conflict(now)));
        }
        // Another program has deleted it at once.
        if used.receipt.known.is_none() {
            return Ok(None);
        }
    }
    let was_unknown = std::mem::replace(&mut used.is_unknown, true);
    let answer = match send(operation, wanted, used).await {
        Ok(answer) => answer,
        Err(failure) => {
            used.is_unknown = was_unknown || failure.classify().ambiguous;
            return Err(failure);
        }
    };
    let created = match answer {
        Answer::Written { created } => Some(created),
        // An earlier attempt may have written it. The answer shows that the server has executed all of them.
        _ if was_unknown => used.written(operation).await?,
        _ => None,
    };
    used.is_unknown = false;
    // Another program has deleted the receipt, together with the value.
    if was_unknown && created.is_none() && used.receipt.known.is_some() && answer == Answer::OtherReceipt {
        used.receipt.known = None;
        return Err(Failure::NoReceipt);
    }
    if let Some(created) = created {
        return Ok(Some(WriteOutcome::Written(written(wanted, used, created))));
    }
    match answer {
        Answer::OtherReceipt => used.receipt.known = None,
        Answer::NoParent => make_above(operation, used.session).await?,
        Answer::GuardGone => return Ok(Some(WriteOutcome::GuardGone)),
        Answer::OtherValue | Answer::Written { .. } => {
            // The server has executed the refused transaction by now, and all before it.
            let now = read(operation, used.session, Consistency::Seen).await?;
            return Ok(Some(WriteOutcome::Conflict(now)));
        }
    }
    Ok(None)
}

/// Returns the version after the write, and records the state of the receipt. `created` is the transaction that created the
/// receipt.
fn written(wanted: &Wanted<'_>, used: &mut Used, created: i64) -> Version {
    let (version, receipt) = match (wanted.expected, used.receipt.known) {
        (Some(expected), Some(witness)) => {
            (Version::new(expected.created(), next(number(expected)).cast_unsigned().into()), witness.version)
        }
        // The value was created together with the receipt.
        _ => (version(created, 0), 0),
    };
    let created = Some(version.created());
    used.receipt.known = Some(Witness { version: next(receipt), created });
    version
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

/// One transaction: checks or deletes the guard, and writes the value and the receipt.
async fn send(operation: &mut Operation<'_>, wanted: &Wanted<'_>, used: &Used) -> Result<Answer, Failure> {
    let (value, receipt, id) = (operation.server_path(), used.path(), used.receipt.id.to_string());
    let (acls, data, known) =
        (operation.shared.options.acls.clone(), wanted.data.to_owned(), used.receipt.known);
    let (expected, guard, deletes) = (wanted.expected, wanted.guard.clone(), wanted.deletes_guard);
    let sent = operation.send(used.session, Leaves::Change, move |live| async move {
        let mut transaction = Transaction::new(&live.client);
        match (expected, known) {
            (Some(expected), Some(witness)) => {
                transaction.set(Part::Receipt, &receipt, id.as_bytes(), witness.version)?;
                transaction.guard(guard.as_deref(), deletes)?;
                transaction.set(Part::Value, &value, &data, number(expected))?;
            }
            _ => {
                let acls = Acls::new(&acls);
                transaction.guard(guard.as_deref(), deletes)?;
                transaction.create(Part::NewValue, &value, &data, CreateMode::Persistent, acls)?;
                transaction.create(Part::Receipt, &receipt, b"", CreateMode::Ephemeral, acls)?;
                // Unlike the answer to a create, the one to a write has the stat on all servers.
                transaction.set(Part::Receipt, &receipt, id.as_bytes(), 0)?;
            }
        }
        transaction.commit().await
    });
    sent.await
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
