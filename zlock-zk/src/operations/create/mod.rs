//! Creating a node in a queue, even if the response is lost.

pub(crate) mod numbers;
pub(crate) mod parents;

use std::mem::replace;
use tokio::time::Instant;
use zlock_core::kit::{Failure as _, SessionKey, repeat};
use zlock_core::{
    Consistency, Created, CreatedQueue, FencingToken, Label, Needs, Node, NodeId, NodeName, Predecessor,
    Queue, Result, Sequence,
};
use zookeeper_client::{Acls, CreateMode, Error, Stat};

use crate::error::Failure;
use crate::operations::create::numbers::{UsedUp, Worth, start_over};
use crate::operations::delete::{by_name, forget};
use crate::operations::operation::{Leaves, Operation, owner};
use crate::queues::alone::{Pinned, Plan, Trusted};
use crate::session::contents::Contents;
use crate::watches::watchers::{Reservation, Watched};
use crate::watches::watching::Watching;

/// The node to create.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) label: Label,
    pub(crate) node_id: &'a NodeId,
    pub(crate) data: &'a [u8],
    pub(crate) needs: Needs,
}

/// Creates a node, or finds it if an earlier attempt created it.
pub(crate) async fn create(mut operation: Operation<'_>, wanted: Wanted<'_>) -> Result<Created> {
    operation.budget.check_node(wanted.node_id, wanted.data)?;
    let mut create = Create { wanted, next: Next::First };
    let created = repeat!(operation.budget, |session| create.attempt(&mut operation, session));
    // Only this client knows the name of a node whose creator could not list the queue.
    if created.is_err()
        && let Next::Recovers { session, made: Some(name) } = &create.next
        && let Err(failure) = by_name(&mut operation, *session, name).await
    {
        tracing::debug!(%name, ?failure, "the node could not be deleted");
    }
    created
}

/// The state between the attempts at a create.
struct Create<'a> {
    wanted: Wanted<'a>,
    next: Next,
}

/// The next attempt.
enum Next {
    First,
    /// Another one. An earlier session of ours may have a node, which is removed with that session. Only a listing shows it.
    Repeats,
    /// Another one, which looks for the node first. In this session, a create was sent whose outcome is unknown, or which was
    /// answered with this name. The caller does not know the node yet.
    Recovers {
        session: SessionKey,
        made: Option<NodeName>,
    },
    /// Another one, when the parent has usable numbers again.
    WaitsFor(UsedUp),
}

/// How an attempt learns whether there is a node before its own.
enum Listing {
    /// By a listing that is sent with the create, and so is a pin if there is room for one.
    Sent { pin: Option<Reservation> },
    /// Not at all.
    Unlisted,
    /// By the number, which may prove that its node is alone.
    Trusted(Trusted),
}

/// An own node, with what the request showed of the queue, if anything, and the pin that was sent with its create.
struct Made {
    node: Node,
    shown: Option<CreatedQueue>,
    pinned: Option<Pinned>,
    /// The time at which a request was sent whose answer proves that the session was live.
    sent: Instant,
}

