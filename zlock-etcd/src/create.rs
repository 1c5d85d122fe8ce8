//! Taking a place in a queue, also when the answer gets lost.

use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp};
use zlock_core::{Created, ErrorKind, Label, LockPath, Result, Token};

use crate::contents::Contents;
use crate::error::Failure;
use crate::operation::{Operation, get, gets};
use crate::session::{Lease, Shared, own_id};
use crate::{fence, value};

/// What one request takes besides the data is well below the rest of the server's 1.5 MB.
const MAX_DATA: usize = 1_000_000;

/// Creates the node of `token`, or finds it if an earlier try made it.
pub(crate) async fn create(
    session: &Shared,
    parent: &LockPath,
    label: Label,
    token: &Token,
    data: &[u8],
) -> Result<Created> {
    let mut operation = Operation::new(session, "create", parent);
    if data.len() > MAX_DATA {
        return Err(operation
            .error(ErrorKind::InvalidArgument)
            .with_message(format!("{} bytes of node data, at most {MAX_DATA} are taken", data.len())));
    }
    let value = value::write(label, data);
    // The session in which a create of unknown outcome was sent.
    let mut lost_in: Option<Lease> = None;
    loop {
        let lease = operation.lease().await?;
        if lost_in != Some(lease) {
            // What was made in an earlier session of ours is gone: its lease was revoked before this one began.
            (lost_in, operation.unknown) = (None, false);
        }
        let attempt = match lost_in {
            Some(_) => recover(&mut operation, lease, token).await,
            None => append(&mut operation, lease, token, &value).await,
        };
        match attempt {
            Ok(Some(created)) => return Ok(created),
            // Nothing was made, and nothing will be. The fence is as we know it now.
            Ok(None) => (lost_in, operation.unknown) = (None, false),
            Err(failure) => {
                lost_in = operation.unknown.then_some(lease);
                operation.again(failure).await?;
            }
        }
    }
}

/// One transaction: put the key if it is not there, and read the queue. `None` if the fence was raised in
/// between.
async fn append(
    operation: &mut Operation<'_>,
    lease: Lease,
    token: &Token,
    value: &[u8],
) -> Result<Option<Created>, Failure> {
    let (key, range) = (operation.keys.of(token), operation.keys.range());
    let unused = Compare::create_revision(key.as_str(), CompareOp::Equal, 0);
    let put = TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease.raw())));
    let txn = Txn::new()
        .when([unused, fence::unraised(operation, lease)])
        .and_then([put, get(range.clone())])
        .or_else([get(range), fence::get(operation, lease)]);
    let answer = operation.write(lease, txn).await?;
    let gets = gets(&answer);
    let kvs = gets.first().map_or(&[][..], |get| get.kvs());
    if let [_, fence] = &gets[..] {
        fence::saw(operation, lease, fence);
        if operation.keys.queue(kvs).find(token).is_some_and(|node| node.session != Some(lease.id)) {
            return Err(Failure::TokenInUse);
        }
    }
    Ok(finish(operation, lease, token, kvs))
}

/// Makes sure that no create of unknown outcome takes effect from now on, and looks whether one has.
async fn recover(
    operation: &mut Operation<'_>,
    lease: Lease,
    token: &Token,
) -> Result<Option<Created>, Failure> {
    let answer = fence::raise(operation, lease, get(operation.keys.range())).await?;
    Ok(gets(&answer).first().and_then(|get| finish(operation, lease, token, get.kvs())))
}

/// Completes the answer, if the node is there: from here on the backend answers for it.
fn finish(operation: &Operation<'_>, lease: Lease, token: &Token, kvs: &[KeyValue]) -> Option<Created> {
    let queue = operation.keys.queue(kvs);
    let node = queue.find(token).filter(|node| node.session == Some(lease.id))?.clone();
    let key = operation.keys.of(token);
    let id = own_id(&key);
    if node.label != Label::Lock
        && let Some(kv) = kvs.iter().find(|kv| kv.key() == key.as_bytes())
    {
        operation.session.contents.insert(&id, Contents::of(kv));
    }
    let gone = operation.session.own.insert(&id);
    Some(Created { node, queue, epoch: lease.epoch, gone })
}
