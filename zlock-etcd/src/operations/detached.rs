//! Places that have lost their lease.
//!
//! A `put` without a lease, such as an operator's, detaches the key from its lease. The session continues to hold the lock or
//! to wait for it: the key exists and keeps its place. But it is no longer removed with the session. So it counts as long as
//! the lease in its name is live. After that, any client that finds it in the queue removes it.
//!
//! But a value may have such a name, too, and then it never was a place. So a key is removed only if its first revision, unless
//! that was compacted, shows that it was created with a lease. Otherwise, this client ignores the key from then on.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, GetOptions, GetResponse, LeaseTimeToLiveResponse, ResponseHeader, Txn, TxnOp,
};
use tokio::time::Instant;
use zlock_core::kit::SessionKey;
use zlock_core::{Node, SessionId};

use crate::connection::connect::{By, kv};
use crate::error::Failure;
use crate::keys::key::{self, PlaceName, Range};
use crate::keys::revision::Reply;
use crate::operations::operation::Operation;
use crate::requests::txn::is_still;
use crate::session::lease::read;
use crate::session::renewal::Answerer;

/// The result of checking the places without a lease in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detached {
    /// Some had no live owner, and are in the queue no more.
    Cleared,
    /// All that exist have a live owner. None of these leases ends before this time, after which the check must be repeated.
    Owned { look_again: Option<Instant> },
}

/// Removes or ignores those places that have no lease and whose owner's session is over.
pub(crate) async fn clear(
    operation: &Operation<'_>,
    lease: SessionKey,
    nodes: &[Node],
) -> Result<Detached, Failure> {
    let (mut is_cleared, mut look_again) = (false, None);
    for node in nodes.iter().filter(|node| node.session.is_none()) {
        let Some(place) = PlaceName::parse(node.name.as_str()) else { continue };
        match time_to_live(operation, lease, place.lease).await? {
            None => {
                let key = operation.keys.of(&node.name);
                if had_lease(operation, lease, node, &key).await? {
                    remove(operation, lease, node, &key).await?;
                } else {
                    tracing::warn!(%key, "ignoring a key without a lease that has the name of a place");
                    operation.shared.ignored.lock().insert(key, node.sequence.get());
                }
                is_cleared = true;
            }
            Some(left) => {
                let at = Instant::now() + left;
                look_again = Some(look_again.map_or(at, |other: Instant| other.min(at)));
            }
        }
    }
    Ok(if is_cleared { Detached::Cleared } else { Detached::Owned { look_again } })
}

/// Returns how long a lease lives unless it is kept alive. `None` if it does not exist.
///
/// A leader that was replaced, or is new, may not know a lease. So its answer counts only between two reads in the same term.
async fn time_to_live(
    operation: &Operation<'_>,
    lease: SessionKey,
    session: SessionId,
) -> Result<Option<Duration>, Failure> {
    let key = key::fence(operation.shared.options.prefix(), lease.id, 0);
    let number = session.get().cast_signed();
    loop {
        let key = key.clone();
        let ask = move |client: Arc<Client>| async move {
            let before = read(&client, &key).await?;
            let answer = client.lease_client().time_to_live(number, None).await?;
            Ok(Between { before, answer, after: read(&client, &key).await? })
        };
        let asked = operation.ask(lease, By::Cluster, ask).await?;
        if asked.answer.granted_ttl() > 0 {
            return Ok(Some(Duration::from_secs(asked.answer.ttl().max(1).cast_unsigned())));
        }
        let [before, after] = [&asked.before, &asked.after].map(|read| Answerer::of(read.header()).term);
        if before == after {
            return Ok(None);
        }
    }
}

/// Returns `true` if the node's key was certainly created with a lease.
async fn had_lease(
    operation: &Operation<'_>,
    lease: SessionKey,
    node: &Node,
    key: &str,
) -> Result<bool, Failure> {
    let first = GetOptions::new().with_revision(node.sequence.get());
    let range = Range { start: key.to_owned(), end: None };
    match operation.get(lease, By::Cluster, range, first).await {
        Ok(read) => Ok(read.kvs().first().is_some_and(|kv| kv.lease() != 0)),
        Err(failure) if failure.is_of_a_compacted_revision() => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// The answer about a lease, between two reads.
struct Between {
    before: GetResponse,
    answer: LeaseTimeToLiveResponse,
    after: GetResponse,
}

impl Reply for Between {
    fn header(&self) -> Option<&ResponseHeader> {
        self.after.header()
    }
}

async fn remove(operation: &Operation<'_>, lease: SessionKey, node: &Node, key: &str) -> Result<(), Failure> {
    tracing::warn!(%key, "removing a place that lost its lease, and whose session is over");
    let has_no_lease = Compare::lease(key, CompareOp::Equal, 0);
    let txn = Txn::new().when([is_still(key, node), has_no_lease]).and_then([TxnOp::delete(key, None)]);
    let ask = |client: Arc<Client>| async move { kv(&client).txn(txn).await };
    operation.ask(lease, By::Cluster, ask).await.map(drop)
}
