//! The values of the store: rows without a session.

use std::sync::Arc;

use zlock_core::kit::{
    Budget, Failure, FailureClass, Interrupted, Receipt, Receipts, SessionKey, ValueStore, ValueWrite,
    write_value,
};
use zlock_core::{
    Consistency, Error, ErrorKind, GuardNode, LockPath, Result, Value, Values, Version, Watch, WatchEvent,
    WriteOutcome, async_trait,
};

use crate::backend::{Shared, ToyBackend};
use crate::server::{Row, Table};

/// Returns the parent and the name of the row with a value.
fn split(path: &LockPath) -> (Option<LockPath>, &str) {
    (path.parent(), path.as_str().rsplit('/').next().unwrap_or_default())
}

fn find_row<'a>(table: &'a Table, path: &LockPath) -> Option<&'a Row> {
    let (parent, name) = split(path);
    table.rows.iter().find(|row| Some(&row.parent) == parent.as_ref() && row.name == name)
}

fn find(table: &Table, path: &LockPath) -> Option<Value> {
    // A row with a session is a member's or a lock's.
    let row = find_row(table, path).filter(|row| row.session.is_none())?;
    Some(Value::new(&*row.data, Version::new(row.created, row.changed)))
}

/// Writes a row, which may exist.
fn put(table: &mut Table, row: Row) {
    let is_it = |other: &&mut Row| other.parent == row.parent && other.name == row.name;
    match table.rows.iter_mut().find(is_it) {
        Some(old) => *old = Row { created: old.created, ..row },
        None => table.rows.push(row),
    }
}

#[async_trait]
impl Values for ToyBackend {
    async fn value(&self, path: &LockPath, _: Consistency) -> Result<Option<Value>> {
        Ok(self.shared.read("value", path, |table| find(table, path)).await?.1)
    }

    async fn value_with_watch(&self, path: &LockPath) -> Result<(Option<Value>, Watch)> {
        let read = |table: &mut Table| find(table, path);
        let (session, seen) = self.shared.read("value_with_watch", path, read).await?;
        let (path, before) = (path.clone(), seen.clone());
        let look = move |table: &Table| (find(table, &path) != before).then_some(WatchEvent::Changed);
        Ok((seen, self.shared.watch(session, look)))
    }

    async fn write_value(
        &self,
        path: &LockPath,
        expected: Option<Version>,
        data: &[u8],
        guard: Option<&GuardNode>,
    ) -> Result<WriteOutcome> {
        write_value(&self.shared, self.shared.budget("write_value", path), expected, data, guard).await
    }
}

/// The reason why a write has no outcome.
#[derive(Debug)]
pub enum WriteFailure {
    Interrupted(Interrupted),
    NotAValue,
    NoParent,
}

impl From<Interrupted> for WriteFailure {
    fn from(interrupted: Interrupted) -> Self {
        WriteFailure::Interrupted(interrupted)
    }
}

impl Failure for WriteFailure {
    fn classify(&self) -> FailureClass {
        let kind = match self {
            WriteFailure::Interrupted(interrupted) => return interrupted.classify(),
            WriteFailure::NotAValue => ErrorKind::InvalidArgument,
            WriteFailure::NoParent => ErrorKind::InvalidPath,
        };
        FailureClass { kind, ambiguous: false, retryable: false }
    }

    fn explain(self, error: Error) -> Error {
        match self {
            WriteFailure::Interrupted(interrupted) => interrupted.explain(error),
            WriteFailure::NotAValue => error.with_message("the row belongs to a session"),
            WriteFailure::NoParent => error.with_message("a value needs a parent"),
        }
    }
}

/// A write that is dropped is never run later, so nothing needs to be voided.
impl ValueStore for Shared {
    type Operation<'a> = Budget<'a, ()>;
    type Live = ();
    type Known = ();
    type Failure = WriteFailure;

    fn receipts(&self, session: SessionKey) -> Option<Arc<Receipts<()>>> {
        self.sessions.get(session).map(|_| self.receipts.clone())
    }

    fn budget<'o, 'a>(budget: &'o mut Self::Operation<'a>) -> &'o mut Budget<'a, ()> {
        budget
    }

    async fn write(
        &self,
        write: &mut ValueWrite<'_, Self::Operation<'_>>,
        receipt: &mut Receipt<()>,
    ) -> Result<Option<WriteOutcome>, WriteFailure> {
        let ValueWrite { operation: budget, expected, data, guard } = write;
        let (path, session, expected, guard) = (budget.path(), receipt.session, *expected, *guard);
        let (Some(parent), name) = split(path) else { return Err(WriteFailure::NoParent) };
        // A row of the session, next to the value: a transaction that was run already finds it, and does nothing.
        let receipt_name = format!("receipt {}", receipt.number);
        let run = |table: &mut Table| {
            let is_receipt = |row: &&Row| {
                row.name == receipt_name
                    && row.session == Some(session.id)
                    && row.data == receipt.id.to_be_bytes()
            };
            if find_row(table, path).is_some_and(|row| row.session.is_some()) {
                return None;
            }
            let now = find(table, path);
            if let Some(row) = table.rows.iter().find(is_receipt) {
                let created = expected.map_or(row.changed, Version::created);
                return Some(WriteOutcome::Written(Version::new(created, row.changed)));
            }
            let is_guard =
                |row: &Row, guard: &GuardNode| row.parent == guard.parent && row.name == guard.name.as_str();
            if guard.is_some_and(|guard| !table.rows.iter().any(|row| is_guard(row, guard))) {
                return Some(WriteOutcome::GuardGone);
            }
            if now.as_ref().map(|value| value.version) != expected {
                return Some(WriteOutcome::Conflict(now));
            }
            if let Some(guard) = guard.filter(|guard| guard.deletes.is_some()) {
                table.delete(|row| is_guard(row, guard));
            }
            let revision = table.next_revision();
            put(table, Row::new(revision, &parent, name, data));
            let used = Row::new(revision, path, &receipt_name, &receipt.id.to_be_bytes());
            table.delete(|row| row.name == receipt_name && row.session == Some(session.id));
            table.rows.push(Row { session: Some(session.id), ..used });
            Some(WriteOutcome::Written(Version::new(expected.map_or(revision, Version::created), revision)))
        };
        let answer = self.attempt(budget, session, run).await;
        budget.record(answer)?.map(Some).ok_or(WriteFailure::NotAValue)
    }
}
