//! The fence: what keeps a create from taking effect after it was given up.
//!
//! A request that nobody waits for any more may reach the store at any later time, and requests have no
//! order. So each create says "if the fence is as I know it"; who gives creates up raises the fence, and
//! from the answer on none that was sent before can take effect. The fence is one key of the session,
//! tied to its lease, and is there only once it was raised. Creates of a session that is over need none:
//! their lease is gone.
//!
//! It costs no message until a create is given up, and then one, which also takes away or brings to light
//! what the create has left. Creates of the same session that are under way meanwhile fail, and are
//! repeated with the new fence.

use etcd_client::{Compare, CompareOp, GetResponse, PutOptions, Txn, TxnOp, TxnResponse};
use zlock_core::kit::SessionKey;

use crate::error::Failure;
use crate::key;
use crate::operation::Operation;
use crate::session::lease_id;
use crate::txn::revision;

/// The condition of a create: the fence was last raised at this revision.
pub(crate) fn is(operation: &Operation<'_>, lease: SessionKey, revision: i64) -> Compare {
    Compare::mod_revision(key::fence(operation.shared.options.prefix(), lease.id), CompareOp::Equal, revision)
}

/// Reads the fence, as a part of a create that fails.
pub(crate) fn get(operation: &Operation<'_>, lease: SessionKey) -> TxnOp {
    TxnOp::get(key::fence(operation.shared.options.prefix(), lease.id), None)
}

/// Takes notice of a fence that was read.
pub(crate) fn saw(operation: &Operation<'_>, lease: SessionKey, fence: &GetResponse) {
    if let Some(fence) = fence.kvs().first() {
        operation.shared.saw_fence(lease, fence.mod_revision());
    }
}

/// Raises the fence, and does `then` in the same transaction: when this is answered, no create that this
/// session has sent before can take effect any more.
pub(crate) async fn raise(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    then: TxnOp,
) -> Result<TxnResponse, Failure> {
    let key = key::fence(operation.shared.options.prefix(), lease.id);
    let put = TxnOp::put(key, "", Some(PutOptions::new().with_lease(lease_id(lease))));
    let answer = operation.write(lease, Txn::new().and_then([put, then])).await?;
    operation.shared.saw_fence(lease, revision(&answer));
    Ok(answer)
}
