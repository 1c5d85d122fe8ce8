//! The create that leaves exactly one node, whatever gets lost on the way.

use zlock_core::{
    Created, ErrorKind, Excerpt, FencingToken, Label, LockPath, Node, NodeId, NodeName, Queue, Result,
    Session, SessionId,
};

use crate::call::{Call, ParentDelays};
use crate::request::{Answer, Request};
use crate::session::{Asked, Shared};
use crate::tree::Child;

/// What a create is asked to make.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) parent: &'a LockPath,
    pub(crate) label: Label,
    pub(crate) node_id: &'a NodeId,
    pub(crate) data: &'a [u8],
}

/// What came of one attempt.
enum Attempt {
    Made(Created),
    NoParent,
    /// The node may be there, as long as the session lives.
    Uncertain,
    /// It is not there.
    Absent,
    /// The session is over, and so is whatever was made in it.
    Over,
}

pub(crate) async fn create(shared: &Shared, call: &Call<'_>, wanted: Wanted<'_>) -> Result<Created> {
    if !wanted.node_id.is_uuid() {
        let why = format!("the node ID {} is no UUID", Excerpt::of(wanted.node_id.as_str()));
        return Err(call.error(ErrorKind::InvalidArgument).with_message(why));
    }
    let (mut retries, mut delays) = (call.retries(), ParentDelays::new());
    // The session in which a create was sent that may have taken effect.
    let mut uncertain: Option<SessionId> = None;
    loop {
        let session = call.session().await;
        let attempt = if uncertain == Some(session.id) {
            look_up(shared, call, session, wanted).await?
        } else {
            send(shared, call, session, wanted).await?
        };
        match attempt {
            Attempt::Made(created) => return Ok(created),
            Attempt::Absent => {
                uncertain = None;
                continue;
            }
            Attempt::NoParent => {
                delays.wait().await;
                // The next create goes out right behind it: whether the parent was made shows there.
                drop(shared.send(session, Request::CreateParents { parent: wanted.parent.clone() }));
                continue;
            }
            Attempt::Uncertain => uncertain = Some(session.id),
            Attempt::Over => {}
        }
        call.again(&mut retries).await?;
    }
}

/// Sends the create and the listing behind it: one round trip.
async fn send(shared: &Shared, call: &Call<'_>, session: Session, wanted: Wanted<'_>) -> Result<Attempt> {
    let create = Request::Create {
        parent: wanted.parent.clone(),
        prefix: NodeName::prefix(wanted.node_id, wanted.label),
        data: wanted.data.to_vec(),
    };
    let create = shared.send(session, create);
    call.note_sent(true);
    let listing = shared.send(session, list(wanted.parent));
    let asked = shared.answer(create).await;
    call.note_answered(true, &asked);
    match asked {
        Asked::Answer(Answer::Created { name, transaction }) => {
            // The node is there, and until the listing has come the caller does not know it: the time may be
            // over before that.
            call.note_sent(true);
            match shared.answer(listing).await {
                Asked::Answer(Answer::Children(children)) => {
                    made(shared, call, session, &name, transaction, children)
                }
                _ => Ok(Attempt::Uncertain),
            }
        }
        Asked::Answer(Answer::NoNode) => Ok(Attempt::NoParent),
        Asked::Answer(answer) => Err(call.unexpected(&answer)),
        Asked::Lost => Ok(Attempt::Uncertain),
        Asked::Over => Ok(Attempt::Over),
    }
}

/// Looks whether a create without an answer took effect in this session.
async fn look_up(shared: &Shared, call: &Call<'_>, session: Session, wanted: Wanted<'_>) -> Result<Attempt> {
    let Asked::Answer(Answer::Children(children)) = call.ask(session, list(wanted.parent)).await else {
        return Ok(Attempt::Uncertain);
    };
    let own = |child: &&Child| child.is_of(session.id) && child.has_id(wanted.node_id);
    match children.iter().find(own).cloned() {
        Some(child) => made(shared, call, session, &child.name, child.transaction, children),
        None => Ok(Attempt::Absent),
    }
}

fn made(
    shared: &Shared,
    call: &Call<'_>,
    session: Session,
    name: &str,
    transaction: u64,
    children: Vec<Child>,
) -> Result<Attempt> {
    let Some(mut node) = Node::listed(name) else {
        return Err(call.error(ErrorKind::Unexpected).with_message(format!("the name {name}")));
    };
    node.session = Some(session.id);
    node.fencing_token = Some(FencingToken::new(transaction));
    let deletion = shared.own.insert(&node.id);
    let queue = Queue::listed(children).with_own(node.clone());
    Ok(Attempt::Made(Created { node, queue, epoch: session.epoch, deletion }))
}

fn list(parent: &LockPath) -> Request {
    Request::List { parent: parent.clone(), watcher: None }
}
