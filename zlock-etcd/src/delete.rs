//! Removing a node.

use etcd_client::{Txn, TxnOp, TxnOpResponse};
use zlock_core::kit::SessionKey;
use zlock_core::{Deletion, LockPath, Result, Target};

use crate::error::Failure;
use crate::fence;
use crate::operation::Operation;
use crate::session::{Shared, own_id};
use crate::txn::is_still;

/// Removes the node with the target's ID, and says whether it did.
pub(crate) async fn delete(shared: &Shared, parent: &LockPath, target: &Target) -> Result<Deletion> {
    let mut operation = Operation::new(shared, "delete", parent);
    let key = operation.keys.of(target.id());
    shared.sessions.own().remove(&own_id(&key));
    shared.contents.remove(&own_id(&key));
    loop {
        if let Target::Node(node) = target
            && shared.sessions.closed().is_none()
            && node.session.is_some_and(|id| shared.sessions.is_past(id))
        {
            return Ok(deletion(&operation, false));
        }
        let lease = operation.budget.session().await?;
        match once(&mut operation, lease, &key, target).await {
            Ok(removed) => return Ok(deletion(&operation, removed)),
            Err(failure) => operation.budget.retry(failure).await?,
        }
    }
}

/// A request without an answer may have removed it, too.
fn deletion(operation: &Operation<'_>, removed: bool) -> Deletion {
    if removed || operation.budget.ambiguous { Deletion::Deleted } else { Deletion::AlreadyDeleted }
}

/// One try; `false` if there was no such node.
async fn once(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    key: &str,
    target: &Target,
) -> Result<bool, Failure> {
    let answer = match target {
        Target::Node(node) => {
            let txn = Txn::new().when([is_still(key, node)]).and_then([TxnOp::delete(key, None)]);
            operation.write(lease, txn).await?
        }
        Target::Id(_) => fence::raise(operation, lease, TxnOp::delete(key, None)).await?,
    };
    let removed = |response: &TxnOpResponse| matches!(response, TxnOpResponse::Delete(d) if d.deleted() > 0);
    Ok(answer.op_responses().iter().any(removed))
}