impl Create<'_> {
    async fn attempt(
        &mut self,
        operation: &mut Operation<'_>,
        session: SessionKey,
    ) -> Result<Created, Failure> {
        loop {
            if let Some(created) = self.once(operation, session).await? {
                return Ok(created);
            }
        }
    }

    /// Returns `None` if the next attempt may follow at once.
    async fn once(
        &mut self,
        operation: &mut Operation<'_>,
        session: SessionKey,
    ) -> Result<Option<Created>, Failure> {
        let wanted = self.wanted;
        let place = match self.found(operation, session).await? {
            Some(place) => place,
            None => {
                let mut listing = self.listing(operation, session).await?;
                let (lists, pin) = match &mut listing {
                    Listing::Sent { pin } => (true, pin.take()),
                    Listing::Unlisted | Listing::Trusted(_) => (false, None),
                };
                let (began, parent, gate) =
                    (Instant::now(), operation.server_path(), operation.shared.gate.clone());
                let prefix = [&parent, "/", NodeName::prefix(wanted.node_id, wanted.label).as_str()].concat();
                let (data, acls) = (wanted.data.to_owned(), operation.shared.options.acls.clone());
                // Back to back: one round trip.
                let appended = operation.send(session, Leaves::Change, move |live| async move {
                    let pin = pin.map(|room| (room, live.changes.lock().count()));
                    let options = CreateMode::EphemeralSequential.with_acls(Acls::new(&acls));
                    let create = live.client.create(&prefix, &data, &options);
                    // The request enters the library's queue when the method is called.
                    let list = lists.then(|| live.client.list_children(&parent));
                    let pin =
                        pin.map(|(room, changes)| (live.client.get_and_watch_data(&parent), room, changes));
                    let listed = async { list?.await.ok() };
                    let pinned = async {
                        let (pin, room, changes) = pin?;
                        let (_, _, watcher) = pin.await.ok()?;
                        Some(Pinned::new(Watching::new(watcher, room, gate, None), changes))
                    };
                    let (created, listed, pinned) = tokio::join!(create, listed, pinned);
                    let (stat, number) = created?;
                    Ok::<_, Error>(Appended {
                        stat,
                        number: Sequence::new(number.into_i64()),
                        listed,
                        pinned,
                    })
                });
                match appended.await {
                    Ok(appended) => appended.place(operation, session, wanted, listing, began),
                    Err(Failure::Zk(Error::NoNode)) => {
                        // The parent may already be gone again when the next attempt begins.
                        crate::operations::create::parents::make(operation, session).await?;
                        return Ok(None);
                    }
                    Err(failure) => {
                        if operation.budget.ambiguous {
                            self.next = Next::Recovers { session, made: None };
                        }
                        return Err(failure);
                    }
                }
            }
        };
        // Until the caller knows the node's name.
        self.next = Next::Recovers { session, made: Some(place.node.name.clone()) };
        operation.budget.ambiguous = true;
        if let Some(next) = discarded(operation, session, &place.node, place.shown.as_ref()).await? {
            (self.next, operation.budget.ambiguous) = (next, false);
            return Ok(None);
        }
        let name = place.node.name.clone();
        match finish(operation, session, wanted, place).await {
            // The queue may not be listed, for example. Once the node is deleted, there is nothing to clean up.
            Err(failure) if !failure.classify().retryable => {
                forget(operation, wanted.node_id);
                if by_name(operation, session, &name).await.is_ok() {
                    (self.next, operation.budget.ambiguous) = (Next::Repeats, false);
                }
                Err(failure)
            }
            finished => finished.map(Some),
        }
    }

    /// Looks for the node of an earlier attempt in this session, if there may be one.
    async fn found(
        &mut self,
        operation: &mut Operation<'_>,
        session: SessionKey,
    ) -> Result<Option<Made>, Failure> {
        let mut found = None;
        if let Next::Recovers { session: sent_in, .. } = self.next {
            // A node that was created in an earlier session of ours is removed with that session.
            if sent_in == session {
                found = recover(operation, session, self.wanted.node_id).await?;
            }
            self.next = Next::Repeats;
        }
        operation.budget.ambiguous = false;
        Ok(found)
    }

    /// Returns how this attempt learns of the queue, once the parent has usable numbers. The attempt after it repeats it.
    async fn listing(
        &mut self,
        operation: &mut Operation<'_>,
        session: SessionKey,
    ) -> Result<Listing, Failure> {
        if let Next::WaitsFor(used_up) = &mut self.next {
            used_up.wait(operation, session).await?;
        }
        match replace(&mut self.next, Next::Repeats) {
            Next::First => first_listing(operation, session, self.wanted.needs),
            _ => Ok(Listing::Sent { pin: None }),
        }
    }
}

/// The answers to a create, and to the listing and the pin if they were sent and succeeded.
struct Appended {
    stat: Stat,
    number: Sequence,
    listed: Option<Vec<String>>,
    pinned: Option<Pinned>,
}

impl Appended {
    fn place(
        self,
        operation: &Operation<'_>,
        session: SessionKey,
        Wanted { label, node_id, needs, .. }: Wanted<'_>,
        listing: Listing,
        sent: Instant,
    ) -> Made {
        let Appended { stat, number, listed, pinned } = self;
        let node = Node::new(NodeName::of(node_id, label, number), node_id.clone(), label, number);
        let shown = match listing {
            Listing::Trusted(trusted) if is_alone(operation, session, trusted, &node) => {
                Some(CreatedQueue::Alone)
            }
            // The server's numbers count all creates, by any client, and a number of a place is assigned only once.
            Listing::Trusted(_) | Listing::Unlisted
                if needs == Needs::Number && Worth::of(number) == Worth::Place =>
            {
                Some(CreatedQueue::Unlisted)
            }
            // A failed list is repeated; the create remains valid.
            _ => listed.map(|names| CreatedQueue::Listed(Queue::listed(names))),
        };
        Made { node: own(session, node, &stat), shown, pinned, sent }
    }
}

