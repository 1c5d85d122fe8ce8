//! Leaving a group.

use etcd_client::{Compare, CompareOp, KeyValue, Txn, TxnOp};
use zlock_core::NodeId;
use zlock_core::kit::SessionKey;

use crate::error::Failure;
use crate::keys::members::Removal;
use crate::operations::operation::Operation;
use crate::session::lease_id;

pub(super) async fn leave(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    id: &NodeId,
) -> Result<(), Failure> {
    let (live, key) = (operation.shared.live(lease)?, id.as_str());
    let removal = live.members.lock().removal(id);
    let written = match removal {
        // Members of earlier sessions are gone.
        None => return Ok(()),
        Some(Removal::Known(revision)) => Some(revision),
        Some(Removal::Unknown) => {
            let fence = live.fences.of(operation.shared.options.prefix(), lease.id, key);
            let txn = Txn::new().and_then([fence.raise(), TxnOp::get(key, None)]);
            let answer = operation.write_alone(lease, txn).await?;
            fence.raised_by(&answer);
            answer.first().filter(|kv| kv.lease() == lease_id(lease)).map(KeyValue::mod_revision)
        }
    };
    if let Some(revision) = written {
        // Another session may have replaced it.
        let is_it = Compare::mod_revision(key, CompareOp::Equal, revision);
        let txn = Txn::new().when([is_it]).and_then([TxnOp::delete(key, None)]);
        operation.write_alone(lease, txn).await?;
    }
    live.members.lock().forget(id);
    Ok(())
}
