//! One-shot watches on a node and on a queue.
//!
//! A watch starts at the current revision, never at a past one, because the server serves those from a loop that runs
//! every 100 ms. This has two consequences.
//!
//! *No event may be lost between the listing that showed a node and the watch.* If nothing was written in between, no event
//! was lost. Otherwise the node is read at a revision not older than the watch.
//!
//! *A watch that is set during a write may still end up in that loop*: the server determines the current revision, and
//! a write follows before the watch is in place. In a queue that moves fast, that happens to one watch in thirty and
//! delays all waiters. After at most one turn of the loop, the watch is as fast as any other. So where waits are
//! shorter than two turns (see [`Pace`](crate::watches::pace::Pace)), a second watch is set: both are hardly ever affected. A
//! read that shows no later write proves that the first was not.
//!
//! | waits are | written in between | the node is | messages |
//! |---|---|---|---|
//! | long | no | | watch |
//! | long | yes | | watch, read |
//! | short | no | | watch, watch |
//! | short | yes | behind others | watch, watch; read if it is still there after 100 ms |
//! | short | yes | the first in line | watch, read; watch if anything was written since |

use std::sync::Arc;

use etcd_client::{Client, GetResponse};
use tokio::time::{Instant, sleep_until, timeout_at};
use zlock_core::kit::SessionKey;
use zlock_core::{Existence, Label, Node, Queue, Watch, WatchEvent};

use crate::connection::connect::By;
use crate::error::Failure;
use crate::keys::key::{Keys, Range};
use crate::keys::revision;
use crate::keys::value;
use crate::operations::detached::{self, Detached};
use crate::operations::operation::Operation;
use crate::session::Shared;
use crate::session::lease;
use crate::watches::listings::Listed;
use crate::watches::pace::LOOP;
use crate::watches::stream::{Armed, Change, Put};

/// Arms a watch on a node if it is still as it was seen.
pub(crate) async fn arm_node(
    operation: &Operation<'_>,
    lease: SessionKey,
    seen: &Node,
) -> Result<Existence, Failure> {
    let shared = operation.shared;
    let Detached::Owned { look_again } =
        detached::clear(operation, lease, std::slice::from_ref(seen)).await?
    else {
        return Ok(Existence::Deleted);
    };
    let range = Range { start: operation.keys.of(&seen.name), end: None };
    let listed = shared.listings.find(&operation.keys, seen);
    let (armed, since) = arm(operation, lease, range.clone()).await?;
    let mut watching = Watching { armed: vec![armed], revision: since, look_at: None };
    match plan(listed, since, shared.pace.is_fast()) {
        Plan::Enough => {}
        Plan::Again { look_later } => {
            watching.armed.push(shared.watches.arm_again(range.clone()));
            watching.look_at = look_later.then(|| Instant::now() + LOOP);
        }
        Plan::Look => {
            let read = operation.read(lease, range.clone()).await?;
            match look(shared, lease, &operation.keys, &read, seen) {
                Existence::Watching(_) => {}
                other => return Ok(other),
            }
            watching.revision = revision::of(read.header());
            if watching.revision > since && shared.pace.is_fast() {
                watching.armed.push(shared.watches.arm_again(range.clone()));
            }
        }
    }
    let watch = watch_node(shared, operation.keys.clone(), lease, watching, seen.clone());
    Ok(Existence::Watching(until(look_again, watch)))
}

/// Returns a watch that fires at this time at the latest.
pub(crate) fn until(time: Option<Instant>, watch: Watch) -> Watch {
    let Some(time) = time else { return watch };
    Watch::new(async move { timeout_at(time, watch).await.unwrap_or(WatchEvent::Changed) })
}

/// What follows after a watch on a node is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Enough,
    /// A second watch at once, and a read of the node after a while if something was written in between.
    Again {
        look_later: bool,
    },
    /// A read of the node.
    Look,
}

fn plan(listed: Option<Listed>, since: i64, fast: bool) -> Plan {
    // The watch reports everything that comes after `since`.
    let unwritten = listed.is_some_and(|listed| listed.revision >= since);
    match listed {
        _ if unwritten && !fast => Plan::Enough,
        _ if unwritten => Plan::Again { look_later: false },
        // No node ahead of it has been removed yet, so it has hardly been removed, either.
        Some(Listed { is_first: false, .. }) if fast => Plan::Again { look_later: true },
        _ => Plan::Look,
    }
}

