//! Writing a value.

use std::ops::ControlFlow::Break;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::Row;
use zlock_core::kit::{Attempt, Failure as _, Receipt, SessionKey, WriteAttempts};
use zlock_core::{GuardNode, Node, Result, Value, Version, WriteOutcome};

use super::read::{settled, version};
use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::{Attempted, Operation};
use crate::session::shared::{Shared, session_id};

/// The pause between two attempts to void an abandoned write.
const PAUSE: Duration = Duration::from_millis(100);

/// A write of a value.
pub(super) struct WriteValue<'a> {
    shared: Arc<Shared>,
    expected: Option<Version>,
    data: &'a [u8],
    guard: Option<&'a GuardNode>,
    attempts: WriteAttempts,
    /// The receipt in the session of the last attempt.
    receipt: Option<Used>,
}

/// A receipt in use.
pub(crate) struct Used {
    pub(crate) session: SessionKey,
    pub(crate) receipt: Receipt<(), ()>,
    /// With the prefix.
    pub(crate) path: String,
    /// Whether a request with the receipt may still be executed.
    pub(crate) is_unknown: bool,
}

impl<'a> WriteValue<'a> {
    pub(super) fn new(
        shared: Arc<Shared>,
        expected: Option<Version>,
        data: &'a [u8],
        guard: Option<&'a GuardNode>,
    ) -> Self {
        WriteValue { shared, expected, data, guard, attempts: WriteAttempts::default(), receipt: None }
    }

    /// Returns the guard's node if the write deletes it.
    fn deleted(&self) -> Option<&'a Node> {
        self.guard?.deletes.as_ref()
    }
}

impl<'o> Attempt<Operation<'o>, Failure> for WriteValue<'_> {
    type Output = WriteOutcome;

    async fn attempt(
        &mut self,
        operation: &mut Operation<'o>,
        session: SessionKey,
    ) -> Attempted<WriteOutcome> {
        settled(operation, session).await?;
        if !self.attempts.begin(session, self.expected, operation.budget.ambiguous) {
            return Err(Failure::PastWrite);
        }
        let live = operation.shared.live(session)?;
        let used = self.receipt.take().filter(|used| used.session == session);
        let mut used = used.unwrap_or_else(|| Used {
            session,
            receipt: live.receipts.take(&(), operation.budget.path()),
            path: operation.path.clone(),
            is_unknown: false,
        });
        let deleted = self.deleted();
        let was_unknown = std::mem::replace(&mut used.is_unknown, true);
        let used = self.receipt.insert(used);
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
        let (id, slot, write) = (
            session_id(session),
            i32::try_from(used.receipt.number).unwrap_or(i32::MAX),
            used.receipt.id.cast_signed(),
        );
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
                used.is_unknown = was_unknown || failure.classify().ambiguous;
                return Err(failure);
            }
        };
        let row = rows.first().ok_or(Failure::Malformed)?;
        if row.try_get::<_, i32>(0).map_err(Failure::Postgres)? == 4 {
            used.is_unknown = was_unknown;
            return Err(Failure::Fenced);
        }
        let outcome = outcome(row).map_err(Failure::Postgres)?.ok_or(Failure::Malformed)?;
        // After a refusal, an earlier request may still be executed. It must not find the value as it was expected again.
        used.is_unknown = was_unknown && !matches!(outcome, WriteOutcome::Written(_));
        operation.budget.ambiguous = self.attempts.is_past_unknown();
        if let (WriteOutcome::Written(_), Some(node)) = (&outcome, deleted) {
            operation.shared.sessions.own().remove(&node.id);
            live.creates.forget(&node.id);
            let wake: Option<Vec<i64>> = row.try_get(4).map_err(Failure::Postgres)?;
            operation.shared.wake('d', node.id.as_str(), &wake.unwrap_or_default()).await;
        }
        if self.attempts.is_conclusive(&outcome) { Ok(Break(outcome)) } else { Err(Failure::PastWrite) }
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

/// A write of unknown outcome is voided, also if its future is dropped. Until then, later operations on the path wait.
impl Drop for WriteValue<'_> {
    fn drop(&mut self) {
        if let Some(mut used) = self.receipt.take().filter(|used| used.is_unknown) {
            used.receipt.abandon();
            self.shared.runtime.spawn(void(self.shared.clone(), used));
        }
    }
}

/// Raises the receipt until that is answered, or the session is over.
pub(crate) async fn void(shared: Arc<Shared>, used: Used) {
    let Used { session, receipt, path, .. } = used;
    let (id, slot, write) =
        (session_id(session), i32::try_from(receipt.number).unwrap_or(i32::MAX), receipt.id.cast_signed());
    while shared.sessions.get(session).is_some() {
        let until = Instant::now() + shared.options.answer_time();
        let params: Params<'_> = &[&id, &path, &slot, &write];
        match shared.send(session, until, &statement::VOID_WRITE, params).await {
            Ok(_) => return,
            Err(failure) => tracing::debug!(%path, ?failure, "an abandoned write is not void yet"),
        }
        sleep(PAUSE).await;
    }
}
