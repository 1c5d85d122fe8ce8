//! Groups: ephemeral nodes with fixed names, as Curator's `GroupMember` creates them.
//!
//! ```text
//! <path>/<name>     a member, with its data as it is
//! ```
//!
//! The owner of a node says whose member it is. So a join whose answer was lost finds its own node.

mod join;
mod leave;
mod read;

use async_trait::async_trait;
use zlock_core::kit::repeat;
use zlock_core::{Groups, Joined, ListedMember, LockPath, MemberContents, NodeId, Result, Watch};

use self::join::Join;
use self::leave::leave;
use self::read::{watch_member, watch_members};
use crate::backend::ZkBackend;

#[async_trait]
impl Groups for ZkBackend {
    async fn join(&self, member: &LockPath, data: &[u8], replaces: bool) -> Result<Joined> {
        let mut operation = self.operation("join", member);
        operation.budget.check_size(data)?;
        let mut join = Join { data, replaces, is_repeated: false };
        repeat!(operation.budget, |session| join.attempt(&mut operation, session))
    }

    async fn leave(&self, member: &LockPath) -> Result<()> {
        let mut operation = self.operation("leave", member);
        let shared = operation.shared;
        let id = NodeId::new(operation.server_path());
        let mut is_known = shared.sessions.own().contains(&id);
        shared.sessions.own().remove(&id);
        shared.names.remove(&id);
        repeat!(operation.budget, |session| leave(&mut operation, session, &mut is_known))
    }

    async fn members_with_watch(&self, group: &LockPath) -> Result<(Vec<ListedMember>, Watch)> {
        let mut operation = self.operation("members_with_watch", group);
        repeat!(operation.budget, |session| watch_members(&mut operation, session))
    }

    async fn member_with_watch(&self, member: &LockPath) -> Result<Option<(MemberContents, Watch)>> {
        let mut operation = self.operation("member_with_watch", member);
        repeat!(operation.budget, |session| watch_member(&mut operation, session))
    }
}
