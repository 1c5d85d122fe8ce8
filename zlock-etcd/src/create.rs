//! Taking a place in a queue, also when the answer gets lost.

use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp};
use zlock_core::kit::{Interrupted, SessionKey};
use zlock_core::{Created, ErrorKind, Excerpt, Label, LockPath, NodeId, Result};

use crate::contents::Contents;
use crate::error::Failure;
use crate::operation::Operation;
use crate::session::{Shared, lease_id, own_id};
use crate::txn::{get, gets, revision};
use crate::write::check_size;
use crate::{fence, value};

/// Creates the node with this ID, or finds it if an earlier try made it.
pub(crate) async fn create(
    shared: &Shared,
    parent: &LockPath,
    label: Label,
    node_id: &NodeId,
    data: &[u8],
) -> Result<Created> {
    let mut operation = Operation::new(shared, "create", parent);
    if !node_id.is_uuid() {
        let why = format!("the node ID {} is no UUID", Excerpt::of(node_id.as_str()));
        return Err(operation.budget.error(ErrorKind::InvalidArgument).with_message(why));
    }
    check_size(&operation, data)?;
    let value = value::write(label, data);
    // The session in which a create of unknown outcome was sent.
    let mut lost_in: Option<SessionKey> = None;
    loop {
        let lease = operation.budget.session().await?;
        if lost_in != Some(lease) {
            // What was made in an earlier session of ours is gone: its lease was revoked before this one began.
            (lost_in, operation.budget.ambiguous) = (None, false);
        }
        let attempt = match lost_in {
            Some(_) => recover(&mut operation, lease, node_id).await,
            None => append(&mut operation, lease, node_id, &value).await,
        };
        match attempt {
            Ok(Some(created)) => return Ok(created),
            // Nothing was made, and nothing will be. The fence is as we know it now.
            Ok(None) => (lost_in, operation.budget.ambiguous) = (None, false),
            Err(failure) => {
                lost_in = operation.budget.ambiguous.then_some(lease);
                operation.budget.retry(failure).await?;
            }
        }
    }
}

/// One transaction: put the key if it is not there, and read the queue. `None` if the fence was raised in
/// between.
async fn append(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    node_id: &NodeId,
    value: &[u8],
) -> Result<Option<Created>, Failure> {
    let (key, range) = (operation.keys.of(node_id), operation.keys.range());
    let (unused, known) =
        (Compare::create_revision(key.as_str(), CompareOp::Equal, 0), operation.shared.fence(lease));
    let put = TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease_id(lease))));
    let txn = Txn::new()
        .when([unused, fence::is(operation, lease, known)])
        .and_then([put, get(range)])
        .or_else([fence::get(operation, lease)]);
    let answer = operation.write(lease, txn).await?;
    let gets = gets(&answer);
    let Some(got) = gets.first() else { return Ok(None) };
    if answer.succeeded() {
        return Ok(finish(operation, lease, node_id, got.kvs(), revision(&answer)));
    }
    if known != 0 && got.kvs().is_empty() {
        // The fence goes with the lease. The manager has not heard of it yet.
        operation.shared.sessions.publisher().lose(lease.epoch);
        return Err(Interrupted::SessionLost.into());
    }
    fence::saw(operation, lease, got);
    // Not the fence, so the key.
    if operation.shared.fence(lease) == known { Err(Failure::NodeIdInUse) } else { Ok(None) }
}

/// Makes sure that no create of unknown outcome takes effect from now on, and looks whether one has.
async fn recover(
    operation: &mut Operation<'_>,
    lease: SessionKey,
    node_id: &NodeId,
) -> Result<Option<Created>, Failure> {
    let answer = fence::raise(operation, lease, get(operation.keys.range())).await?;
    Ok(gets(&answer).first().and_then(|get| finish(operation, lease, node_id, get.kvs(), revision(&answer))))
}

/// Completes the answer, if the node is there: from here on the backend answers for it.
fn finish(
    operation: &Operation<'_>,
    lease: SessionKey,
    node_id: &NodeId,
    kvs: &[KeyValue],
    revision: i64,
) -> Option<Created> {
    let queue = operation.keys.queue(kvs);
    let node = queue.find(node_id).filter(|node| node.session == Some(lease.id))?.clone();
    let key = operation.keys.of(node_id);
    let id = own_id(&key);
    if node.label != Label::Lock
        && let Some(kv) = kvs.iter().find(|kv| kv.key() == key.as_bytes())
    {
        operation.shared.contents.insert(&id, Contents::of(kv));
    }
    operation.shared.listings.note(&operation.keys, &queue, revision);
    let deletion = operation.shared.sessions.own().insert(&id);
    Some(Created::new(node, queue, lease.epoch, deletion))
}
