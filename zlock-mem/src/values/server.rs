//! What the server does with values and receipts.

use tokio::time::Instant;
use zlock_core::{LockPath, SessionId, Value, Version, WriteOutcome};

use crate::link::ClientId;
use crate::request::{Answer, ValueWrite, Watcher};
use crate::state::State;
use crate::tree::{Entry, Owner, split};
use crate::watch::Watched;

impl State {
    pub(crate) fn read_value(
        &mut self,
        client: ClientId,
        session: SessionId,
        path: &LockPath,
        watcher: Option<Watcher>,
    ) -> Answer {
        let Ok(value) = self.value_at(path) else { return Answer::NoValue };
        if let Some(watcher) = watcher {
            let (parent, name) = split(path.as_str());
            self.watches.arm(Watched::Child(parent.into(), name.into()), client, session, watcher);
        }
        Answer::Value(value)
    }

    /// Writes the value and the receipt in one step. A write that has its receipt already is not repeated.
    pub(crate) fn write_value(&mut self, session: SessionId, write: ValueWrite, now: Instant) -> Answer {
        let ValueWrite { path, expected, data, guard, receipt: (number, id) } = write;
        if let Some((_, version)) = self.receipts.get(&(session, number)).filter(|(of, _)| *of == id) {
            return Answer::WroteValue(WriteOutcome::Written(*version));
        }
        let is_gone = |parent: &LockPath, name: &str| !self.tree.has_child(parent.as_str(), name);
        if guard.as_ref().is_some_and(|guard| is_gone(&guard.parent, guard.name.as_str())) {
            return Answer::WroteValue(WriteOutcome::GuardGone);
        }
        let Ok(current) = self.value_at(&path) else { return Answer::NoValue };
        if current.as_ref().map(|value| value.version) != expected {
            return Answer::WroteValue(WriteOutcome::Conflict(current));
        }
        let (transaction, (parent, name)) = (self.next_transaction(), split(path.as_str()));
        let mut changes = match current {
            Some(_) => self.tree.set_data(parent, name, data).unwrap_or_default(),
            None => {
                let mut changes = self.tree.make_containers(parent, transaction);
                changes.extend(self.tree.insert(parent, name, Owner::Nobody, data, transaction));
                changes
            }
        };
        if let Some(guard) = guard.filter(|guard| guard.deletes.is_some()) {
            changes.extend(self.tree.remove(guard.parent.as_str(), guard.name.as_str()).unwrap_or_default());
        }
        let created = expected.map_or(transaction, Version::created);
        let version = Version::new(created, self.tree.get(parent, name).map_or(0, |node| node.writes));
        self.receipts.insert((session, number), (id, version));
        self.changed(changes, now);
        Answer::WroteValue(WriteOutcome::Written(version))
    }

    /// Returns the value at this path. An error if the node there is not a value.
    fn value_at(&self, path: &LockPath) -> Result<Option<Value>, ()> {
        let (parent, name) = split(path.as_str());
        match self.tree.get(parent, name) {
            None => Ok(None),
            Some(Entry { owner: Owner::Nobody, data, writes, transaction, .. }) => {
                Ok(Some(Value::new(data.clone(), Version::new(*transaction, *writes))))
            }
            Some(_) => Err(()),
        }
    }
}
