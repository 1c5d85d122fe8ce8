//! The transactions of a lane.

use std::collections::BTreeSet;
use std::time::SystemTime;

use zlock_core::{Label, SessionId};

use super::state::{Holder, State};
use super::tables::Receipt;
use crate::{Cond, Entry, Fault, Kind, Outcome, Range, Scope, Tx, Write};

/// The most sessions that are sent a hint about one entry.
const MAX_HINTS: usize = 64;

/// A condition that fails with what it found, or the reason why it cannot be judged.
type Judged = Result<Option<Option<Entry>>, Fault>;

impl State {
    /// Executes the transactions of a session together. Those are busy whose scope `holder` has not locked.
    pub(crate) fn transact(
        &mut self,
        session: SessionId,
        holder: Holder,
        txs: &[Tx],
    ) -> Vec<Result<Outcome, Fault>> {
        let outcomes = txs.iter().map(|tx| self.execute(session, holder, tx)).collect();
        let deletes_node =
            |write: &Write| matches!(write, Write::Delete { scope, .. } if scope.kind == Kind::Queue);
        let only_deletes = txs.iter().all(|tx| tx.then.iter().all(deletes_node));
        self.commit(!only_deletes);
        outcomes
    }

    fn execute(&mut self, session: SessionId, holder: Holder, tx: &Tx) -> Result<Outcome, Fault> {
        self.transactions += 1;
        check(tx)?;
        if self.is_busy(session, holder, tx) {
            return Err(Fault::Busy);
        }
        let is_owned = |write: &Write| matches!(write, Write::Append { owned: true, .. });
        if self.watched_quiet().is_some() && tx.then.iter().any(is_owned) {
            return Err(Fault::Quiet);
        }
        for (position, cond) in tx.when.iter().enumerate() {
            if let Some(found) = self.judge(session, &tx.scope, cond)? {
                return Ok(Outcome { failed: Some((position, found)), ..Outcome::default() });
            }
        }
        if tx.then.iter().any(is_owned) {
            self.wake(session);
        }
        let (mut number, mut own) = (None, None);
        let mut written = Vec::new();
        for write in &tx.then {
            let mut entry = self.write(session, &tx.scope, write, &mut number);
            if let (Write::Append { .. }, Some(entry)) = (write, &entry) {
                own = Some(entry.created);
            }
            // The interface allows it to be left out, so nobody may rely on it.
            entry.iter_mut().for_each(|entry| entry.data.clear());
            written.push(entry);
        }
        let read = tx.read.iter().map(|read| self.tables.read(read, own)).collect();
        Ok(Outcome { failed: None, written, read })
    }

    /// Returns `true` if somebody else has locked the scope, or a user protects an entry that it would write.
    pub(crate) fn is_busy(&self, session: SessionId, holder: Holder, tx: &Tx) -> bool {
        let writes_protected = |write: &Write| match write {
            Write::Append { key, owned, .. } => {
                let found = self.tables.entry(&tx.scope, key);
                found.is_some_and(|found| found.owner != owned.then_some(session))
                    && self.is_protected(&tx.scope, key)
            }
            Write::Update { key, .. } => self.is_protected(&tx.scope, key),
            Write::Delete { scope, key } => self.is_protected(scope, key),
            Write::Receipt { .. } => false,
        };
        self.is_locked(holder, tx) || tx.then.iter().any(writes_protected)
    }

    /// Returns `None` if the condition holds.
    fn judge(&self, session: SessionId, scope: &Scope, cond: &Cond) -> Judged {
        let find = |scope: &Scope, key: &str| self.tables.entry(scope, key).cloned();
        let check =
            |found: Option<Entry>, check: &dyn Fn(&Entry) -> bool| (found.as_ref().is_some_and(check), found);
        let (holds, found) = match cond {
            Cond::Missing { key } => {
                let found = find(scope, key);
                (found.is_none(), found)
            }
            Cond::Version { key, created, changed } => {
                check(find(scope, key), &|e| (e.created, e.changed) == (*created, *changed))
            }
            Cond::Writes { key, writes } => check(find(scope, key), &|e| e.writes == *writes),
            Cond::Own { key } => check(find(scope, key), &|e| e.owner == Some(session)),
            Cond::NoReceipt { slot, write } => {
                let receipt = self.tables.receipt(session, *slot).filter(|receipt| receipt.write == *write);
                (receipt.is_none(), receipt.map(|receipt| receipt_entry(session, receipt)))
            }
            Cond::Alive { scope, key, created } => {
                let found = find(scope, key);
                let is_it = |entry: &Entry| entry.created == *created;
                if let Some(owner) = found.as_ref().filter(|entry| is_it(entry)).and_then(|entry| entry.owner)
                {
                    match self.swept(owner) {
                        Err(Fault::SessionOver) => return Ok(Some(found)),
                        swept => swept?,
                    };
                }
                check(found, &is_it)
            }
        };
        Ok(if holds { None } else { Some(found) })
    }

