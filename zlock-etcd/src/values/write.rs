//! Writing a value.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, PutOptions, Txn, TxnOp};
use tokio::runtime::Handle;
use zlock_core::kit::{Budget, Receipt, Receipts, SessionKey, ValueStore, ValueWrite};
use zlock_core::{GuardNode, WriteOutcome};

use super::stored::{key, receipt_key, value, version};
use crate::error::Failure;
use crate::keys::key::Keys;
use crate::keys::revision;
use crate::operations::operation::Operation;
use crate::requests::txn::{self, was_created_at};
use crate::session::{Live, Shared, lease_id};

impl ValueStore for Shared {
    type Operation<'a> = Operation<'a>;
    type Live = Live;
    /// The revision of a receipt; 0 if it does not exist.
    type Known = i64;
    type Failure = Failure;

    fn receipts(&self, lease: SessionKey) -> Option<Arc<Receipts<i64>>> {
        Some(self.sessions.get(lease)?.receipts.clone())
    }

    fn budget<'o, 'a>(operation: &'o mut Self::Operation<'a>) -> &'o mut Budget<'a, Live> {
        &mut operation.budget
    }

    async fn write(
        &self,
        write: &mut ValueWrite<'_, Self::Operation<'_>>,
        receipt: &mut Receipt<i64>,
    ) -> Result<Option<WriteOutcome>, Failure> {
        let (lease, request) = (receipt.session, request(write, receipt));
        // A batch checks no further permissions, and has at most one write of a queue: this one is in it as a write of the value.
        let changes_queue = write.deletes().is_some();
        let answer = if changes_queue || self.options.has_identity() {
            write.operation.write_alone(lease, request.request).await?
        } else {
            write.operation.write(lease, request).await?
        };
        if answer.succeeded() {
            return Ok(Some(written(write, receipt, revision::of(answer.header()))));
        }
        let gets = answer.gets();
        let read = |n: usize| gets.get(n).and_then(|get| get.kvs().first());
        let found = read(0);
        let now = found.map_or(0, KeyValue::mod_revision);
        if now != std::mem::replace(&mut receipt.known, now) {
            let id = receipt.id.to_string();
            return match found.filter(|found| found.value() == id.as_bytes()) {
                // Another program has written or deleted it.
                _ if !write.operation.budget.ambiguous => Ok(None),
                Some(_) => Ok(Some(written(write, receipt, now))),
                None => Err(Failure::NoReceipt),
            };
        }
        let is_guard = |guard: &GuardNode, kv: &KeyValue| {
            kv.create_revision() == guard.fencing_token.number().cast_signed()
        };
        if write.guard.is_some_and(|guard| !read(2).is_some_and(|kv| is_guard(guard, kv))) {
            return Ok(Some(WriteOutcome::GuardGone));
        }
        Ok(Some(WriteOutcome::Conflict(read(1).map(value).transpose()?)))
    }

    fn runtime(&self) -> Option<&Handle> {
        Some(&self.runtime)
    }

    /// Raises the receipt.
    async fn void(self: &Arc<Self>, receipt: &mut Receipt<i64>) -> Result<(), Failure> {
        let (lease, path) = (receipt.session, receipt.path().clone());
        let key = receipt_key(self.options.prefix(), receipt);
        let leased = PutOptions::new().with_lease(lease_id(lease));
        let raise = Txn::new().and_then([TxnOp::put(key, "", Some(leased))]);
        let mut operation = Operation::new(self, "void_write", &path).unreported();
        receipt.known = revision::of(operation.write_alone(lease, raise).await?.header());
        Ok(())
    }
}

/// Returns the condition that the value has the expected version.
fn is_expected(write: &ValueWrite<'_, Operation<'_>>, key: &str) -> Compare {
    match write.expected {
        None => was_created_at(key, 0),
        Some(version) => Compare::mod_revision(key, CompareOp::Equal, version.number().cast_signed()),
    }
}

/// Records that the write was executed at this revision.
fn written(write: &ValueWrite<'_, Operation<'_>>, receipt: &mut Receipt<i64>, revision: i64) -> WriteOutcome {
    receipt.known = revision;
    if let Some(node) = write.deletes() {
        let shared = write.operation.shared;
        shared.contents.remove(&node.id);
        if let Some(live) = shared.sessions.get(receipt.session) {
            live.names.lock().free(&node.id, Some(node.sequence.get()));
        }
    }
    let created = write.expected.map_or(revision, |version| version.created().cast_signed());
    WriteOutcome::Written(version(created, revision))
}

/// One transaction: writes the value and the receipt, or reads what kept it from that.
fn request(write: &ValueWrite<'_, Operation<'_>>, receipt: &Receipt<i64>) -> txn::Write {
    let (keys, prefix) = (&write.operation.keys, write.operation.shared.options.prefix());
    let (key, receipt_key) = (key(keys), receipt_key(prefix, receipt));
    let leased = PutOptions::new().with_lease(lease_id(receipt.session));
    let mut then = vec![
        TxnOp::put(key, write.data, None),
        TxnOp::put(receipt_key.as_str(), receipt.id.to_string(), Some(leased)),
    ];
    let mut when = vec![
        Compare::mod_revision(receipt_key.as_str(), CompareOp::Equal, receipt.known),
        is_expected(write, key),
    ];
    let mut or_else = vec![TxnOp::get(receipt_key, None), TxnOp::get(key, None)];
    if let Some(guard) = write.guard {
        let node = Keys::new(prefix, &guard.parent).of(&guard.name);
        when.push(was_created_at(&node, guard.fencing_token.number().cast_signed()));
        if guard.deletes.is_some() {
            then.push(TxnOp::delete(node.as_str(), None));
        }
        or_else.push(TxnOp::get(node, Some(GetOptions::new().with_keys_only())));
    }
    txn::Write::new(keys, key, write.data.len(), when, then, or_else)
}
