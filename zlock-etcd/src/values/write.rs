//! Writing a value.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, PutOptions, Txn, TxnOp};
use tokio::time::sleep;
use zlock_core::kit::{Receipt, SessionKey, WriteAttempts};
use zlock_core::{GuardNode, Node, Result, Version, WriteOutcome};

use super::read::settled;
use super::stored::{key, receipt_key, value, version};
use crate::error::Failure;
use crate::keys::key::Keys;
use crate::keys::revision;
use crate::operations::operation::Operation;
use crate::requests::txn::{Answer, Write, was_created_at};
use crate::session::{Live, Shared, lease_id};

/// The pause between two attempts to void an abandoned write.
const PAUSE: Duration = Duration::from_millis(100);

/// A write of a value.
pub(super) struct WriteValue<'a> {
    shared: Arc<Shared>,
    expected: Option<Version>,
    data: &'a [u8],
    guard: Option<&'a GuardNode>,
    attempts: WriteAttempts,
    /// The receipt in the session of the last attempt.
    receipt: Option<Used>,
}

/// A receipt in use.
struct Used {
    lease: SessionKey,
    /// What is known is its revision; 0 if it does not exist.
    receipt: Receipt<(), i64>,
    /// Whether the outcome of a request that writes it is unknown.
    is_unknown: bool,
}

impl<'a> WriteValue<'a> {
    pub(super) fn new(
        shared: Arc<Shared>,
        expected: Option<Version>,
        data: &'a [u8],
        guard: Option<&'a GuardNode>,
    ) -> Self {
        WriteValue { shared, expected, data, guard, attempts: WriteAttempts::default(), receipt: None }
    }

    /// Returns the guard's node if the write deletes it.
    fn deleted(&self) -> Option<&'a Node> {
        self.guard?.deletes.as_ref()
    }

    /// Returns the condition that the value has the expected version.
    fn is_expected(&self, key: &str) -> Compare {
        match self.expected {
            None => was_created_at(key, 0),
            Some(version) => Compare::mod_revision(key, CompareOp::Equal, version.number().cast_signed()),
        }
    }

    /// Returns the version that a write at this revision has made.
    fn written(&self, revision: i64) -> WriteOutcome {
        let created = self.expected.map_or(revision, |version| version.created().cast_signed());
        WriteOutcome::Written(version(created, revision))
    }

    pub(super) async fn attempt(
        &mut self,
        operation: &mut Operation<'_>,
        lease: SessionKey,
    ) -> Result<WriteOutcome, Failure> {
        loop {
            let live = operation.shared.live(lease)?;
            if self.receipt.as_ref().is_none_or(|used| used.lease != lease) {
                let taken = live.receipts.take(&(), operation.budget.path());
                let (sessions, deadline) = (&operation.shared.sessions, operation.budget.deadline());
                let receipt = sessions.run_until_ended(lease, deadline, taken).await?;
                self.receipt = Some(Used { lease, receipt, is_unknown: false });
            }
            settled(operation, lease).await?;
            if !self.attempts.begin(lease, self.expected, operation.budget.ambiguous) {
                return Err(Failure::PastWrite);
            }
            let Some(mut used) = self.receipt.take() else { continue };
            let request = self.request(operation, &used);
            let was_unknown = std::mem::replace(&mut used.is_unknown, true);
            let changes_queue = self.deleted().is_some();
            let used = self.receipt.insert(used);
            let answer = match send(operation, lease, request, changes_queue).await {
                Ok(answer) => answer,
                Err(failure) => {
                    used.is_unknown = was_unknown || is_ambiguous(&failure);
                    return Err(failure);
                }
            };
            let Some(mut used) = self.receipt.take() else { continue };
            let outcome = self.outcome(&answer, &mut used, was_unknown);
            // After a refusal, an earlier request may still arrive. It must not find the value missing again, as it was expected.
            used.is_unknown = was_unknown && !matches!(outcome, Ok(Some(WriteOutcome::Written(_))));
            self.receipt = Some(used);
            let outcome = outcome?;
            operation.budget.ambiguous = self.attempts.is_past_unknown();
            let Some(outcome) = outcome else { continue };
            if let (WriteOutcome::Written(_), Some(node)) = (&outcome, self.deleted()) {
                forget(operation.shared, &live, node);
            }
            return if self.attempts.is_conclusive(&outcome) { Ok(outcome) } else { Err(Failure::PastWrite) };
        }
    }

    /// One transaction: writes the value and the receipt, or reads what kept it from that.
    fn request(&self, operation: &Operation<'_>, used: &Used) -> Write {
        let (key, prefix) = (key(&operation.keys), operation.shared.options.prefix());
        let receipt = receipt_key(prefix, used.lease.id, used.receipt.number);
        let leased = PutOptions::new().with_lease(lease_id(used.lease));
        let mut then = vec![
            TxnOp::put(key, self.data, None),
            TxnOp::put(receipt.as_str(), used.receipt.id.to_string(), Some(leased)),
        ];
        let mut when = vec![
            Compare::mod_revision(receipt.as_str(), CompareOp::Equal, used.receipt.known),
            self.is_expected(key),
        ];
        let mut or_else = vec![TxnOp::get(receipt.as_str(), None), TxnOp::get(key, None)];
        if let Some(guard) = self.guard {
            let node = Keys::new(prefix, &guard.parent).of(&guard.name);
            when.push(was_created_at(&node, guard.fencing_token.number().cast_signed()));
            if guard.deletes.is_some() {
                then.push(TxnOp::delete(node.as_str(), None));
            }
            or_else.push(TxnOp::get(node, Some(GetOptions::new().with_keys_only())));
        }
        Write::new(&operation.keys, key, self.data.len(), when, then, or_else)
    }

    /// Returns the outcome according to an answer. `None` if only the receipt differed from what was known.
    fn outcome(
        &self,
        answer: &Answer,
        used: &mut Used,
        was_unknown: bool,
    ) -> Result<Option<WriteOutcome>, Failure> {
        let known = &mut used.receipt.known;
        if answer.succeeded() {
            *known = revision::of(answer.header());
            return Ok(Some(self.written(*known)));
        }
        let gets = answer.gets();
        let read = |n: usize| gets.get(n).and_then(|get| get.kvs().first());
        let receipt = read(0);
        let now = receipt.map_or(0, KeyValue::mod_revision);
        if now != std::mem::replace(known, now) {
            let id = used.receipt.id.to_string();
            return match receipt.filter(|receipt| receipt.value() == id.as_bytes()) {
                Some(_) if was_unknown => Ok(Some(self.written(now))),
                _ if was_unknown => Err(Failure::NoReceipt),
                // Another program has written or deleted it.
                _ => Ok(None),
            };
        }
        let is_guard = |guard: &GuardNode, kv: &KeyValue| {
            kv.create_revision() == guard.fencing_token.number().cast_signed()
        };
        if self.guard.is_some_and(|guard| !read(2).is_some_and(|kv| is_guard(guard, kv))) {
            return Ok(Some(WriteOutcome::GuardGone));
        }
        Ok(Some(WriteOutcome::Conflict(read(1).map(value).transpose()?)))
    }
}

