//! Writing a node's data.

use etcd_client::{Compare, CompareOp, PutOptions, TxnOp};
use zlock_core::kit::SessionKey;
use zlock_core::{DataWrite, Label, Node};

use crate::error::Failure;
use crate::keys::value;
use crate::operations::operation::Operation;
use crate::requests::txn::{Write, is_still};

/// Writes the data of a candidate if it was written this often.
pub(crate) async fn replace(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    node: &Node,
    writes: u64,
    data: &[u8],
) -> Result<DataWrite, Failure> {
    let key = operation.keys.of(&node.name);
    // The create is the first version.
    let version = i64::try_from(writes).unwrap_or(i64::MAX).saturating_add(1);
    let is_it = Compare::version(key.as_str(), CompareOp::Equal, version);
    let conditions = vec![is_still(&key, node), is_it];
    let value = value::of(value::id_of(node), Label::Candidate, data);
    let put = TxnOp::put(key.as_str(), value.as_slice(), Some(PutOptions::new().with_ignore_lease()));
    let get = TxnOp::get(key.as_str(), None);
    let write = Write::new(&operation.keys, &key, value.len(), conditions, vec![put], vec![get]);
    let answer = operation.write(lease, write).await?;
    if answer.succeeded() {
        return Ok(DataWrite::Written);
    }
    let kv = operation.found(lease, node, &answer).await?;
    let now = kv.version().cast_unsigned() - 1;
    // By an earlier attempt whose answer was lost.
    let is_ours = operation.budget.ambiguous && now == writes + 1 && kv.value() == value;
    Ok(if is_ours { DataWrite::Written } else { DataWrite::Conflict(now) })
}

/// Writes the data of a node. Its label does not change.
pub(crate) async fn set(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    node: &Node,
    now: &mut Now,
    data: &[u8],
) -> Result<DataWrite, Failure> {
    while let Some(other) = write(operation, lease, node, now, data).await? {
        *now = other;
    }
    Ok(DataWrite::Written)
}

/// The known value of a node's key.
pub(crate) enum Now {
    /// That of a candidate, which any other of it may replace.
    Candidate,
    /// A value of zlock that begins with these lines.
    Lines(Vec<u8>),
    /// A value that begins with these lines, written at this revision. There are no lines if another program wrote the value.
    Read { lines: Vec<u8>, revision: i64 },
}

impl Now {
    pub(crate) fn of(node: &Node) -> Self {
        match node.label {
            Label::Candidate => Now::Candidate,
            label => Now::Lines(value::head(value::id_of(node), label)),
        }
    }
}

/// One transaction: writes if the key has the expected contents, otherwise returns what it has.
async fn write(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    node: &Node,
    now: &Now,
    data: &[u8],
) -> Result<Option<Now>, Failure> {
    let key = operation.keys.of(&node.name);
    let mut conditions = vec![is_still(&key, node)];
    let value = match now {
        Now::Candidate => value::of(value::id_of(node), node.label, data),
        Now::Lines(lines) => {
            conditions.extend(value::has_head(&key, lines));
            [lines, data].concat()
        }
        Now::Read { lines, revision } => {
            conditions.push(Compare::mod_revision(key.as_str(), CompareOp::Equal, *revision));
            [lines, data].concat()
        }
    };
    // A put that does not keep the lease explicitly would detach the key from it.
    let size = value.len();
    let put = vec![TxnOp::put(key.as_str(), value, Some(PutOptions::new().with_ignore_lease()))];
    let get = vec![TxnOp::get(key.as_str(), None)];
    let write = Write::new(&operation.keys, &key, size, conditions, put, get);
    let answer = operation.write(lease, write).await?;
    if answer.succeeded() {
        return Ok(None);
    }
    let kv = operation.found(lease, node, &answer).await?;
    Ok(Some(Now::Read { lines: value::lines(kv.value()).to_owned(), revision: kv.mod_revision() }))
}
