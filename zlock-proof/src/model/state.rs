//! The state of the model: one lock's queue at a store, and its clients.

use zlock_core::Label;

/// A node in the queue. Each client makes one, in the order of the clients' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) client: u8,
    pub(crate) label: Label,
}

/// The store and everything that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// At the store, first in line first.
    pub(crate) queue: Vec<Place>,
    pub(crate) clients: Vec<Client>,
    /// The number of the next node, where the store counts every create since it made the parent.
    pub(crate) next_number: u8,
    /// An acquisition has ended for lack of a node that was there.
    pub(crate) is_needless_end: bool,
    /// How many faults may still come: acquisitions that are cancelled, sessions that are lost, watches that
    /// fire in vain, nodes that an operator deletes and sessions that an operator ends.
    pub(crate) faults: u8,
}

/// No limit to the number of faults. It is not counted then, so that it makes no states.
pub(crate) const ANY: u8 = u8::MAX;

/// A client, its link to the store, and its watch and its background jobs there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    /// What it asks for.
    pub(crate) label: Label,
    pub(crate) phase: Phase,
    /// The number of its node, where the store counts.
    pub(crate) number: u8,
    pub(crate) session: Session,
    /// At the store.
    pub(crate) watch: Option<Watch>,
    /// On the way from the store.
    pub(crate) inbox: Vec<Message>,
    /// The node is to be removed in the background.
    pub(crate) delete: bool,
    /// The node is to get this label in the background.
    pub(crate) relabel: Option<Label>,
    /// Its guard is released, and the answer to the removal has not come. Only remembered where a rule is left out that
    /// makes it matter.
    pub(crate) removing: bool,
    /// The place of the same process that is to tell it that it holds.
    pub(crate) predecessor: Option<u8>,
    /// It had one before: there is no other.
    pub(crate) followed: bool,
    /// The place of the same process that it tells.
    pub(crate) successor: Option<u8>,
    /// The removal of the node hands over to this one.
    pub(crate) handing_to: Option<u8>,
    /// It was handed the lock when it had no node any more. Only where a rule is left out.
    pub(crate) is_unfounded: bool,
    pub(crate) replica: Replica,
    /// Requests since the queue last changed.
    pub(crate) asked: u8,
    /// The last listing, or what is left of it; only remembered where a rule is left out that forbids it.
    pub(crate) last: Vec<Place>,
}

/// The queue as the server has it that the client asks when it was woken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Replica {
    /// As all servers have it.
    Latest,
    /// The server may be behind, but not behind what the client has seen.
    Behind(Vec<Place>),
    /// It may be behind even that. Only where a rule is left out.
    Anywhere(Vec<Place>),
}

/// Whether a lock with this label excludes all others.
pub(crate) fn is_exclusive(label: Label) -> bool {
    matches!(label, Label::Lock | Label::Write)
}

/// What a client is doing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    /// A request is under way, or its answer.
    Asking(Ask),
    /// For a watch.
    Waiting,
    /// Its user has a guard of this kind that says that it is held.
    Holding(Label),
    /// No guard, and nobody waits for one.
    Done,
}

/// A request to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    /// The listing that comes with the create. The node is there.
    Create,
    /// The answer to a create without a listing. The node is there.
    CreateUnlisted,
    List,
    /// Watch this node, as it was listed.
    Arm(Place),
    ListAndArm,
    /// Watch this node, there or not: the second half of `Arm`, where the two are not one.
    ArmBlindly(Place),
    /// Watch the queue: the second half of `ListAndArm`, where the two are not one.
    ArmQueueBlindly(Vec<Place>),
}

/// A watch at the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Watch {
    Node(u8),
    Queue,
}

/// The session, as its client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Session {
    /// The one that the node belongs to.
    Live,
    /// Over: the local deadline has passed, or the store told.
    Over,
    /// The next one has begun.
    Next,
}

/// From the store to a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    /// To the request under way.
    Answer(Answer),
    /// The watch.
    Fired,
    /// Somebody deleted the client's node.
    Gone,
    /// Somebody ended the client's session.
    Ended,
    /// The session has expired. Never comes before the local deadline.
    Expired,
    /// The relabel is done; only told where a rule is left out that makes it matter.
    Relabelled,
    /// From the predecessor: the lock was handed over.
    Succeeded,
    /// From the predecessor: it was not.
    LinkEnded,
}