/// Sends the write, together with others if that needs no more permissions than the batch checks.
async fn send(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    write: Write,
    changes_queue: bool,
) -> Result<Answer, Failure> {
    // A batch has at most one write of a queue, and this one is in the batch as a write of the value.
    if changes_queue || operation.shared.options.has_identity() {
        operation.write_alone(lease, write.request).await
    } else {
        operation.write(lease, write).await
    }
}

/// Records that the write was answered, and has deleted the node.
fn forget(shared: &Shared, live: &Live, node: &Node) {
    shared.sessions.own().remove(&node.id);
    shared.contents.remove(&node.id);
    live.names().free(&node.id, Some(node.sequence.get()));
}

fn is_ambiguous(failure: &Failure) -> bool {
    zlock_core::kit::Failure::classify(failure).ambiguous
}

/// A write of unknown outcome is voided, also if its future is dropped. Until then, later operations on the path wait.
impl Drop for WriteValue<'_> {
    fn drop(&mut self) {
        if let Some(mut used) = self.receipt.take().filter(|used| used.is_unknown) {
            used.receipt.abandon();
            self.shared.runtime.spawn(void(self.shared.clone(), used));
        }
    }
}

/// Raises the receipt until that is answered, or the session is over.
async fn void(shared: Arc<Shared>, mut used: Used) {
    let path = used.receipt.path().clone();
    let key = receipt_key(shared.options.prefix(), used.lease.id, used.receipt.number);
    while shared.sessions.get(used.lease).is_some() {
        let mut operation = Operation::new(&shared, "void_write", &path);
        let leased = PutOptions::new().with_lease(lease_id(used.lease));
        let raise = Txn::new().and_then([TxnOp::put(key.as_str(), "", Some(leased))]);
        match operation.write_alone(used.lease, raise).await {
            Ok(answer) => {
                used.receipt.known = revision::of(answer.header());
                return;
            }
            Err(failure) => tracing::debug!(%path, ?failure, "an abandoned write is not void yet"),
        }
        sleep(PAUSE).await;
    }
}
