//! Batches of nodes that are deleted and appended, which are most of what a lock needs.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::Row;
use zlock_ledger::tables::{Names, empty, in_order, int, is_queue, stripe};
use zlock_ledger::{Fault, Outcome, Range, Scope, Tx, Write};

use super::rows::{entry, get, key};
use crate::error::Failure;

/// A batch, as the columns of two tables.
#[derive(Default)]
pub(super) struct Batch<'a> {
    pub(super) gone: Vec<Vec<u8>>,
    pub(super) gone_stripe: Vec<i32>,
    pub(super) id: Vec<Vec<u8>>,
    pub(super) scope: Vec<Vec<u8>>,
    pub(super) stripe: Vec<i32>,
    pub(super) path: Vec<&'a [u8]>,
    pub(super) key: Vec<&'a [u8]>,
    pub(super) label: Vec<&'a str>,
    pub(super) data: Vec<&'a [u8]>,
    pub(super) floor: Vec<i64>,
    pub(super) limit: Vec<Option<i64>>,
    /// The transaction of each key.
    txs: BTreeMap<&'a str, usize>,
}

/// What a batch has done.
pub(super) struct Done<'a> {
    pub(super) outcomes: Vec<Result<Outcome, Fault>>,
    /// Whether some that wait behind the deleted nodes were not notified.
    pub(super) has_missed: bool,
    /// The nodes that were read, and that may be about to go.
    pub(super) going: Vec<(&'a Scope, String)>,
}

impl<'a> Batch<'a> {
    /// Returns the batch if it consists of nothing else, and the order between its parts does not matter.
    pub(super) fn of(names: &Names, txs: &'a [Tx]) -> Option<Self> {
        let mut batch = Batch::default();
        let mut keys = BTreeSet::new();
        for (i, tx) in txs.iter().enumerate() {
            let key = match (tx.then.as_slice(), tx.read.as_slice()) {
                ([Write::Delete { scope, key }], []) if is_queue(scope) => {
                    batch.gone.push(names.entry(scope, key));
                    batch.gone_stripe.push(stripe(&names.scope(scope)));
                    key
                }
                ([Write::Append { key, owned: true, label: Some(label), data }], reads)
                    if is_queue(&tx.scope) =>
                {
                    let (floor, limit) = match reads {
                        [] => (0, Some(1)),
                        [read] if read.scope == tx.scope && !read.data => match read.range {
                            Range::All => (int(read.floor), None),
                            Range::Last { up_to: None, limit: limit @ 1.. } => {
                                (int(read.floor), Some(i64::from(limit)))
                            }
                            _ => return None,
                        },
                        _ => return None,
                    };
                    let scope = names.scope(&tx.scope);
                    batch.id.push(names.entry(&tx.scope, key));
                    batch.stripe.push(stripe(&scope));
                    batch.scope.push(scope);
                    batch.path.push(tx.scope.path.as_bytes());
                    batch.key.push(key.as_bytes());
                    batch.label.push(label);
                    batch.data.push(data);
                    batch.floor.push(floor);
                    batch.limit.push(limit);
                    key
                }
                _ => return None,
            };
            if !tx.when.is_empty() || !keys.insert(key) {
                return None;
            }
            batch.txs.insert(key, i);
        }
        Some(batch)
    }

    /// Returns the outcome of each transaction.
    pub(super) fn done(&self, txs: &'a [Tx], rows: &[Row]) -> Result<Done<'a>, Failure> {
        let mut outcomes: Vec<_> = txs.iter().map(|tx| Ok(empty(tx))).collect();
        let (mut has_missed, mut is_quiet, mut going) = (false, false, Vec::new());
        for row in rows {
            let status: i32 = get(row, 0)?;
            match status {
                4 => is_quiet = true,
                6 => has_missed = true,
                _ => {
                    let place = self.txs.get(key(row, 1)?.as_str()).copied().ok_or(Failure::Malformed)?;
                    let Ok(outcome) = &mut outcomes[place] else { return Err(Failure::Malformed) };
                    let found = entry(row, 2, false)?;
                    let is_own = status == 1 || self.txs.get(found.key.as_str()) == Some(&place);
                    if status == 3 {
                        outcomes[place] = Err(Fault::Busy);
                        continue;
                    }
                    if is_own {
                        outcome.written[0] = Some(found.clone());
                    } else if get(row, 9)? {
                        going.push((&txs[place].scope, found.key.clone()));
                    }
                    if let Some(read) = outcome.read.first_mut() {
                        read.push(found);
                    }
                }
            }
        }
        in_order(&mut outcomes);
        for (tx, outcome) in txs.iter().zip(&mut outcomes) {
            let is_missing = outcome.as_ref().is_ok_and(|outcome| outcome.written == [None]);
            if is_missing && matches!(tx.then[..], [Write::Append { .. }]) {
                *outcome = Err(if is_quiet { Fault::Quiet } else { Fault::Busy });
            }
        }
        Ok(Done { outcomes, has_missed, going })
    }
}