/// Returns how the first attempt learns of the queue.
fn first_listing(operation: &Operation<'_>, session: SessionKey, needs: Needs) -> Result<Listing, Failure> {
    let (shared, parent) = (operation.shared, operation.server_path());
    let live = shared.sessions.get(session).ok_or_else(|| shared.sessions.interrupted())?;
    Ok(match shared.alone.plan(&parent, session, || live.changes.lock().count()) {
        Plan::Trust(trusted) => Listing::Trusted(trusted),
        Plan::Pin | Plan::List if needs == Needs::Number => Listing::Unlisted,
        // If the create is abandoned, the room is free a little before the watch is removed. That is only one path, and a
        // short one.
        Plan::Pin => Listing::Sent { pin: live.watchers.reserve_own(Watched::Node(parent)) },
        Plan::List => Listing::Sent { pin: None },
    })
}

/// Deletes the node if its number is unusable, or if few numbers are left and it is alone. Returns the attempt that then
/// follows, or `None` if the node stays.
async fn discarded(
    operation: &mut Operation<'_>,
    session: SessionKey,
    node: &Node,
    shown: Option<&CreatedQueue>,
) -> Result<Option<Next>, Failure> {
    match Worth::of(node.sequence) {
        Worth::Late if matches!(shown, Some(CreatedQueue::Listed(queue)) if queue.len() == 1) => {
            Ok(start_over(operation, session, &node.name).await?.then_some(Next::Repeats))
        }
        Worth::Place | Worth::Late => Ok(None),
        Worth::Nothing => {
            let used_up = UsedUp::delete_node(operation, session, &node.name).await?;
            operation.warn("the path has run out of sequence numbers: waiting until it has no nodes");
            Ok(Some(used_up.map_or(Next::Repeats, Next::WaitsFor)))
        }
    }
}

/// Looks for the node of a create of unknown outcome, in the session in which the create was sent.
///
/// The server may follow a leader that was replaced after the create. So a write has to confirm that the node exists.
async fn recover(
    operation: &mut Operation<'_>,
    session: SessionKey,
    node_id: &NodeId,
) -> Result<Option<Made>, Failure> {
    let sent = Instant::now();
    let queue = operation.list(session, Consistency::Latest).await?;
    for node in queue.iter().filter(|node| node.id == *node_id) {
        let path = operation.node_path(&node.name);
        let stat = operation.stat(session, path.clone()).await?;
        // A node of an earlier session of ours would be removed while it is in use.
        if let Some(stat) = stat.filter(|stat| owner(stat) == Some(session.id)) {
            if !operation.is_there(session, path).await? {
                return Ok(None);
            }
            let node = own(session, node.clone(), &stat);
            return Ok(Some(Made { node, shown: Some(CreatedQueue::Listed(queue)), pinned: None, sent }));
        }
    }
    Ok(None)
}

/// Completes the answer: from here on, the backend reports the deletion of the node.
async fn finish(
    operation: &mut Operation<'_>,
    session: SessionKey,
    wanted: Wanted<'_>,
    place: Made,
) -> Result<Created, Failure> {
    let Made { node, shown, pinned, sent } = place;
    if !wanted.label.is_fixed() {
        let id = operation.own_id(wanted.node_id);
        operation.shared.contents.insert(&id, Contents::new(wanted.data));
    }
    let deletion = operation.shared.insert_own(session, &operation.server_path(), &node, sent)?;
    let mut queue = match shown {
        Some(CreatedQueue::Alone) => return Ok(Created::alone(node, session.epoch, deletion)),
        Some(CreatedQueue::Unlisted) => return Ok(Created::unlisted(node, session.epoch, deletion)),
        Some(CreatedQueue::Listed(queue)) => queue,
        None => operation.list(session, Consistency::Seen).await?,
    };
    // A create of unknown outcome in an earlier session may only take effect now. Its node will be removed soon, but until
    // then it must not be mistaken for ours.
    while let Some(name) = queue.names_of(&node.id).into_iter().find(|name| *name != node.name) {
        if !by_name(operation, session, &name).await? {
            return Err(Failure::ServersDisagree);
        }
        queue = operation.list(session, Consistency::Seen).await?;
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
            let changes = || live.changes.lock().count();
            operation.shared.alone.confirm(&operation.server_path(), session, changes, trusted, node)
        })
}

/// Returns an own node, including what a listing does not contain.
fn own(session: SessionKey, node: Node, stat: &Stat) -> Node {
    node.with_owner(Some(session.id), FencingToken::new(stat.czxid.cast_unsigned()))
}
