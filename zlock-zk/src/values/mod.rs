//! Values: persistent nodes.
//!
//! ```text
//! <path>                       a value, as it is
//! <path>/_r_<session>.<n>      a receipt, an ephemeral node of the session that wrote it
//! <path>/_r_keep               if the node may have been a container: the server does not remove it then
//! ```
//!
//! A receipt is a child of its value, so it also shows that the value was not deleted since the receipt was made. The
//! server's versions start at 0 again when a node is created anew, and a transaction cannot check more than these.

mod read;
mod receipt;
mod stored;
mod write;

use async_trait::async_trait;
use zlock_core::kit::{repeat, write_value};
use zlock_core::{Consistency, GuardNode, LockPath, Result, Value, Values, Version, Watch, WriteOutcome};

use self::read::{read_settled, watch_value};
use crate::backend::ZkBackend;

#[async_trait]
impl Values for ZkBackend {
    async fn value(&self, path: &LockPath, consistency: Consistency) -> Result<Option<Value>> {
        let mut operation = self.operation("value", path);
        repeat!(operation.budget, |session| read_settled(&mut operation, session, consistency))
    }

    async fn value_with_watch(&self, path: &LockPath) -> Result<(Option<Value>, Watch)> {
        let mut operation = self.operation("value_with_watch", path);
        repeat!(operation.budget, |session| watch_value(&mut operation, session))
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
