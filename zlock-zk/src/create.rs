//! Creating a node in a queue, even if the response is lost.

use tokio::time::Instant;
use zlock_core::kit::SessionKey;
use zlock_core::{
    Created, CreatedQueue, ErrorKind, Excerpt, FencingToken, Label, LockPath, Node, NodeId, NodeName,
    Predecessor, Queue, Result, Sequence,
};
use zookeeper_client::{Acls, CreateMode, Error, Stat};

use crate::alone::{Pinned, Plan, Trusted};
use crate::contents::Contents;
use crate::error::Failure;
use crate::heartbeat::check;
use crate::numbers::{UsedUp, Worth, start_over};
use crate::operation::Operation;
use crate::session::{Freshness, Shared};
use crate::watchers::Watched;
use crate::watching::Watching;

/// The node to create.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) label: Label,
    pub(crate) node_id: &'a NodeId,
    pub(crate) data: &'a [u8],
    /// `true` if the caller does not need the queue when the number is sufficient.
    pub(crate) is_unlisted: bool,
}

/// Creates the node with this ID, or finds it if an earlier attempt created it.
pub(crate) async fn create(shared: &Shared, parent: &LockPath, wanted: Wanted<'_>) -> Result<Created> {
    let Wanted { node_id, data, .. } = wanted;
    let mut operation = Operation::new(shared, "create", parent);
    if !node_id.is_uuid() {
        let why = format!("the node ID {} is not a UUID", Excerpt::of(node_id.as_str()));
        return Err(operation.budget.error(ErrorKind::InvalidArgument).with_message(why));
    }
    crate::write::check_size(&operation, data)?;
    let mut progress = Progress::default();
    loop {
        let session = operation.budget.session().await?;
        if progress.lost_in != Some(session) {
            // A node that was created in an earlier session of ours is removed with that session.
            (progress.lost_in, progress.made, operation.budget.ambiguous) = (None, None, false);
        }
        match attempt(&mut operation, session, &wanted, &mut progress).await {
            Ok(Some(created)) => return Ok(created),
            Ok(None) => {}
            Err(failure) => {
                progress.lost_in = operation.budget.ambiguous.then_some(session);
                if let Err(error) = operation.budget.retry(failure).await {
                    undo_create(&mut operation, session, progress.made).await;
                    return Err(error);
                }
            }
        }
    }
}

/// The results of the attempts so far.
#[derive(Debug, Default)]
struct Progress {
    /// The session in which a create of unknown outcome was sent.
    lost_in: Option<SessionKey>,
    /// The name of the node, if known.
    made: Option<NodeName>,
    /// Set if the parent has no usable number left.
    used_up: Option<UsedUp>,
    has_warned: bool,
    /// `true` after an attempt. Its node may be in the queue beside the node of a later attempt, even if it belongs to an
    /// earlier session. Only a listing shows that.
    has_tried: bool,
}

/// Deletes a node whose creator could not list the queue: only this client knows its name.
async fn undo_create(operation: &mut Operation<'_>, session: SessionKey, made: Option<NodeName>) {
    if let Some(name) = made
        && let Err(failure) = crate::delete::by_name(operation, session, &name).await
    {
        tracing::debug!(%name, ?failure, "the node could not be deleted");
    }
}

/// Makes one attempt. Returns `None` if no node of ours exists now and the next attempt may create one: the parent was
/// missing and has been created (it may already be gone again), or it must count from 0 again.
async fn attempt(
    operation: &mut Operation<'_>,
    session: SessionKey,
    wanted: &Wanted<'_>,
    progress: &mut Progress,
) -> Result<Option<Created>, Failure> {
    let recovering = progress.lost_in.is_some();
    let found = if recovering { recover(operation, session, wanted.node_id).await? } else { None };
    operation.budget.ambiguous = false;
    let is_first = !std::mem::replace(&mut progress.has_tried, true);
    let lists = !(wanted.is_unlisted && is_first);
    let (place, pinned) = match found {
        Some(place) => (Some(place), None),
        None => {
            if let Some(used_up) = &mut progress.used_up {
                used_up.wait(operation, session).await?;
                progress.used_up = None;
            }
            append(operation, session, wanted, lists, is_first).await?
        }
    };
    let Some(place) = place else { return Ok(None) };
    progress.made = Some(place.node.name.clone());
    // Until the caller knows the node's name.
    operation.budget.ambiguous = true;
    if !is_kept(operation, session, &place, progress).await? {
        (progress.made, operation.budget.ambiguous) = (None, false);
        return Ok(None);
    }
    if wanted.label != Label::Lock {
        let id = operation.own_id(wanted.node_id);
        operation.shared.contents.insert(&id, Contents::new(wanted.data));
    }
    // The server's numbers count all creates, by any client, and a number of a place is assigned only once.
    if !lists && place.shown.is_none() && Worth::of(place.node.sequence) == Worth::Place {
        let Place { node, sent, .. } = place;
        let deletion = operation.shared.insert_own(session, &operation.server_path(), &node, sent)?;
        return Ok(Some(Created::unlisted(node, session.epoch, deletion)));
    }
    finish(operation, session, place, pinned).await.map(Some)
}

