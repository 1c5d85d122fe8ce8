//! The create that leaves exactly one node, whatever gets lost on the way.

use std::time::Duration;

use tokio::time::Instant;
use zlock_core::kit::SessionKey;
use zlock_core::{
    Created, DeletionNotice, ErrorKind, Excerpt, FencingToken, Label, LockPath, Node, NodeId, NodeName,
    Queue, Result,
};

use crate::error::Failure;
use crate::operation::Operation;
use crate::request::{Answer, Request};
use crate::session::{Shared, pending_once};
use crate::tree::Child;

/// What a create is asked to make.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) label: Label,
    pub(crate) node_id: &'a NodeId,
    pub(crate) data: &'a [u8],
    /// The caller does without the queue if the number says enough.
    pub(crate) is_unlisted: bool,
}

pub(crate) async fn create(mut operation: Operation<'_>, mut wanted: Wanted<'_>) -> Result<Created> {
    if !wanted.node_id.is_uuid() {
        let why = format!("the node ID {} is not a UUID", Excerpt::of(wanted.node_id.as_str()));
        return Err(operation.budget.error(ErrorKind::InvalidArgument).with_message(why));
    }
    let mut delay = Duration::ZERO;
    // The session of the last attempt.
    let mut last = None;
    loop {
        let session = operation.budget.session().await?;
        // What was made in an earlier session went with it.
        operation.budget.ambiguous &= last == Some(session);
        last = Some(session);
        let attempted = attempt(&mut operation, session, wanted).await;
        // What it left in the queue shows in a listing only, also if it belongs to an earlier session.
        wanted.is_unlisted = false;
        match attempted {
            Ok(Some(created)) => return Ok(created),
            Ok(None) => {
                // No policy counts how often the parent vanishes.
                operation.pause(delay).await?;
                delay = (delay * 2).clamp(Duration::from_millis(1), Duration::from_millis(64));
                // The next create goes out right behind it: whether the parent was made shows there.
                let parent = operation.budget.path().clone();
                drop(operation.shared.send(session, Request::CreateParents { parent }));
            }
            Err(failure) => operation.budget.retry(failure).await?,
        }
    }
}

/// One attempt: after one whose outcome is not known, looks what that came to. `None` if there is no parent.
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
    // The listing goes out right behind it: one round trip.
    let (shared, until) = (operation.shared, operation.budget.deadline());
    let create = shared.send(session, create);
    let listing = (!wanted.is_unlisted).then(|| shared.send(session, list(parent)));
    pending_once().await;
    let created = shared.answer(session, until, create?).await;
    match operation.budget.record(created)? {
        Answer::Created { name, transaction } => {
            // The node is there, and until the listing has come the caller does not know it.
            operation.budget.ambiguous = true;
            let node = own_node(session, &name, transaction)?;
            // The server's numbers count every create, whoever's, and each is given once.
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

/// An own node, with what a listing does not tell.
fn own_node(session: SessionKey, name: &str, transaction: u64) -> Result<Node, Failure> {
    let mut node = Node::listed(name).ok_or_else(|| Failure::Unexpected(format!("the name {name}")))?;
    node.session = Some(session.id);
    node.fencing_token = Some(FencingToken::new(transaction));
    Ok(node)
}

/// Takes the node in. The server counts a session's time anew with each request, `sent` at this instant.
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
