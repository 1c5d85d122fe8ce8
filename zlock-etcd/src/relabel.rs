//! Giving an own node another label: another value under the same key.

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use zlock_core::{ErrorKind, Label, LockPath, Node, Result};

use crate::error::Failure;
use crate::key::Range;
use crate::operation::{Operation, is_still};
use crate::session::{Lease, Shared};
use crate::value;

/// Writes the node's value anew, with `label` and the data that is there. The key keeps its create revision, and
/// with that its place.
pub(crate) async fn relabel(session: &Shared, parent: &LockPath, node: &Node, label: Label) -> Result<Node> {
    let mut operation = Operation::new(session, "relabel", parent);
    let relabelled = Node { label, ..node.clone() };
    loop {
        let lease = operation.lease().await?;
        if node.session.is_some_and(|id| id != lease.id) {
            return Err(operation.error(ErrorKind::SessionLost));
        }
        match once(&mut operation, lease, &relabelled).await {
            Ok(Outcome::Done) => return Ok(relabelled),
            Ok(Outcome::Gone) => {
                operation.unknown = false;
                return Err(operation.error(ErrorKind::NodeRemoved));
            }
            Ok(Outcome::Changed) => {}
            Err(failure) => operation.again(failure).await?,
        }
    }
}

enum Outcome {
    Done,
    Gone,
    /// Somebody wrote to the node in between.
    Changed,
}

async fn once(operation: &mut Operation<'_>, lease: Lease, node: &Node) -> Result<Outcome, Failure> {
    let key = operation.keys.of(&node.name);
    let read = operation.read(lease, Range { start: key.clone(), end: None }).await?;
    let Some(kv) = read.kvs().first().filter(|kv| kv.create_revision() == node.sequence.get()) else {
        return Ok(Outcome::Gone);
    };
    let value = value::read(kv.value());
    if value.label == node.label {
        return Ok(Outcome::Done);
    }
    // The modification: data that somebody wrote in between goes along.
    let unchanged = Compare::mod_revision(key.as_str(), CompareOp::Equal, kv.mod_revision());
    // A put that does not say "as it is" of the lease would untie the key from it.
    let options = PutOptions::new().with_ignore_lease();
    let put = TxnOp::put(key.as_str(), value::write(node.label, value.data), Some(options));
    let txn = Txn::new().when([is_still(&key, node), unchanged]).and_then([put]);
    let answer = operation.write(lease, txn).await?;
    Ok(if answer.succeeded() { Outcome::Done } else { Outcome::Changed })
}
