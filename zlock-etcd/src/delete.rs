//! Removing a node.

use etcd_client::{Txn, TxnOp};
use zlock_core::{LockPath, Result, SessionId, Target};

use crate::error::Failure;
use crate::fence;
use crate::operation::{Operation, is_still};
use crate::session::{Lease, Shared, own_id};

/// Removes the node with the target's token.
pub(crate) async fn delete(session: &Shared, parent: &LockPath, target: &Target) -> Result<()> {
    let mut operation = Operation::new(session, "delete", parent);
    let key = operation.keys.of(target.token());
    session.own.remove(&own_id(&key));
    loop {
        if let Target::Node(node) = target
            && node.session.is_some_and(|id| is_over(session, id))
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

/// Whether this was our session until now. Its nodes go with it.
fn is_over(session: &Shared, id: SessionId) -> bool {
    let current = session.publisher.current();
    session.closed().is_none() && current.id == id && !current.is_live()
}

async fn once(
    operation: &mut Operation<'_>,
    lease: Lease,
    key: &str,
    target: &Target,
) -> Result<(), Failure> {
    let delete = TxnOp::delete(key, None);
    let answer = match target {
        Target::Node(node) => {
            operation.write(lease, Txn::new().when([is_still(key, node)]).and_then([delete])).await
        }
        // The token is in nobody else's key.
        Target::Token(_) => fence::raise(operation, lease, delete).await,
    };
    answer.map(drop)
}
