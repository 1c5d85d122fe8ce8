//! Values: entries that belong to no session. A write leaves a receipt in the same transaction.

use std::sync::Arc;

use async_trait::async_trait;
use zlock_core::kit::{Budget, Receipt, Receipts, SessionKey, ValueStore, ValueWrite, repeat, write_value};
use zlock_core::{Consistency, GuardNode, LockPath, Result, Value, Values, Version, Watch, WriteOutcome};

use crate::backend::LedgerBackend;
use crate::ledger::{Cond, Entry, Fault, Kind, Ledger, Range, Read, Tx, Write};
use crate::operation::Operation;
use crate::shared::{Live, Shared};

/// The key of a value, which is alone in its scope.
const KEY: &str = "";

fn version(entry: &Entry) -> Version {
    Version::new(entry.created, entry.changed)
}

fn value(entry: Entry) -> Value {
    let version = version(&entry);
    Value::new(entry.data, version)
}

impl<L: Ledger> Operation<'_, L> {
    /// Reads a value. A write of it that was dropped takes effect before, or not at all.
    async fn value(&mut self, session: SessionKey) -> Result<Vec<Entry>, Fault> {
        if !self.shared.live(session)?.requests.concerns(&self.scope) {
            return self.read(session, Range::Key(KEY.into()), true).await;
        }
        let read = Read { scope: self.scope.clone(), range: Range::Key(KEY.into()), floor: 0, data: true };
        let tx = Tx { scope: self.scope.clone(), when: Vec::new(), then: Vec::new(), read: vec![read] };
        Ok(self.transact(session, tx).await?.read.pop().unwrap_or_default())
    }
}

#[async_trait]
impl<L: Ledger> Values for LedgerBackend<L> {
    async fn value(&self, path: &LockPath, _: Consistency) -> Result<Option<Value>> {
        let mut operation = self.operation("value", Kind::Value, path);
        let entries = repeat!(operation.budget, |session| operation.value(session))?;
        Ok(entries.into_iter().next().map(value))
    }

    async fn value_with_watch(&self, path: &LockPath) -> Result<(Option<Value>, Watch)> {
        let mut operation = self.operation("value_with_watch", Kind::Value, path);
        repeat!(operation.budget, |session| async {
            let watching = self.shared.hub.arm(&operation.scope, Some(KEY));
            let entries = operation.value(session).await?;
            operation.watches(session, &watching, &entries);
            let watch = operation.fires(session, watching);
            Ok::<_, Fault>((entries.into_iter().next().map(value), watch))
        })
    }

    async fn write_value(
        &self,
        path: &LockPath,
        expected: Option<Version>,
        data: &[u8],
        guard: Option<&GuardNode>,
    ) -> Result<WriteOutcome> {
        let operation = self.operation("write_value", Kind::Value, path);
        write_value(operation.shared, operation, expected, data, guard).await
    }
}

/// What a condition of a write is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Receipt,
    Guard,
    Value,
}

impl<L: Ledger> ValueStore for Shared<L> {
    type Operation<'a> = Operation<'a, L>;
    type Live = Live;
    type Known = ();
    type Failure = Fault;

    fn receipts(&self, session: SessionKey) -> Option<Arc<Receipts<()>>> {
        Some(self.sessions.get(session)?.receipts.clone())
    }

    fn budget<'o, 'a>(operation: &'o mut Self::Operation<'a>) -> &'o mut Budget<'a, Live> {
        &mut operation.budget
    }

    async fn write(
        &self,
        write: &mut ValueWrite<'_, Self::Operation<'_>>,
        receipt: &mut Receipt<()>,
    ) -> Result<Option<WriteOutcome>, Fault> {
        let deletes = write.deletes();
        let ValueWrite { operation, expected, data, guard } = write;
        let (slot, number, key) = (receipt.number, receipt.id, KEY.to_owned());
        let mut when = Vec::new();
        if operation.budget.ambiguous {
            // The receipt is there if an earlier attempt took effect.
            when.push((About::Receipt, Cond::NoReceipt { slot, write: number }));
        }
        if let Some(guard) = guard {
            let (scope, created) = (self.scope(Kind::Queue, &guard.parent), guard.fencing_token.number());
            when.push((About::Guard, Cond::Alive { scope, key: guard.name.as_str().into(), created }));
        }
        let (cond, change) = match expected {
            None => {
                let append =
                    Write::Append { key: key.clone(), owned: false, label: None, data: data.to_vec() };
                (Cond::Missing { key }, append)
            }
            Some(at) => {
                let update = Write::Update { key: key.clone(), label: None, data: Some(data.to_vec()) };
                (Cond::Version { key, created: at.created(), changed: at.number() }, update)
            }
        };
        when.push((About::Value, cond));
        let mut then = vec![change, Write::Receipt { slot, write: number }];
        if let (Some(node), Some(guard)) = (deletes, guard) {
            let scope = self.scope(Kind::Queue, &guard.parent);
            then.push(Write::Delete { scope, key: node.id.as_str().into() });
        }
        let (abouts, when): (Vec<_>, Vec<_>) = when.into_iter().unzip();
        let tx = Tx { scope: operation.scope.clone(), when, then, read: Vec::new() };
        let mut outcome = operation.transact(receipt.session, tx).await?;
        let malformed = || Fault::Unexpected("the answer has not the form that was expected".into());
        let written = match outcome.failed.take() {
            None => version(outcome.written.first().and_then(Option::as_ref).ok_or_else(malformed)?),
            Some((at, found)) => match (abouts.get(at), found) {
                // The value and its receipt have the same number.
                (Some(About::Receipt), Some(receipt)) => {
                    Version::new(expected.map_or(receipt.changed, Version::created), receipt.changed)
                }
                (Some(About::Guard), _) => return Ok(Some(WriteOutcome::GuardGone)),
                (_, found) => return Ok(Some(WriteOutcome::Conflict(found.map(value)))),
            },
        };
        if let Some(node) = deletes {
            self.live(receipt.session)?.known.lock().remove(&node.id);
        }
        Ok(Some(WriteOutcome::Written(written)))
    }
}