/// Returns `true` if the node stays. It is deleted if its number is unusable, or if few numbers are left and it is alone.
async fn is_kept(
    operation: &mut Operation<'_>,
    session: SessionKey,
    place: &Place,
    progress: &mut Progress,
) -> Result<bool, Failure> {
    let name = &place.node.name;
    match Worth::of(place.node.sequence) {
        Worth::Late if matches!(&place.shown, Some(CreatedQueue::Listed(queue)) if queue.len() == 1) => {
            Ok(!start_over(operation, session, name).await?)
        }
        Worth::Place | Worth::Late => Ok(true),
        Worth::Nothing => {
            progress.used_up = UsedUp::delete_node(operation, session, name).await?;
            if !std::mem::replace(&mut progress.has_warned, true) {
                operation.warn("the path has run out of sequence numbers: waiting until it has no nodes");
            }
            Ok(false)
        }
    }
}

/// An own node, with what the request showed of the queue, if anything.
struct Place {
    node: Node,
    shown: Option<CreatedQueue>,
    /// The time at which a request was sent whose answer proves that the session was live.
    sent: Instant,
}

/// Sends a create and a list, and whatever else is needed, back to back: one round trip. Returns `None` if there was no
/// parent, which then has been created.
async fn append(
    operation: &mut Operation<'_>,
    session: SessionKey,
    wanted: &Wanted<'_>,
    lists: bool,
    is_first: bool,
) -> Result<(Option<Place>, Option<Pinned>), Failure> {
    let Wanted { label, node_id, data, .. } = *wanted;
    let began = Instant::now();
    let parent = operation.server_path();
    let prefix = [&parent, "/", NodeName::prefix(node_id, label).as_str()].concat();
    let (data, acls) = (data.to_owned(), operation.shared.options.acls.clone());
    let shared = operation.shared;
    let live = shared.sessions.get(session).ok_or_else(|| shared.sessions.interrupted())?;
    let plan = if is_first { shared.alone.plan(&parent, session, || live.changes()) } else { Plan::List };
    let room = match plan {
        // If the create is abandoned, the room is free a little before the watch is removed. That is only one path, and a
        // short one.
        Plan::Pin if lists => live.watchers.reserve_own(Watched::Node(parent.clone())),
        _ => None,
    };
    drop(live);
    let lists = lists && !matches!(plan, Plan::Trust(_));
    let gate = shared.gate.clone();
    let sent = operation.write(session, move |live| async move {
        let room = room.map(|room| (room, live.changes()));
        let options = CreateMode::EphemeralSequential.with_acls(Acls::new(&acls));
        let create = live.client.create(&prefix, &data, &options);
        // The request enters the library's queue when the method is called.
        let list = lists.then(|| live.client.list_children(&parent));
        let listed = async {
            match list {
                Some(list) => list.await.ok(),
                None => None,
            }
        };
        let pin = room.map(|(room, changes)| (live.client.get_and_watch_data(&parent), room, changes));
        let pinned = async {
            let (pin, room, changes) = pin?;
            let (_, _, watcher) = pin.await.ok()?;
            Some(Pinned::new(Watching::new(watcher, room, gate, None), changes))
        };
        let (created, listed, pinned) = tokio::join!(create, listed, pinned);
        Ok((created?, listed, pinned))
    });
    match sent.await {
        Ok(((stat, sequence), listed, pinned)) => {
            let sequence = Sequence::new(sequence.into_i64());
            let name = NodeName::of(node_id, label, sequence);
            let node = Node::new(name, node_id.clone(), label, sequence);
            // A failed list is repeated; the create remains valid.
            let shown = match plan {
                Plan::Trust(trusted) if is_alone(operation, session, trusted, &node) => {
                    Some(CreatedQueue::Alone)
                }
                _ => listed.map(|names| CreatedQueue::Listed(Queue::listed(names))),
            };
            Ok((Some(Place { node: own(session, node, &stat), shown, sent: began }), pinned))
        }
        Err(Failure::Zk(Error::NoNode)) => {
            crate::parents::make(operation, session).await?;
            Ok((None, None))
        }
        Err(failure) => Err(failure),
    }
}

