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
        match self.tree.data(group, name).map(|(_, owner)| owner) {
            None => {}
            Some(Owner::Session(owner)) if owner == session => {
                let number = self.tree.version(group, name).map_or(0, |(created, _)| created);
                return Answer::Joined(number);
            }
            Some(Owner::Session(_)) if replaces => {
                changes = self.tree.remove(group, name).unwrap_or_default();
            }
            Some(Owner::Session(owner)) => return Answer::Taken(Some(owner)),
            Some(Owner::Container | Owner::Nobody) => return Answer::Taken(None),
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
        if self.tree.data(group, name).is_none_or(|(_, owner)| owner != Owner::Session(session)) {
            return Answer::NoNode;
        }
        let changes = self.tree.remove(group, name).unwrap_or_default();
        self.next_transaction();
        self.changed(changes, now);
        Answer::Done
    }
}
