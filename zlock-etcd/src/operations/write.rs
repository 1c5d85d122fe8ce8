//! Writing a node's data.

use std::ops::ControlFlow::{Break, Continue};

use etcd_client::{Compare, CompareOp, PutOptions, TxnOp};
use zlock_core::kit::{Attempt, SessionKey};
use zlock_core::{Label, Node, Replaced};

use crate::error::Failure;
use crate::keys::value;
use crate::operations::operation::{Attempted, Operation};
use crate::requests::txn::{Write, is_still};
use crate::session::lease;

/// Writes the data of a candidate if it was written this often.
pub(crate) struct Replace<'a> {
    pub(crate) node: &'a Node,
    pub(crate) writes: u64,
    pub(crate) data: &'a [u8],
}

impl<'o> Attempt<Operation<'o>, Failure> for Replace<'_> {
    type Output = Replaced;

    async fn attempt(&mut self, operation: &mut Operation<'o>, lease: SessionKey) -> Attempted<Replaced> {
        let key = operation.keys.of(&self.node.name);
        // The create is the first version.
        let version = i64::try_from(self.writes).unwrap_or(i64::MAX).saturating_add(1);
        let is_it = Compare::version(key.as_str(), CompareOp::Equal, version);
        let conditions = vec![is_still(&key, self.node), is_it];
        let value = value::of(value::id_of(self.node), Label::Candidate, self.data);
        let put = TxnOp::put(key.as_str(), value.as_slice(), Some(PutOptions::new().with_ignore_lease()));
        let get = TxnOp::get(key.as_str(), None);
        let write = Write::new(&operation.keys, &key, value.len(), conditions, vec![put], vec![get]);
        let answer = operation.write(lease, write).await?;
        if answer.succeeded() {
            return Ok(Break(Replaced::Written));
        }
        let gets = answer.gets();
        let kv = gets.first().and_then(|get| get.kvs().first());
        let Some(kv) = kv.filter(|kv| kv.create_revision() == self.node.sequence.get()) else {
            lease::missed(operation.shared, lease, self.node).await?;
            return Err(operation.node_deleted());
        };
        let now = kv.version().cast_unsigned() - 1;
        // By an earlier attempt whose answer was lost.
        let is_ours = operation.budget.ambiguous && now == self.writes + 1 && kv.value() == value;
        Ok(Break(if is_ours { Replaced::Written } else { Replaced::Conflict(now) }))
    }
}

/// Writes the data of a node. Its label does not change.
pub(crate) struct SetData<'a> {
    node: &'a Node,
    now: Now,
    data: &'a [u8],
}

impl<'a> SetData<'a> {
    pub(crate) fn new(node: &'a Node, data: &'a [u8]) -> Self {
        SetData { node, now: Now::of(node), data }
    }
}

impl<'o> Attempt<Operation<'o>, Failure> for SetData<'_> {
    type Output = ();

    async fn attempt(&mut self, operation: &mut Operation<'o>, lease: SessionKey) -> Attempted<()> {
        match write(operation, lease, self.node, &self.now, self.data).await? {
            Outcome::Done => return Ok(Break(())),
            Outcome::Gone => return Err(operation.node_deleted()),
            Outcome::Is(other) => self.now = other,
        }
        Ok(Continue(()))
    }
}

/// The known value of a node's key.
enum Now {
    /// That of a candidate, which any other of it may replace.
    Candidate,
    /// A value of zlock that begins with these lines.
    Lines(Vec<u8>),
    /// A value that begins with these lines, written at this revision. There are no lines if another program wrote the value.
    Read { lines: Vec<u8>, revision: i64 },
}

impl Now {
    fn of(node: &Node) -> Self {
        match node.label {
            Label::Candidate => Now::Candidate,
            label => Now::Lines(value::head(value::id_of(node), label)),
        }
    }
}

enum Outcome {
    Done,
    Gone,
    /// The key did not have the expected contents, but these.
    Is(Now),
}

/// One transaction: writes if the key has the expected contents, otherwise reads it.
async fn write(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    node: &Node,
    now: &Now,
    data: &[u8],
) -> Result<Outcome, Failure> {
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
        return Ok(Outcome::Done);
    }
    let gets = answer.gets();
    let kv = gets.first().and_then(|get| get.kvs().first());
    Ok(match kv.filter(|kv| kv.create_revision() == node.sequence.get()) {
        None => {
            lease::missed(operation.shared, lease, node).await?;
            Outcome::Gone
        }
        Some(kv) => {
            let lines = value::lines(kv.value()).to_owned();
            Outcome::Is(Now::Read { lines, revision: kv.mod_revision() })
        }
    })
}