/// Lists a queue, and arms a watch on its changes.
pub(crate) async fn arm_queue(
    operation: &Operation<'_>,
    lease: SessionKey,
) -> Result<(Queue, Watch), Failure> {
    let shared = operation.shared;
    let mark = shared.sessions.own().mark();
    let (armed, read) = arm_and_read(operation, lease, operation.keys.range()).await?;
    lease::compare(shared, lease, mark, &operation.keys, read.kvs()).await?;
    let seen = revision::of(read.header());
    let listed = operation.queue(lease, read.kvs());
    let (queue, look_again) = match detached::clear(operation, lease, &listed).await? {
        Detached::Owned { look_again } => (listed, look_again),
        // The watch reports what was removed.
        Detached::Cleared => (operation.queue(lease, read.kvs()), None),
    };
    let watch = watch_below(operation, lease, armed, seen);
    Ok((queue, until(look_again, watch)))
}

/// Fires with a change after the revision `seen`, of a key directly below the operation's path. Changes further down, such as those
/// below another lock, do not count.
pub(crate) fn watch_below(
    operation: &Operation<'_>,
    lease: SessionKey,
    mut armed: Armed,
    seen: i64,
) -> Watch {
    let keys = operation.keys.clone();
    operation.shared.sessions.watch(lease, async move {
        while let Some(change) = armed.next_after(seen).await
            && keys.name(&change.key).is_none()
        {}
        WatchEvent::Changed
    })
}

/// Reads the data of a node, and arms a watch on its changes.
pub(crate) async fn arm_data(
    operation: &Operation<'_>,
    lease: SessionKey,
    node: &Node,
) -> Result<Option<(Vec<u8>, Watch)>, Failure> {
    let range = Range { start: operation.keys.of(&node.name), end: None };
    let (mut armed, read) = arm_and_read(operation, lease, range.clone()).await?;
    let Some(kv) = read.kvs().first().filter(|kv| kv.create_revision() == node.sequence.get()) else {
        lease::missed(operation.shared, lease, node).await?;
        return Ok(None);
    };
    let now = value::read(kv.value());
    let (data, label, seen, node) =
        (now.data.to_owned(), now.label, revision::of(read.header()), node.clone());
    let watch = operation.shared.sessions.watch(lease, async move {
        let change = armed.next_after(seen).await;
        change.and_then(|change| event(change.put.as_ref(), &node, label)).unwrap_or(WatchEvent::Changed)
    });
    Ok(Some((data, watch)))
}

pub(crate) async fn arm(
    operation: &Operation<'_>,
    lease: SessionKey,
    range: Range,
) -> Result<(Armed, i64), Failure> {
    let (shared, until) = (operation.shared, operation.budget.deadline());
    shared.send(lease, until, By::Member, shared.watches.arm(range)).await
}

/// Arms a watch, and reads at a revision not before it. Both are sent together. If the read took effect first, it is
/// repeated, which suffices: a read that is sent after the watch was armed shows its revision, or that the cluster was restored.
pub(crate) async fn arm_and_read(
    operation: &Operation<'_>,
    lease: SessionKey,
    range: Range,
) -> Result<(Armed, GetResponse), Failure> {
    let armed = arm(operation, lease, range.clone());
    let (armed, read) = tokio::join!(armed, operation.read(lease, range.clone()));
    // If the read is refused, its error explains why the watch is.
    let (read, (armed, since)) = (read?, armed?);
    let read = if revision::of(read.header()) < since { operation.read(lease, range).await? } else { read };
    Ok((armed, read))
}

/// Returns the state of a node that was read. `Watching` means that it is as it was seen, and contains a watch that never
/// fires.
fn look(shared: &Shared, lease: SessionKey, keys: &Keys, read: &GetResponse, seen: &Node) -> Existence {
    let node = read.kvs().first().and_then(|kv| shared.node(lease, keys, kv));
    // Another node may have the name by now.
    match node.filter(|node| node.sequence == seen.sequence) {
        None => Existence::Deleted,
        Some(node) if (node.label, node.session) != (seen.label, seen.session) => Existence::Changed(node),
        Some(_) => Existence::Watching(Watch::new(std::future::pending())),
    }
}

/// The watches on a node.
struct Watching {
    /// One or two watches, which report the same changes.
    armed: Vec<Armed>,
    /// All changes up to this revision were seen.
    revision: i64,
    /// When to read the node if no change was reported by then.
    look_at: Option<Instant>,
}

impl Watching {
    /// Waits for the next event, and returns `None` if anything may have happened.
    async fn next(&mut self) -> Option<Change> {
        loop {
            let change = match &mut self.armed[..] {
                [one, two] => tokio::select! {
                    biased;
                    change = one.next() => change,
                    change = two.next() => change,
                },
                [one] => one.next().await,
                _ => None,
            };
            match change {
                Some(change) if change.revision <= self.revision => {}
                news => return news,
            }
        }
    }
}