/// Looks for the node of a create of unknown outcome, in the session in which the create was sent.
///
/// The server may follow a leader that was replaced after the create. So a write has to confirm that the node exists.
async fn recover(
    operation: &mut Operation<'_>,
    session: SessionKey,
    node_id: &NodeId,
) -> Result<Option<Place>, Failure> {
    let sent = Instant::now();
    let queue = operation.list(session, Freshness::Latest).await?;
    for node in queue.iter().filter(|node| node.id == *node_id) {
        let path = operation.node_path(&node.name);
        let stat =
            operation.ask(session, move |live| async move { live.client.check_stat(&path).await }).await?;
        // A node of an earlier session of ours would be removed while it is in use.
        if let Some(stat) = stat.filter(|stat| owner(stat) == session.id.get()) {
            let path = operation.node_path(&node.name);
            let exists =
                operation.write(session, move |live| async move { check(&live.client, &path).await });
            if !exists.await? {
                return Ok(None);
            }
            let node = own(session, node.clone(), &stat);
            return Ok(Some(Place { node, shown: Some(CreatedQueue::Listed(queue)), sent }));
        }
    }
    Ok(None)
}

/// Completes the answer: from here on, the backend reports the deletion of the node.
async fn finish(
    operation: &mut Operation<'_>,
    session: SessionKey,
    place: Place,
    pinned: Option<Pinned>,
) -> Result<Created, Failure> {
    let Place { node, shown, sent } = place;
    let deletion = operation.shared.insert_own(session, &operation.server_path(), &node, sent)?;
    let mut queue = match shown {
        Some(CreatedQueue::Alone) => return Ok(Created::alone(node, session.epoch, deletion)),
        Some(CreatedQueue::Listed(queue)) => queue,
        Some(CreatedQueue::Unlisted) | None => operation.list(session, Freshness::Told).await?,
    };
    // A create of unknown outcome in an earlier session may only take effect now. Its node will be removed soon, but until
    // then it must not be mistaken for ours.
    while let Some(name) = queue.names_of(&node.id).into_iter().find(|name| *name != node.name) {
        if !crate::delete::by_name(operation, session, &name).await? {
            return Err(Failure::ServersDisagree);
        }
        queue = operation.list(session, Freshness::Told).await?;
    }
    let is_alone = queue.predecessor(&node.id) == Predecessor::Head { followed: false };
    let alone = &operation.shared.alone;
    alone.listed(&operation.server_path(), session, &node, is_alone, pinned);
    Ok(Created::new(node.clone(), queue.with_own(node), session.epoch, deletion))
}

/// Returns `true` if a node that was just created is known to be alone in its queue without a listing.
fn is_alone(operation: &Operation<'_>, session: SessionKey, trusted: Trusted, node: &Node) -> bool {
    Worth::of(node.sequence) == Worth::Place
        && operation.shared.sessions.get(session).is_some_and(|live| {
            let changes = || live.changes();
            operation.shared.alone.confirm(&operation.server_path(), session, changes, trusted, node)
        })
}

/// Returns an own node, including what a listing does not contain.
fn own(session: SessionKey, node: Node, stat: &Stat) -> Node {
    node.with_owner(Some(session.id), FencingToken::new(stat.czxid.cast_unsigned()))
}

/// Returns the session that owns an ephemeral node.
fn owner(stat: &Stat) -> u64 {
    stat.ephemeral_owner.cast_unsigned()
}
