//! The create, which leaves exactly one node, whatever message is lost.

use std::time::Duration;

use tokio::time::Instant;
use zlock_core::kit::SessionKey;
use zlock_core::{
    Created, DeletionNotice, FencingToken, Label, LockPath, Needs, Node, NodeId, NodeName, Queue, Result,
};

use crate::error::Failure;
use crate::operation::Operation;
use crate::request::{Answer, Request};
use crate::session::{Shared, pending_once};
use crate::tree::Child;

/// The node to create.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) label: Label,
    pub(crate) node_id: &'a NodeId,
    pub(crate) data: &'a [u8],
    pub(crate) needs: Needs,
}

pub(crate) async fn create(mut operation: Operation<'_>, mut wanted: Wanted<'_>) -> Result<Created> {
    operation.budget.check_node(wanted.node_id, wanted.data)?;
    let mut delay = Duration::ZERO;
    // The session of the last attempt.
    let mut last = None;
    loop {
        let session = operation.budget.session().await?;
        // A node that was created in an earlier session was removed with it.
        operation.budget.ambiguous &= last == Some(session);
        last = Some(session);
        let attempted = attempt(&mut operation, session, wanted).await;
        // Only a listing shows what an attempt has left in the queue, even if it belongs to an earlier session.
        wanted.needs = Needs::Queue;
        match attempted {
            Ok(Some(created)) => return operation.budget.finish(Ok(created)),
            Ok(None) => {
                // The retry policy does not count how often the parent disappears.
                operation.pause(delay).await?;
                delay = (delay * 2).clamp(Duration::from_millis(1), Duration::from_millis(64));
                // The next create is sent right after this request, and shows whether the parent was created.
                let parent = operation.budget.path().clone();
                drop(operation.shared.send(session, Request::CreateParents { parent }));
            }
            Err(failure) => operation.budget.retry(failure).await?,
        }
    }
}

/// Makes one attempt. If the outcome of the previous attempt is unknown, determines it first. `None` if there is no parent.
async fn attempt(
    operation: &mut Operation<'_>,
    session: SessionKey,
    wanted: Wanted<'_>,
) -> Result<Option<Created>, Failure> {
    let parent = operation.budget.path();
    let sent = Instant::now();
    if operation.budget.ambiguous {
        let children = match operation.ask_in(session, list(parent)).await? {
            Answer::Children(children) => children,
            answer => return Err(Failure::unexpected(&answer)),
        };
        let own = |child: &&Child| child.is_of(session.id) && child.has_id(wanted.node_id);
        if let Some(Child { name, transaction, .. }) = children.iter().find(own).cloned() {
            let node = own_node(session, &name, transaction)?;
            return made(operation, session, sent, node, children).map(Some);
        }
        operation.budget.ambiguous = false;
    }
    let sent = Instant::now();
    let prefix = NodeName::prefix(wanted.node_id, wanted.label);
    let create = Request::Create { parent: parent.clone(), prefix, data: wanted.data.to_vec() };
    // The listing is sent right after the create: one round trip.
    let (shared, until) = (operation.shared, operation.budget.deadline());
    let create = shared.send(session, create);
    let listing = (wanted.needs == Needs::Queue).then(|| shared.send(session, list(parent)));
    pending_once().await;
    let created = shared.answer(session, until, create?).await;
    match operation.budget.record(created)? {
        Answer::Created { name, transaction } => {
            // The node exists, but the caller does not know it until the listing has arrived.
            operation.budget.ambiguous = true;
            let node = own_node(session, &name, transaction)?;
            // The server's numbers count all creates, by any client, and each number is assigned once.
            if listing.is_none() && node.sequence.get() >= 0 {
                let deletion = take_in(operation, session, sent, &node)?;
                return Ok(Some(Created::unlisted(node, session.epoch, deletion)));
            }
            let listing = listing.unwrap_or_else(|| shared.send(session, list(parent)));
            match shared.answer(session, until, listing?).await? {
                Answer::Children(children) => made(operation, session, sent, node, children).map(Some),
                answer => Err(Failure::unexpected(&answer)),
            }
        }
        Answer::NoNode => Ok(None),
        answer => Err(Failure::unexpected(&answer)),
    }
}

/// Returns an own node, including what a listing does not contain.
fn own_node(session: SessionKey, name: &str, transaction: u64) -> Result<Node, Failure> {
    let mut node = Node::listed(name).ok_or_else(|| Failure::Unexpected(format!("the name {name}")))?;
    node.session = Some(session.id);
    node.fencing_token = Some(FencingToken::new(transaction));
    Ok(node)
}

/// Adds the node. The server restarts a session's timeout with each request; this one was sent at `sent`.
fn take_in(
    operation: &Operation<'_>,
    session: SessionKey,
    sent: Instant,
    node: &Node,
) -> Result<DeletionNotice, Failure> {
    let Shared { sessions, options, .. } = operation.shared;
    Ok(sessions.insert_own(session, &node.id, sent + options.certain())?)
}

fn made(
    operation: &Operation<'_>,
    session: SessionKey,
    sent: Instant,
    node: Node,
    children: Vec<Child>,
) -> Result<Created, Failure> {
    let deletion = take_in(operation, session, sent, &node)?;
    let queue = Queue::listed(children).with_own(node.clone());
    Ok(Created::new(node, queue, session.epoch, deletion))
}

fn list(parent: &LockPath) -> Request {
    Request::List { parent: parent.clone(), watcher: None }
}
