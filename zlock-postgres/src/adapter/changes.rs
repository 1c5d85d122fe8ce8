//! What transactions have changed, for those who wait for that.

use zlock_ledger::tables::{Names, int, is_queue, stripe};
use zlock_ledger::{Entry, Fault, Outcome, Tx, Write};

use super::payload::payload;

/// The changes of nodes about which the server notifies others, as the columns of two tables.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) scope: Vec<Vec<u8>>,
    pub(super) stripe: Vec<i32>,
    pub(super) created: Vec<i64>,
    pub(super) payload: Vec<String>,
    pub(super) updated: Vec<Vec<u8>>,
    pub(super) update: Vec<String>,
}

impl Changes {
    pub(super) fn new(names: &Names, txs: &[Tx], outcomes: &[Result<Outcome, Fault>]) -> Self {
        let mut changes = Changes::default();
        let done = txs.iter().zip(outcomes).filter_map(|(tx, outcome)| Some((tx, outcome.as_ref().ok()?)));
        for (tx, outcome) in done {
            for (write, written) in tx.then.iter().zip(&outcome.written) {
                if let Some(written) = written {
                    changes.add(names, tx, write, written);
                }
            }
        }
        changes
    }

    fn add(&mut self, names: &Names, tx: &Tx, write: &Write, written: &Entry) {
        let (scope, key, is_relabelled) = match write {
            Write::Delete { scope, key } => (scope, key, true),
            Write::Update { key, label, .. } => (&tx.scope, key, label.is_some()),
            _ => return,
        };
        if !is_queue(scope) {
            return;
        }
        if matches!(write, Write::Update { .. }) {
            self.updated.push(names.entry(scope, key));
            self.update.push(payload(scope, key));
        }
        // Those behind a node wait for its end, and for its label.
        if is_relabelled {
            let name = names.scope(scope);
            self.stripe.push(stripe(&name));
            self.scope.push(name);
            self.created.push(int(written.created));
            self.payload.push(payload(scope, key));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.scope.is_empty() && self.updated.is_empty()
    }
}
