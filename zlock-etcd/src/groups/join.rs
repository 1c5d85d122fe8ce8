//! Joining a group.

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use zlock_core::kit::{Failure as _, SessionKey};
use zlock_core::{Joined, NodeId, Registration};

use crate::error::Failure;
use crate::keys::key::{PlaceName, owner};
use crate::keys::revision;
use crate::operations::create::own;
use crate::operations::operation::Operation;
use crate::session::lease_id;

pub(super) struct Join<'a> {
    pub(super) id: NodeId,
    pub(super) data: &'a [u8],
    pub(super) replaces: bool,
    /// The revision of the member to replace, if one was found.
    pub(super) replaced: Option<i64>,
}

impl Join<'_> {
    /// One transaction: puts the key if it does not exist, or is still the member to replace. Otherwise reads what kept it from
    /// that. Before it, one that voids earlier attempts without an answer: another client may join once this
    /// attempt is answered, and they must not take effect after that.
    pub(super) async fn attempt(
        &mut self,
        operation: &mut Operation<'_>,
        lease: SessionKey,
    ) -> Result<Joined, Failure> {
        let (live, key) = (operation.shared.live(lease)?, self.id.as_str());
        let name = PlaceName::parse(key.rsplit('/').next().unwrap_or(key));
        let is_place_of = |session| name.is_some_and(|place| Some(place.lease) == session);
        if is_place_of(Some(lease.id)) {
            return Err(Failure::NamedAsAPlace);
        }
        let fence = live.fences.of(operation.shared.options.prefix(), lease.id, key);
        loop {
            if live.members.lock().is_unanswered(&self.id) {
                let answer = operation.write_alone(lease, Txn::new().and_then([fence.raise()])).await?;
                fence.raised_by(&answer);
                live.members.lock().forget_unanswered(&self.id);
            }
            let (carried, renewal) = (fence.known(), *live.renewal.lock());
            let is_free = Compare::mod_revision(key, CompareOp::Equal, self.replaced.take().unwrap_or(0));
            let put = TxnOp::put(key, self.data, Some(PutOptions::new().with_lease(lease_id(lease))));
            let txn = Txn::new().when([fence.is(carried), is_free]).and_then([put]);
            let txn = txn.or_else([fence.get(), TxnOp::get(key, None)]);
            live.members.lock().sent(&self.id);
            let answer = operation.write_alone(lease, txn).await;
            if !answer.as_ref().is_err_and(|failure| failure.classify().ambiguous) {
                live.members.lock().answered(&self.id);
            }
            let answer = answer?;
            let written = if answer.succeeded() {
                revision::of(answer.header())
            } else {
                let raised = fence.read(carried, &answer).ok_or_else(|| operation.shared.lost(lease))?;
                let gets = answer.gets();
                match gets.get(1).and_then(|get| get.kvs().first()) {
                    // By an attempt whose answer was lost.
                    Some(kv) if kv.lease() == lease_id(lease) => kv.mod_revision(),
                    Some(kv) if self.replaces && kv.lease() != 0 && !is_place_of(owner(kv)) => {
                        self.replaced = Some(kv.mod_revision());
                        continue;
                    }
                    Some(kv) => {
                        // No request is without an answer.
                        live.members.lock().forget(&self.id);
                        let taken = Joined::Taken(owner(kv));
                        operation.budget.ambiguous = false;
                        return Ok(taken);
                    }
                    // Only the fence has changed, or the key has been deleted since.
                    _ => {
                        tracing::debug!(key, carried, raised, "a join is repeated");
                        continue;
                    }
                }
            };
            // Until the caller knows the member.
            operation.budget.ambiguous = true;
            live.members.lock().joined(&self.id, written);
            let deletion = own(operation, lease, &live, &self.id, renewal, &answer).await?;
            let number = written.cast_unsigned();
            return Ok(Joined::Joined(Registration::new(lease.id, lease.epoch, number, deletion)));
        }
    }
}
