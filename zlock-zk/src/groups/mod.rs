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
use self::leave::Leave;
use self::read::{WatchMember, WatchMembers};
use crate::backend::ZkBackend;

#[async_trait]
impl Groups for ZkBackend {
    async fn join(&self, member: &LockPath, data: &[u8], replaces: bool) -> Result<Joined> {
        let mut operation = self.operation("join", member);
        operation.budget.check_size(data)?;
        repeat(&mut operation, &mut Join { data, replaces, is_repeated: false }).await
    }

    async fn leave(&self, member: &LockPath) -> Result<()> {
        let mut operation = self.operation("leave", member);
        let shared = operation.shared;
        let id = NodeId::new(operation.server_path());
        let is_known = shared.sessions.own().contains(&id);
        shared.sessions.own().remove(&id);
        shared.names.remove(&id);
        repeat(&mut operation, &mut Leave { is_known }).await
    }

    async fn members_with_watch(&self, group: &LockPath) -> Result<(Vec<ListedMember>, Watch)> {
        repeat(&mut self.operation("members_with_watch", group), &mut WatchMembers).await
    }

    async fn member_with_watch(&self, member: &LockPath) -> Result<Option<(MemberContents, Watch)>> {
        repeat(&mut self.operation("member_with_watch", member), &mut WatchMember).await
    }
}
