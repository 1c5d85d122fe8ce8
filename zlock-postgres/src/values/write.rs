//! Writing a value.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_postgres::Row;
use zlock_core::kit::{Budget, Receipt, Receipts, SessionKey, ValueStore, ValueWrite};
use zlock_core::{Value, WriteOutcome};

use super::read::version;
use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::Operation;
use crate::session::shared::{Live, Shared, session_id};

/// Returns the row of a receipt, and the number of its write.
pub(crate) fn numbers(receipt: &Receipt<()>) -> (i32, i64) {
    (i32::try_from(receipt.number).unwrap_or(i32::MAX), receipt.id.cast_signed())
}

impl ValueStore for Shared {
    type Operation<'a> = Operation<'a>;
    type Live = Live;
    type Known = ();
    type Failure = Failure;

    fn receipts(&self, session: SessionKey) -> Option<Arc<Receipts<()>>> {
        Some(self.sessions.get(session)?.receipts.clone())
    }

    fn budget<'o, 'a>(operation: &'o mut Self::Operation<'a>) -> &'o mut Budget<'a, Live> {
        &mut operation.budget
    }

    async fn write(
        &self,
        write: &mut ValueWrite<'_, Self::Operation<'_>>,
        receipt: &mut Receipt<()>,
    ) -> Result<Option<WriteOutcome>, Failure> {
        let deletes = write.deletes();
        let ValueWrite { operation, expected, data, guard } = write;
        let (session, shared) = (receipt.session, operation.shared);
        let live = shared.live(session)?;
        let created = expected.map(|version| version.created().cast_signed());
        let number = expected.map(|version| version.number().cast_signed());
        let guard_path = guard.map(|guard| shared.path(&guard.parent));
        let guard_id = guard.map(|guard| guard.name.as_str());
        let guard_seq = guard.map(|guard| guard.fencing_token.number().cast_signed());
        let releases = match deletes {
            None => 0,
            Some(node) if live.creates.get(&node.id).is_none() => 1,
            Some(_) => 2,
        };
        let (id, (slot, number_of_write)) = (session_id(session), numbers(receipt));
        let (path, is_sync) = (operation.path.clone(), shared.is_sync());
        let params: Params<'_> = &[
            &id,
            &path,
            &slot,
            &number_of_write,
            &created,
            &number,
            data,
            &guard_path,
            &guard_id,
            &guard_seq,
            &releases,
            &is_sync,
        ];
        let rows = operation.write(session, &statement::WRITE_VALUE, params).await?;
        let row = rows.first().ok_or(Failure::Malformed)?;
        match row.try_get::<_, i32>(0).map_err(Failure::Postgres)? {
            4 => return Err(Failure::Fenced),
            5 => return Err(Failure::NotAValue),
            _ => {}
        }
        let outcome = outcome(row).map_err(Failure::Postgres)?.ok_or(Failure::Malformed)?;
        if let (WriteOutcome::Written(_), Some(node)) = (&outcome, deletes) {
            // Before the wake, at which the write may be dropped.
            shared.sessions.own().remove(&node.id);
            live.creates.forget(&node.id);
            let wake: Option<Vec<i64>> = row.try_get(4).map_err(Failure::Postgres)?;
            shared.wake('d', node.id.as_str(), &wake.unwrap_or_default()).await;
        }
        Ok(Some(outcome))
    }

    fn runtime(&self) -> Option<&Handle> {
        Some(&self.runtime)
    }

    /// Raises the receipt.
    async fn void(self: &Arc<Self>, receipt: &mut Receipt<()>) -> Result<(), Failure> {
        let (id, (slot, write), path) =
            (session_id(receipt.session), numbers(receipt), self.path(receipt.path()));
        let (until, params): (_, Params<'_>) =
            (Instant::now() + self.options.answer_time(), &[&id, &path, &slot, &write]);
        self.send(receipt.session, until, &statement::VOID_WRITE, params).await.map(drop)
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
