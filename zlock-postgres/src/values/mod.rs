//! Values: rows that belong to no session.
//!
//! A write leaves a receipt in the same transaction: its number, which grows with each write of a session that uses the receipt.
//! A write whose number is not above that of the receipt has been executed already, or was given up, and changes nothing.

pub(crate) mod read;
pub(crate) mod write;

use async_trait::async_trait;
use zlock_core::kit::{repeat, write_value};
use zlock_core::{Consistency, GuardNode, LockPath, Result, Value, Values, Version, Watch, WriteOutcome};

use crate::backend::PostgresBackend;

#[async_trait]
impl Values for PostgresBackend {
    async fn value(&self, path: &LockPath, _: Consistency) -> Result<Option<Value>> {
        let mut operation = self.operation("value", path);
        repeat!(operation.budget, |session| read::read(&operation, session))
    }

    async fn value_with_watch(&self, path: &LockPath) -> Result<(Option<Value>, Watch)> {
        let mut operation = self.operation("value_with_watch", path);
        repeat!(operation.budget, |session| read::arm(&operation, session))
    }

    async fn write_value(
        &self,
        path: &LockPath,
        expected: Option<Version>,
        data: &[u8],
        guard: Option<&GuardNode>,
    ) -> Result<WriteOutcome> {
        let operation = self.operation("write_value", path);
        write_value(operation.shared, operation, expected, data, guard).await
    }
}