/// An answer. The states of the queue in it may be old when it arrives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Unlisted,
    Listed(Vec<Place>),
    Armed,
    NotArmed,
    ListedAndArmed(Vec<Place>),
}

impl Message {
    /// It comes from a place of the same process: its way has nothing to do with that of the store's messages.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Message::Succeeded | Message::LinkEnded)
    }

    fn rank(&self) -> u8 {
        match self {
            Message::Answer(_) => 0,
            Message::Fired => 1,
            Message::Gone => 2,
            Message::Ended => 3,
            Message::Expired => 4,
            Message::Relabelled => 5,
            Message::Succeeded => 6,
            Message::LinkEnded => 7,
        }
    }
}

impl Client {
    pub(crate) fn new(label: Label) -> Self {
        Client {
            label,
            phase: Phase::Idle,
            number: 0,
            session: Session::Live,
            watch: None,
            inbox: Vec::new(),
            delete: false,
            relabel: None,
            removing: false,
            predecessor: None,
            followed: false,
            successor: None,
            handing_to: None,
            is_unfounded: false,
            replica: Replica::Latest,
            asked: 0,
            last: Vec::new(),
        }
    }

    /// The client sees how the queue is now: the server that it asks is not behind that.
    pub(crate) fn saw(&mut self, queue: &[Place]) {
        if let Replica::Behind(replica) = &mut self.replica {
            queue.clone_into(replica);
        }
    }

    /// Whether the server that the client asks has not got the latest queue.
    pub(crate) fn is_behind(&self, queue: &[Place]) -> bool {
        matches!(&self.replica, Replica::Behind(replica) | Replica::Anywhere(replica) if replica != queue)
    }

    /// The server that the client asks learns what the others know.
    pub(crate) fn catch_up(&mut self, queue: &[Place]) {
        if let Replica::Behind(replica) | Replica::Anywhere(replica) = &mut self.replica {
            queue.clone_into(replica);
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Asking(_) | Phase::Waiting)
    }

    /// Whether a request is on its way to the store.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.phase, Phase::Asking(_)) && !self.inbox.iter().any(|m| matches!(m, Message::Answer(_)))
    }

    /// Whether an operator took the node or the session and the client has not been told yet. No rule can keep
    /// it from believing that it holds.
    pub(crate) fn is_misled(&self) -> bool {
        !self.is_unfounded && self.inbox.iter().any(|m| matches!(m, Message::Gone | Message::Ended))
    }
}

impl State {
    pub(crate) fn new(labels: &[Label], faults: u8, replica: &Replica) -> Self {
        let client = |&label| {
            let replica = if is_exclusive(label) { replica.clone() } else { Replica::Latest };
            Client { replica, ..Client::new(label) }
        };
        let clients = labels.iter().map(client).collect();
        State { queue: Vec::new(), clients, next_number: 0, is_needless_end: false, faults }
    }

    pub(crate) fn place(&self, client: u8) -> Option<usize> {
        self.queue.iter().position(|p| p.client == client)
    }

    pub(crate) fn client(&self, i: u8) -> &Client {
        &self.clients[usize::from(i)]
    }

    pub(crate) fn client_mut(&mut self, i: u8) -> &mut Client {
        &mut self.clients[usize::from(i)]
    }

    /// A fault comes.
    pub(crate) fn take_fault(&mut self) {
        if self.faults != ANY {
            self.faults -= 1;
        }
    }

    /// Forgets what can have no effect any more, and the order of messages if none is kept: fewer states, the
    /// same behaviour.
    pub(crate) fn simplify(&mut self, keeps_order: bool) {
        for i in 0..self.clients.len() {
            let has_place = self.queue.iter().any(|p| usize::from(p.client) == i);
            let client = &mut self.clients[i];
            if client.phase == Phase::Done {
                let session = if client.session == Session::Live { Session::Live } else { Session::Over };
                let kept = Client { phase: Phase::Done, ..Client::new(client.label) };
                *client = if has_place || client.handing_to.is_some() || client.removing {
                    let Client { delete, relabel, handing_to, removing, .. } = *client;
                    let number = if removing { client.number } else { 0 };
                    Client { session, delete, relabel, handing_to, removing, number, ..kept }
                } else {
                    kept
                };
            }
            if client.session != Session::Live || !has_place {
                (client.delete, client.relabel) = (client.handing_to.is_some(), None);
            }
            if !keeps_order {
                client.inbox.sort_by_key(Message::rank);
            }
        }
    }
}