    /// Makes a change, and returns the entry that was written, found or removed. Takes a number if it needs one and has none.
    fn write(
        &mut self,
        session: SessionId,
        scope: &Scope,
        write: &Write,
        number: &mut Option<u64>,
    ) -> Option<Entry> {
        match write {
            Write::Append { key, owned, label, data } => {
                let owner = owned.then_some(session);
                if let Some(found) = self.tables.entry(scope, key).filter(|found| found.owner == owner) {
                    return Some(found.clone());
                }
                self.delete(scope, key);
                let number = self.take_number(number);
                let entry = Entry {
                    key: key.clone(),
                    created: number,
                    changed: number,
                    owner,
                    label: label.clone(),
                    writes: 0,
                    time: SystemTime::UNIX_EPOCH.checked_add(self.clock),
                    data: data.clone(),
                };
                self.tables.put(scope, entry.clone());
                Some(entry)
            }
            Write::Update { key, label, data } => {
                let mut entry = self.tables.entry(scope, key)?.clone();
                entry.changed = self.take_number(number);
                if let Some(data) = data {
                    entry.data = data.clone();
                    entry.writes += 1;
                }
                if let Some(label) = label {
                    self.hint(scope, &entry);
                    entry.label = Some(label.clone());
                }
                self.tables.put(scope, entry.clone());
                Some(entry)
            }
            Write::Receipt { slot, write } => {
                let number = self.take_number(number);
                self.tables.set_receipt(session, *slot, Receipt { write: *write, number });
                None
            }
            Write::Delete { scope, key } => self.delete(scope, key),
        }
    }

    fn take_number(&mut self, number: &mut Option<u64>) -> u64 {
        *number.get_or_insert_with(|| {
            let next = self.tables.number() + 1;
            self.tables.set_number(next);
            next
        })
    }

    /// Removes an entry, and notes the hints about it.
    pub(crate) fn delete(&mut self, scope: &Scope, key: &str) -> Option<Entry> {
        let entry = self.tables.remove(scope, key)?;
        self.hint(scope, &entry);
        Some(entry)
    }

    /// Notes the hints for the owners of the entries behind a node. Behind one that excludes all others, only the next is concerned.
    fn hint(&mut self, scope: &Scope, node: &Entry) {
        let Some(label) = &node.label else { return };
        let next_only = Label::parse(label).is_fixed();
        let behind =
            self.tables.entries(scope, node.created + 1).take(if next_only { 1 } else { usize::MAX });
        let mut owners = BTreeSet::new();
        for owner in behind.filter_map(|entry| entry.owner) {
            owners.insert(owner);
            if owners.len() == MAX_HINTS {
                break;
            }
        }
        self.hints.extend(owners.into_iter().map(|owner| (owner, scope.clone(), node.key.clone())));
    }
}

/// Returns the entry with which the condition on a receipt fails.
fn receipt_entry(session: SessionId, receipt: Receipt) -> Entry {
    Entry {
        key: String::new(),
        created: receipt.number,
        changed: receipt.number,
        owner: Some(session),
        label: None,
        writes: 0,
        time: None,
        data: Vec::new(),
    }
}

/// Refuses what no store could execute.
fn check(tx: &Tx) -> Result<(), Fault> {
    let appends = tx.then.iter().filter(|write| matches!(write, Write::Append { .. })).count();
    if appends > 1 {
        return Err(Fault::Invalid("two entries of a transaction would have one number".into()));
    }
    if appends == 0 && tx.read.iter().any(|read| matches!(read.range, Range::Last { up_to: None, .. })) {
        return Err(Fault::Invalid("a read up to the appended entry needs an append".into()));
    }
    Ok(())
}
