//! Groups: keys with fixed names, tied to the leases of their members.
//!
//! ```text
//! <prefix><path>/<name>     a member, with its data as it is
//! ```
//!
//! The lease of a key says whose member it is. So a join whose answer was lost finds its own key. A join is conditional on a
//! fence, which voids it if it was abandoned and arrives later (`fence.rs`).

mod join;
mod leave;
mod read;

use async_trait::async_trait;
use zlock_core::kit::repeat;
use zlock_core::{Groups, Joined, ListedMember, LockPath, NodeId, Result, Watch};

use self::join::Join;
use self::leave::leave;
use self::read::arm_members;
use crate::backend::EtcdBackend;
use crate::keys::key::Keys;

#[async_trait]
impl Groups for EtcdBackend {
    async fn join(&self, member: &LockPath, data: &[u8], replaces: bool) -> Result<Joined> {
        let mut operation = self.operation("join", member);
        operation.budget.check_size(data)?;
        let id = id(&operation.keys);
        let mut join = Join { id, data, replaces, replaced: None };
        repeat!(operation.budget, |lease| join.attempt(&mut operation, lease))
    }

    async fn leave(&self, member: &LockPath) -> Result<()> {
        let mut operation = self.operation("leave", member);
        let id = id(&operation.keys);
        operation.shared.sessions.own().remove(&id);
        repeat!(operation.budget, |lease| leave(&mut operation, lease, &id))
    }

    async fn members_with_watch(&self, group: &LockPath) -> Result<(Vec<ListedMember>, Watch)> {
        let mut operation = self.operation("members_with_watch", group);
        repeat!(operation.budget, |lease| arm_members(&operation, lease))
    }
}

/// Returns the ID of the node of a member with these keys: its own key.
fn id(keys: &Keys) -> NodeId {
    let prefix = keys.prefix();
    NodeId::new(prefix.strip_suffix('/').unwrap_or(prefix))
}