/// Fires with the first relevant change, when the stream breaks, or when its session ends here.
fn watch_node(
    shared: &Arc<Shared>,
    keys: Keys,
    lease: SessionKey,
    mut watching: Watching,
    seen: Node,
) -> Watch {
    let at = shared.clone();
    shared.sessions.watch(lease, async move {
        let armed_at = Instant::now();
        let event = next_event(&at, &keys, lease, &mut watching, &seen).await;
        at.pace.waited(armed_at.elapsed());
        event
    })
}

async fn next_event(
    shared: &Shared,
    keys: &Keys,
    lease: SessionKey,
    watching: &mut Watching,
    seen: &Node,
) -> WatchEvent {
    loop {
        let change = match watching.look_at {
            None => watching.next().await,
            Some(time) => tokio::select! {
                biased;
                change = watching.next() => change,
                () = sleep_until(time) => {
                    watching.look_at = None;
                    match look_now(shared, keys, lease, seen).await {
                        Ok(Existence::Watching(_)) => continue,
                        Ok(Existence::Deleted) => return WatchEvent::Deleted,
                        Ok(Existence::Changed(_)) => return WatchEvent::Relabelled,
                        _ => return WatchEvent::Changed,
                    }
                }
            },
        };
        let Some(Change { put, .. }) = change else { return WatchEvent::Changed };
        // A change of data alone does not count.
        if let Some(event) = event(put.as_ref(), seen, seen.label) {
            return event;
        }
    }
}

/// Returns what a change of the node's key means for the node, which had this label. `None` if only its data was written.
fn event(put: Option<&Put>, node: &Node, label: Label) -> Option<WatchEvent> {
    // Another node may have the name by now, and the change that removed this one was missed.
    let Some(put) = put.filter(|put| put.created == node.sequence.get()) else {
        return Some(WatchEvent::Deleted);
    };
    if put.label != label {
        return Some(WatchEvent::Relabelled);
    }
    // It is no longer removed with its session.
    (put.owner != node.session).then_some(WatchEvent::Changed)
}

/// Makes a single attempt, because the waiter reads again in any case.
async fn look_now(
    shared: &Shared,
    keys: &Keys,
    lease: SessionKey,
    seen: &Node,
) -> Result<Existence, Failure> {
    let (key, until) = (keys.of(&seen.name), Instant::now() + shared.options.kit.operation_timeout);
    let ask =
        |client: Arc<Client>| async move { crate::connection::connect::kv(&client).get(key, None).await };
    let asked = shared.endpoints.ask(By::Cluster, shared.options.kit.answer_time(), ask);
    let read = shared.send(lease, until, By::Cluster, asked).await?;
    Ok(look(shared, lease, keys, &read, seen))
}

#[cfg(test)]
mod tests {
    use zlock_core::{FencingToken, NodeId, NodeName, Sequence, SessionId};

    use super::*;

    #[test]
    fn what_follows_a_watch() {
        let listed = |revision, is_first| Some(Listed { revision, is_first });
        for (node, since, slow, fast) in [
            (listed(7, true), 7, Plan::Enough, Plan::Again { look_later: false }),
            (listed(7, true), 8, Plan::Look, Plan::Look),
            (listed(7, false), 7, Plan::Enough, Plan::Again { look_later: false }),
            (listed(7, false), 8, Plan::Look, Plan::Again { look_later: true }),
            // Listed by a member that is ahead of the member that watches.
            (listed(9, true), 8, Plan::Enough, Plan::Again { look_later: false }),
            (None, 7, Plan::Look, Plan::Look),
        ] {
            assert_eq!((plan(node, since, false), plan(node, since, true)), (slow, fast), "{node:?} {since}");
        }
    }
    #[test]
    fn a_change_of_another_node_of_the_name_is_the_end_of_this_one() {
        let (name, id) = ("694d7a3c2f1b5e05", NodeId::new("0123abcd-4567-89ab-cdef-0123456789ab"));
        let owner = Some(SessionId::new(0x694d_7a3c_2f1b_5e05));
        let node = Node::new(NodeName::new(name), id.clone(), Label::Read, Sequence::new(7));
        let node = node.with_owner(owner, FencingToken::new(7));
        let put = |created, owner, label| {
            let put = Put { created, owner, label };
            event(Some(&put), &node, Label::Read)
        };
        assert_eq!(event(None, &node, Label::Read), Some(WatchEvent::Deleted));
        assert_eq!(put(9, owner, Label::Read), Some(WatchEvent::Deleted));
        assert_eq!(put(7, owner, Label::Read), None);
        assert_eq!(put(7, owner, Label::Write), Some(WatchEvent::Relabelled));
        assert_eq!(put(7, None, Label::Read), Some(WatchEvent::Changed));
    }
}
