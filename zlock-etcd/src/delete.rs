//! Removing a node.

use etcd_client::{Txn, TxnOp};
use zlock_core::{LockPath, Result, Target};

use crate::error::Failure;
use crate::fence;
use crate::operation::{Operation, is_still};
use crate::session::{Lease, Shared, own_id};

/// Removes the node with the target's token.
pub(crate) async fn delete(session: &Shared, parent: &LockPath, target: &Target) -> Result<()> {
    let mut operation = Operation::new(session, "delete", parent);
    let key = operation.keys.of(target.token());
    session.own.remove(&own_id(&key));
    session.contents.remove(&own_id(&key));
    loop {
        if let Target::Node(node) = target
            && session.closed().is_none()
            && node.session.is_some_and(|id| session.is_over(id))
        {
            return Ok(());
        }
        let lease = operation.lease().await?;
        match once(&mut operation, lease, &key, target).await {
            Ok(()) => return Ok(()),
            Err(failure) => operation.again(failure).await?,
        }
    }
}

async fn once(
    operation: &mut Operation<'_>,
    lease: Lease,
    key: &str,
    target: &Target,
) -> Result<(), Failure> {
    match target {
        Target::Node(node) => {
            let txn = Txn::new().when([is_still(key, node)]).and_then([TxnOp::delete(key, None)]);
            operation.write(lease, txn).await.map(drop)
        }
        Target::Token(_) => fence::raise(operation, lease, TxnOp::delete(key, None)).await.map(drop),
    }
}
