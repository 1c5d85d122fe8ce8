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

mod guard;
mod read;
mod receipt;
mod stored;
mod write;

use async_trait::async_trait;
use zlock_core::kit::repeat;
use zlock_core::{Consistency, GuardNode, LockPath, Result, Value, Values, Version, Watch, WriteOutcome};

use self::guard::DeletedGuard;
use self::read::{read_settled, watch_value};
use self::write::WriteValue;
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
        let mut operation = self.operation("write_value", path);
        operation.budget.check_size(data)?;
        let deleted =
            guard.and_then(|guard| Some(DeletedGuard::new(operation.shared, guard, guard.deletes.as_ref()?)));
        let _hidden = deleted.as_ref().map(|deleted| operation.shared.sessions.own().hide(&deleted.own_id));
        let guard = guard.map(|guard| operation.shared.options.node_path(&guard.parent, &guard.name));
        let mut write = WriteValue::new(operation.shared.clone(), expected, data, guard, deleted);
        repeat!(operation.budget, |session| write.attempt(&mut operation, session))
    }
}
