//! Batches of nodes that are deleted and appended, which are most of what a lock needs.

use std::collections::BTreeMap;

use super::{Names, empty, in_order, int, is_queue, stripe};
use crate::{Entry, Fault, Outcome, Range, Scope, Tx, Write};

/// A node that is deleted.
#[derive(Clone, Debug)]
pub struct Gone {
    /// Its ID in the tables.
    pub id: Vec<u8>,
    /// The lock of its queue.
    pub stripe: i32,
}

/// A node that is appended to a queue, which is then read.
#[derive(Clone, Debug)]
pub struct New<'a> {
    /// Its ID in the tables.
    pub id: Vec<u8>,
    /// The name of its queue.
    pub scope: Vec<u8>,
    /// The lock of its queue.
    pub stripe: i32,
    /// The path of its queue.
    pub path: &'a [u8],
    /// Its key.
    pub key: &'a [u8],
    /// Its label.
    pub label: &'a str,
    /// Its data.
    pub data: &'a [u8],
    /// The first number that is read.
    pub floor: i64,
    /// How many nodes are read up to it, at least one; without a limit, all of the queue.
    pub limit: Option<i64>,
}

/// A batch.
#[derive(Clone, Debug, Default)]
pub struct Batch<'a> {
    /// What is deleted.
    pub gone: Vec<Gone>,
    /// What is appended, after that.
    pub new: Vec<New<'a>>,
    /// The transaction of each key.
    txs: BTreeMap<&'a str, usize>,
}

/// A row of the answer.
#[derive(Clone, Debug)]
pub struct Found {
    /// 0: a node that was read for an appended one; 1: one that was deleted or appended; 3: one that another transaction protects.
    pub status: i32,
    /// The key of the node to be appended or deleted.
    pub of: String,
    /// The node.
    pub entry: Entry,
}

impl<'a> Batch<'a> {
    /// Returns the batch if it consists of nothing else, and the order between its parts does not matter.
    #[must_use]
    pub fn of(names: &Names, txs: &'a [Tx]) -> Option<Self> {
        let mut batch = Batch::default();
        for (i, tx) in txs.iter().enumerate() {
            let key = match (tx.then.as_slice(), tx.read.as_slice()) {
                ([Write::Delete { scope, key }], []) if is_queue(scope) => {
                    batch
                        .gone
                        .push(Gone { id: names.entry(scope, key), stripe: stripe(&names.scope(scope)) });
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
                    let (id, scope) = (names.entry(&tx.scope, key), names.scope(&tx.scope));
                    let (path, stripe) = (tx.scope.path.as_bytes(), stripe(&scope));
                    let key_bytes = key.as_bytes();
                    batch.new.push(New {
                        id,
                        scope,
                        stripe,
                        path,
                        key: key_bytes,
                        label,
                        data,
                        floor,
                        limit,
                    });
                    key
                }
                _ => return None,
            };
            if !tx.when.is_empty() || batch.txs.insert(key, i).is_some() {
                return None;
            }
        }
        Some(batch)
    }

    /// Returns the queue of the transaction with this key.
    #[must_use]
    pub fn scope<'t>(&self, txs: &'t [Tx], key: &str) -> Option<&'t Scope> {
        Some(&txs.get(*self.txs.get(key)?)?.scope)
    }

    /// Returns the outcome of each transaction; `None` if this is not what the batch can have done. In quiet time, nothing is appended.
    #[must_use]
    pub fn done(
        &self,
        txs: &[Tx],
        found: impl IntoIterator<Item = Found>,
        is_quiet: bool,
    ) -> Option<Vec<Result<Outcome, Fault>>> {
        let mut outcomes: Vec<_> = txs.iter().map(|tx| Ok(empty(tx))).collect();
        for Found { status, of, entry } in found {
            let place = self.txs.get(of.as_str()).copied()?;
            let Ok(outcome) = &mut outcomes[place] else { return None };
            if status == 3 {
                outcomes[place] = Err(Fault::Busy);
                continue;
            }
            if status == 1 || entry.key == of {
                outcome.written[0] = Some(entry.clone());
            }
            if let Some(read) = outcome.read.first_mut() {
                read.push(entry);
            }
        }
        in_order(&mut outcomes);
        for (tx, outcome) in txs.iter().zip(&mut outcomes) {
            let is_missing = outcome.as_ref().is_ok_and(|outcome| outcome.written == [None]);
            if is_missing && matches!(tx.then[..], [Write::Append { .. }]) {
                *outcome = Err(if is_quiet { Fault::Quiet } else { Fault::Busy });
            }
        }
        Some(outcomes)
    }
}
