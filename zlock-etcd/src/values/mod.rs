//! Values: keys without a lease.
//!
//! ```text
//! <prefix><path>                       a value, as it is
//! <prefix>//fence/<lease>.r<k>         a receipt, tied to the lease of the session that wrote it
//! ```
//!
//! A receipt is also the fence of its write: the write is conditional on the receipt's revision, so it takes effect once at
//! most, however often and however late it arrives.

mod read;
mod stored;
mod write;

use async_trait::async_trait;
use zlock_core::kit::{repeat, write_value};
use zlock_core::{Consistency, GuardNode, LockPath, Result, Value, Values, Version, Watch, WriteOutcome};

use crate::backend::EtcdBackend;

#[async_trait]
impl Values for EtcdBackend {
    async fn value(&self, path: &LockPath, _: Consistency) -> Result<Option<Value>> {
        let mut operation = self.operation("value", path);
        repeat!(operation.budget, |lease| read::read(&operation, lease))
    }

    async fn value_with_watch(&self, path: &LockPath) -> Result<(Option<Value>, Watch)> {
        let mut operation = self.operation("value_with_watch", path);
        repeat!(operation.budget, |lease| read::arm(&operation, lease))
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
