//! Relabelling an own node: a new value under the same key.

use etcd_client::{Compare, CompareOp, PutOptions, TxnOp};
use zlock_core::Node;
use zlock_core::kit::SessionKey;

use crate::error::Failure;
use crate::keys::revision;
use crate::keys::value;
use crate::operations::operation::Operation;
use crate::requests::txn::{Write, is_still};
use crate::session::contents::Contents;

/// Rewrites a node's value with another label and the existing data. The key keeps its create revision, and therefore its
/// place. `node` is the node as it will be.
pub(crate) async fn relabel(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    node: &Node,
) -> Result<(), Failure> {
    if node.session.is_some_and(|id| id != lease.id) {
        return Err(Failure::OtherSession);
    }
    while !once(operation, lease, node).await? {}
    Ok(())
}

/// One transaction: writes if the node has the known contents, otherwise reads them. Returns `true` if the node has its label.
async fn once(operation: &mut Operation<'_>, lease: SessionKey, node: &Node) -> Result<bool, Failure> {
    let key = operation.keys.of(&node.name);
    let contents = &operation.shared.contents;
    // No key was written at revision 0.
    let unknown = Contents { label: node.label, data: [].into(), revision: 0 };
    let known = contents.get(&node.id).filter(|known| known.label != node.label).unwrap_or(unknown);
    // Data that another client wrote in between, such as a revocation, must not be lost.
    let unchanged = Compare::mod_revision(key.as_str(), CompareOp::Equal, known.revision);
    // A put that does not keep the lease explicitly would detach the key from it.
    let options = PutOptions::new().with_ignore_lease();
    let value = value::of(value::id_of(node), node.label, &known.data);
    let size = value.len();
    let put = vec![TxnOp::put(key.as_str(), value, Some(options))];
    let (when, get) = (vec![is_still(&key, node), unchanged], vec![TxnOp::get(key.as_str(), None)]);
    let write = Write::new(&operation.keys, &key, size, when, put, get);
    let answer = operation.write(lease, write).await?;
    if answer.succeeded() {
        contents.insert(
            &node.id,
            Contents { label: node.label, data: known.data, revision: revision::of(answer.header()) },
        );
        return Ok(true);
    }
    let now = Contents::of(&operation.found(lease, node, &answer).await?);
    let is_done = now.label == node.label;
    contents.insert(&node.id, now);
    Ok(is_done)
}
