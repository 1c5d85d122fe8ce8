//! Creating a node in a queue, even if the response is lost.

use std::sync::Arc;

use etcd_client::{GetResponse, KeyValue, PutOptions, ResponseHeader, Txn, TxnOp};
use tokio::time::Instant;
use zlock_core::kit::{SessionKey, repeat};
use zlock_core::{Created, DeletionNotice, Label, NodeId, Result};

use crate::connection::connect::By;
use crate::error::Failure;
use crate::keys::key::PlaceName;
use crate::keys::revision;
use crate::keys::value;
use crate::operations::operation::Operation;
use crate::requests::txn::{Answer, Write, get, get_last_two, was_created_at};
use crate::session::contents::Contents;
use crate::session::lease::prove;
use crate::session::renewal::Renewal;
use crate::session::{Live, Shared, lease_id};

/// Creates a node, or finds it if an earlier attempt created it.
pub(crate) async fn create(
    mut operation: Operation<'_>,
    label: Label,
    node_id: &NodeId,
    data: &[u8],
) -> Result<Created> {
    operation.budget.check_node(node_id, data)?;
    let value = value::of(Some(node_id), label, data);
    let mut create = Create { node_id, label, value, lost_in: None, taken: None };
    let created = repeat!(operation.budget, |lease| create.attempt(&mut operation, lease));
    // The name of a node that was not created and never will be is free again.
    if created.is_err()
        && !operation.budget.ambiguous
        && let Some((_, live)) = create.taken
    {
        live.names.lock().free(node_id, None);
    }
    created
}

/// The state between the attempts at a create.
struct Create<'a> {
    node_id: &'a NodeId,
    label: Label,
    value: Vec<u8>,
    /// The session in which a create of unknown outcome was sent.
    lost_in: Option<SessionKey>,
    taken: Taken,
}

/// The session in which a name was taken for the node.
type Taken = Option<(SessionKey, Arc<Live>)>;

impl Create<'_> {
    async fn attempt(
        &mut self,
        operation: &mut Operation<'_>,
        lease: SessionKey,
    ) -> Result<Created, Failure> {
        if self.lost_in != Some(lease) {
            // A node that was created in an earlier session of ours is gone, because its lease was revoked before this
            // session began.
            (self.lost_in, operation.budget.ambiguous) = (None, false);
        }
        let live = live(operation.shared, lease, self.node_id, &mut self.taken)?;
        loop {
            let attempted = if self.lost_in.is_some() {
                self.recover(operation, lease, &live).await
            } else {
                self.append(operation, lease, &live).await
            };
            if let Ok(None) = attempted {
                // Nothing was created, and nothing will be. The known fence is current.
                operation.budget.ambiguous = false;
            }
            self.lost_in = operation.budget.ambiguous.then_some(lease);
            if let Some(created) = attempted? {
                return Ok(created);
            }
        }
    }

    /// One transaction: puts the key if it does not exist, and reads the queue. `None` if the fence was raised in between, or if
    /// the name belongs to another client.
    async fn append(
        &self,
        operation: &mut Operation<'_>,
        lease: SessionKey,
        live: &Live,
    ) -> Result<Option<Created>, Failure> {
        let Create { node_id, label, ref value, .. } = *self;
        let (key, range) = (key(operation, lease, live, node_id), operation.keys.range());
        // An exclusive lock waits for the node right before it: the newest key except that of this very transaction.
        let is_exclusive = label.is_exclusive();
        let listing = if is_exclusive { get_last_two(range) } else { get(range) };
        let fence = live.fences.of(operation.shared.options.prefix(), lease.id, &key);
        let carried = fence.known();
        let put =
            TxnOp::put(key.as_str(), value.as_slice(), Some(PutOptions::new().with_lease(lease_id(lease))));
        let renewal = *live.renewal.lock();
        let when = vec![was_created_at(&key, 0), fence.is(carried)];
        let (then, or_else) = (vec![put, listing], vec![fence.get()]);
        let write = Write::new(&operation.keys, &key, value.len(), when, then, or_else);
        // The answers of a batch must not be late because one of them is long.
        let answer = if is_exclusive {
            operation.write(lease, write).await?
        } else {
            operation.write_alone(lease, write.request).await?
        };
        if answer.succeeded() {
            // Until the caller knows the node.
            operation.budget.ambiguous = true;
            let own = own(operation, lease, live, node_id, renewal, &answer).await?;
            let listed = Listed::with(&answer);
            if listed.is_whole() || operation.are_places(lease, listed.kvs) {
                return Ok(finish(operation, lease, live, (node_id, label), &key, listed, own));
            }
            // One of the two keys belongs to a lock further down or to no lock, so the node before may not be among them.
            let read = Box::pin(operation.read(lease, operation.keys.range())).await;
            let read = read?;
            let listed = Listed::of(&read, read.header());
            return Ok(finish(operation, lease, live, (node_id, label), &key, listed, own));
        }
        let raised = fence.read(carried, &answer).ok_or_else(|| operation.shared.lost(lease))?;
        if raised == carried {
            // The fence is unchanged, so the key exists.
            tracing::warn!(%key, "the key exists already: does another client use this session's lease?");
            live.names.lock().take_another(node_id);
        }
        Ok(None)
    }

    /// Makes sure that no create of unknown outcome takes effect from now on, and finds out whether one has.
    async fn recover(
        &self,
        operation: &mut Operation<'_>,
        lease: SessionKey,
        live: &Live,
    ) -> Result<Option<Created>, Failure> {
        let Create { node_id, label, .. } = *self;
        let key = key(operation, lease, live, node_id);
        let fence = live.fences.of(operation.shared.options.prefix(), lease.id, &key);
        let renewal = *live.renewal.lock();
        let txn = Txn::new().and_then([fence.raise(), get(operation.keys.range())]);
        let answer = operation.write_alone(lease, txn).await?;
        fence.raised_by(&answer);
        let listed = Listed::with(&answer);
        if find(lease, node_id, &key, listed).is_none() {
            return Ok(None);
        }
        let own = own(operation, lease, live, node_id, renewal, &answer).await?;
        Ok(finish(operation, lease, live, (node_id, label), &key, listed, own))
    }
}

