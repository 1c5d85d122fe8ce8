//! Writing a value.

use std::sync::Arc;

use tokio_postgres::Row;
use zlock_core::kit::{SessionKey, WriteAttempts};
use zlock_core::{GuardNode, Node, Result, Value, Version, WriteOutcome};

use super::read::version;
use super::receipt::WriteReceipt;
use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::Operation;
use crate::session::shared::{Shared, session_id};

/// A write of a value.
pub(super) struct WriteValue<'a> {
    expected: Option<Version>,
    data: &'a [u8],
    guard: Option<&'a GuardNode>,
    attempts: WriteAttempts,
    receipt: WriteReceipt,
}

impl<'a> WriteValue<'a> {
    pub(super) fn new(
        shared: Arc<Shared>,
        expected: Option<Version>,
        data: &'a [u8],
        guard: Option<&'a GuardNode>,
    ) -> Self {
        let receipt = WriteReceipt::new(shared);
        WriteValue { expected, data, guard, attempts: WriteAttempts::default(), receipt }
    }

    /// Returns the guard's node if the write deletes it.
    fn deleted(&self) -> Option<&'a Node> {
        self.guard?.deletes.as_ref()
    }

    pub(super) async fn attempt(
        &mut self,
        operation: &mut Operation<'_>,
        session: SessionKey,
    ) -> Result<WriteOutcome, Failure> {
        if !self.attempts.begin(session, self.expected, operation.budget.ambiguous) {
            return Err(Failure::PastWrite);
        }
        let live = operation.shared.live(session)?;
        let deleted = self.deleted();
        let (created, number) = match self.expected {
            Some(version) => (Some(version.created().cast_signed()), Some(version.number().cast_signed())),
            None => (None, None),
        };
        let guard = self.guard.map(|guard| (operation.shared.path(&guard.parent), guard.name.as_str()));
        let (guard_path, guard_id) = guard.as_ref().map(|(path, id)| (path.as_str(), *id)).unzip();
        let guard_seq = self.guard.map(|guard| guard.fencing_token.number().cast_signed());
        let releases = match deleted {
            None => 0,
            Some(node) if live.creates.get(&node.id).is_none() => 1,
            Some(_) => 2,
        };
        let (id, (slot, write)) = (session_id(session), self.receipt.send(operation, session).await?);
        let (path, is_sync) = (operation.path.clone(), operation.shared.is_sync());
        let params: Params<'_> = &[
            &id,
            &path,
            &slot,
            &write,
            &created,
            &number,
            &self.data,
            &guard_path,
            &guard_id,
            &guard_seq,
            &releases,
            &is_sync,
        ];
        let rows = match operation.write(session, &statement::WRITE_VALUE, params).await {
            Ok(rows) => rows,
            Err(failure) => {
                self.receipt.failed(&failure);
                return Err(failure);
            }
        };
        let row = rows.first().ok_or(Failure::Malformed)?;
        let refused = match row.try_get::<_, i32>(0).map_err(Failure::Postgres)? {
            4 => Some(Failure::Fenced),
            5 => Some(Failure::NotAValue),
            _ => None,
        };
        if let Some(refused) = refused {
            self.receipt.answered(false);
            return Err(refused);
        }
        let outcome = outcome(row).map_err(Failure::Postgres)?.ok_or(Failure::Malformed)?;
        // After a refusal, an earlier request must not find the value as it was expected again.
        self.receipt.answered(matches!(outcome, WriteOutcome::Written(_)));
        operation.budget.ambiguous = self.attempts.is_past_unknown();
        if let (WriteOutcome::Written(_), Some(node)) = (&outcome, deleted) {
            operation.shared.sessions.own().remove(&node.id);
            live.creates.forget(&node.id);
            let wake: Option<Vec<i64>> = row.try_get(4).map_err(Failure::Postgres)?;
            operation.shared.wake('d', node.id.as_str(), &wake.unwrap_or_default()).await;
        }
        if self.attempts.is_conclusive(&outcome) { Ok(outcome) } else { Err(Failure::PastWrite) }
    }
}

/// Returns the outcome of a write. `None` if the write was given up, which it was not.
fn outcome(row: &Row) -> Result<Option<WriteOutcome>, tokio_postgres::Error> {
    let (created, number): (Option<i64>, Option<i64>) = (row.try_get(1)?, row.try_get(2)?);
    let version = created.zip(number).map(|(created, number)| version(created, number));
    Ok(match row.try_get::<_, i32>(0)? {
        0 => version.map(WriteOutcome::Written),
        1 => {
            let data: Option<Vec<u8>> = row.try_get(3)?;
            Some(WriteOutcome::Conflict(data.zip(version).map(|(data, version)| Value::new(data, version))))
        }
        2 => Some(WriteOutcome::GuardGone),
        _ => None,
    })
}
