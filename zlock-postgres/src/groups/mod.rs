//! Groups: rows with fixed names, each owned by a session.
//!
//! A join and a leave have the receipt of a write. So each is executed once at most, and not at all once it was given up.

mod join;
mod leave;
mod parts;
mod read;

use async_trait::async_trait;
use zlock_core::kit::{WriteReceipt, repeat};
use zlock_core::{Groups, Joined, ListedMember, LockPath, NodeId, Result, Watch};

use self::join::Join;
use self::leave::leave;
use self::read::arm_members;
use crate::backend::PostgresBackend;

#[async_trait]
impl Groups for PostgresBackend {
    async fn join(&self, member: &LockPath, data: &[u8], replaces: bool) -> Result<Joined> {
        let mut operation = self.operation("join", member);
        operation.budget.check_size(data)?;
        let mut join = Join::new(operation.shared.clone(), data, replaces);
        repeat!(operation.budget, |session| join.attempt(&mut operation, session))
    }

    async fn leave(&self, member: &LockPath) -> Result<()> {
        let mut operation = self.operation("leave", member);
        operation.shared.sessions.own().remove(&NodeId::new(&*operation.path));
        let mut receipt = WriteReceipt::new(operation.shared.clone());
        repeat!(operation.budget, |session| leave(&mut operation, session, &mut receipt))
    }

    async fn members_with_watch(&self, group: &LockPath) -> Result<(Vec<ListedMember>, Watch)> {
        let mut operation = self.operation("members_with_watch", group);
        repeat!(operation.budget, |session| arm_members(&operation, session))
    }
}