/// Returns what is kept for the session. The node must be new at the first attempt in a session.
fn live(
    shared: &Shared,
    lease: SessionKey,
    node_id: &NodeId,
    taken: &mut Taken,
) -> Result<Arc<Live>, Failure> {
    if let Some((_, live)) = taken.as_ref().filter(|(since, _)| *since == lease) {
        return Ok(live.clone());
    }
    let live = shared.live(lease)?;
    if live.names.lock().get(node_id).is_some() {
        return Err(Failure::NodeIdInUse);
    }
    Ok(taken.insert((lease, live)).1.clone())
}

/// Returns the key that the node has or will have.
fn key(operation: &Operation<'_>, lease: SessionKey, live: &Live, node_id: &NodeId) -> String {
    let number = live.names.lock().take(operation.keys.prefix(), node_id);
    operation.keys.of(PlaceName::new(lease.id, number))
}

/// The minimum part of a lease's life that must be left for a create to rely on a keep-alive, as a divisor.
const LEFT: u32 = 3;

/// Adds the node, whose create was just answered: from here on, the backend reports its deletion. A session at rest gets a
/// deadline, which requires a proof that the lease lives.
pub(crate) async fn own(
    operation: &Operation<'_>,
    lease: SessionKey,
    live: &Live,
    node_id: &NodeId,
    renewal: Option<Renewal>,
    answer: &Answer,
) -> Result<DeletionNotice, Failure> {
    let sessions = &operation.shared.sessions;
    let confirmed = renewal.filter(|renewal| renewal.is_confirmed_by(answer.header()));
    let deadline = confirmed.map(|renewal| renewal.sent + live.life);
    if let Some(deadline) = deadline.filter(|deadline| *deadline > Instant::now() + live.life / LEFT) {
        return Ok(sessions.insert_own(lease, node_id, deadline)?);
    }
    if let Some(deletion) = sessions.insert_own_if_active(lease, node_id)? {
        return Ok(deletion);
    }
    let (proof, until) = (Box::pin(prove(operation.shared, lease, live)), operation.budget.deadline());
    let deadline = operation.shared.send(lease, until, By::Member, proof).await?;
    Ok(sessions.insert_own(lease, node_id, deadline)?)
}

/// Keys of a queue's range.
#[derive(Clone, Copy, Default)]
struct Listed<'a> {
    kvs: &'a [KeyValue],
    /// The number of keys.
    count: i64,
    revision: i64,
}

impl<'a> Listed<'a> {
    fn of(read: &'a GetResponse, header: Option<&ResponseHeader>) -> Self {
        Listed { kvs: read.kvs(), count: read.count(), revision: revision::of(header) }
    }

    /// Returns the keys that a transaction has read.
    fn with(answer: &'a Answer) -> Self {
        let read = answer.gets().into_iter().next();
        read.map(|read| Listed::of(read, answer.header())).unwrap_or_default()
    }

    fn is_whole(&self) -> bool {
        self.kvs.len() as i64 >= self.count
    }
}

/// Finds the key of the node among those listed.
fn find<'a>(lease: SessionKey, node_id: &NodeId, key: &str, listed: Listed<'a>) -> Option<&'a KeyValue> {
    let kv = listed.kvs.iter().find(|kv| kv.key() == key.as_bytes())?;
    // A value that another client has overwritten names no node. The name and the lease must suffice then.
    let is_it = value::read(kv.value()).id.is_none_or(|id| id == node_id.as_str());
    (is_it && kv.lease() == lease_id(lease)).then_some(kv)
}

/// Completes the answer if the node exists.
fn finish(
    operation: &Operation<'_>,
    lease: SessionKey,
    live: &Live,
    (node_id, label): (&NodeId, Label),
    key: &str,
    listed: Listed<'_>,
    deletion: DeletionNotice,
) -> Option<Created> {
    let kv = find(lease, node_id, key, listed)?;
    live.names.lock().created(node_id, kv.create_revision());
    let queue = operation.queue(lease, listed.kvs);
    let mut node = queue.find(node_id)?.clone();
    if label == Label::Candidate {
        // Another program may have overwritten its value.
        node.label = label;
    } else if node.label != Label::Lock {
        operation.shared.contents.insert(node_id, Contents::of(kv));
    }
    operation.shared.listings.note(&operation.keys, &queue, listed.is_whole(), listed.revision);
    Some(Created::new(node, queue, lease.epoch, deletion))
}
