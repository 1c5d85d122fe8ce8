//! What the server does with members.

use tokio::time::Instant;
use zlock_core::{LockPath, SessionId};

use crate::request::Answer;
use crate::state::State;
use crate::tree::{Owner, split};

impl State {
    /// Creates the member, or replaces that of another session.
    pub(crate) fn join(
        &mut self,
        session: SessionId,
        member: &LockPath,
        data: Vec<u8>,
        replaces: bool,
        now: Instant,
    ) -> Answer {
        let (group, name) = split(member.as_str());
        let mut changes = Vec::new();
        if let Some(node) = self.tree.get(group, name) {
            match node.owner.session() {
                Some(owner) if owner == session => return Answer::Joined(node.transaction),
                Some(_) if replaces => changes = self.tree.remove(group, name).unwrap_or_default(),
                taken => return Answer::Taken(taken),
            }
        }
        let transaction = self.next_transaction();
        changes.extend(self.tree.make_containers(group, transaction));
        changes.extend(self.tree.insert(group, name, Owner::Session(session), data, transaction));
        self.changed(changes, now);
        Answer::Joined(transaction)
    }

    /// Removes the member if this session owns it.
    pub(crate) fn leave(&mut self, session: SessionId, member: &LockPath, now: Instant) -> Answer {
        let (group, name) = split(member.as_str());
        if self.tree.get(group, name).is_none_or(|node| node.owner != Owner::Session(session)) {
            return Answer::NoNode;
        }
        let changes = self.tree.remove(group, name).unwrap_or_default();
        self.next_transaction();
        self.changed(changes, now);
        Answer::Done
    }
}
