//! The state of the model: one lock's queue at a store, and its clients.

use zlock_core::Label;

/// A node in the queue. Each client creates one, in the order of the clients' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) client: u8,
    pub(crate) label: Label,
}

/// The store, the clients, and everything that is in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The queue at the store, in order.
    pub(crate) queue: Vec<Place>,
    pub(crate) clients: Vec<Client>,
    /// The number of the next node, if the store counts the creates under a parent.
    pub(crate) next_number: u8,
    /// Whether an acquisition has ended for lack of its node, which existed.
    pub(crate) is_needless_end: bool,
    /// The number of faults that may still occur: cancelled acquisitions, lost sessions, watches that fire in vain, nodes
    /// deleted by an operator, and sessions ended by an operator.
    pub(crate) faults: u8,
}

/// An unlimited number of faults. They are not counted, which would add states.
pub(crate) const ANY: u8 = u8::MAX;

/// A client, its link to the store, and its watch and its background jobs there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    /// What it requests.
    pub(crate) label: Label,
    pub(crate) phase: Phase,
    /// The number of its node, if the store counts.
    pub(crate) number: u8,
    pub(crate) session: Session,
    /// Its watch at the store.
    pub(crate) watch: Option<Watch>,
    /// Messages in flight to the client.
    pub(crate) inbox: Vec<Message>,
    /// Whether the node is to be removed in the background.
    pub(crate) delete: bool,
    /// The label that the node is to get in the background.
    pub(crate) relabel: Option<Label>,
    /// Whether its guard is released and the removal is not answered yet. Only recorded when the left-out rule makes it
    /// relevant.
    pub(crate) removing: bool,
    /// The place of the same process that is to hand the lock over to this one.
    pub(crate) predecessor: Option<u8>,
    /// Whether it has had a predecessor. It never gets another.
    pub(crate) followed: bool,
    /// The place of the same process that this one is to hand the lock over to.
    pub(crate) successor: Option<u8>,
    /// The place that the removal of the node hands the lock over to.
    pub(crate) handing_to: Option<u8>,
    /// Whether the lock was handed to it when its node was gone. Only possible when a rule is left out.
    pub(crate) is_unfounded: bool,
    pub(crate) replica: Replica,
    /// Requests since the queue last changed.
    pub(crate) asked: u8,
    /// The last listing, or what is left of it. Only recorded when the rule that forbids its use is left out.
    pub(crate) last: Vec<Place>,
}

/// The queue at the server that the client reads from after a wake-up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Replica {
    /// The same as at all servers.
    Latest,
    /// The server may be behind, but not behind what the client has seen.
    Behind(Vec<Place>),
    /// The server may be behind even that. Only possible when a rule is left out.
    Anywhere(Vec<Place>),
}

/// Returns `true` if a lock with this label excludes all others.
pub(crate) fn is_exclusive(label: Label) -> bool {
    matches!(label, Label::Lock | Label::Write)
}

/// What a client is doing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    /// A request or its answer is in flight.
    Asking(Ask),
    /// It waits for a watch.
    Waiting,
    /// Its user has a guard of this kind that reports to be held.
    Holding(Label),
    /// There is no guard, and no user waits for one.
    Done,
}

/// A request to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    /// The listing that comes with the create. The node exists.
    Create,
    /// The answer to a create without a listing. The node exists.
    CreateUnlisted,
    List,
    /// Watch this node, as it was listed.
    Arm(Place),
    ListAndArm,
    /// Watch this node, whether or not it exists: the second half of `Arm`, if that is not atomic.
    ArmBlindly(Place),
    /// Watch the queue: the second half of `ListAndArm`, if that is not atomic.
    ArmQueueBlindly(Vec<Place>),
}

/// A watch at the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Watch {
    Node(u8),
    Queue,
}

/// The client's view of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Session {
    /// The session that the node belongs to is live.
    Live,
    /// The session is over, by the local deadline or by a message from the store.
    Over,
    /// The next session has begun.
    Next,
}

/// A message to a client, from the store or from a place of the same process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    /// The answer to the request in flight.
    Answer(Answer),
    /// The watch has fired.
    Fired,
    /// An operator has deleted the client's node.
    Gone,
    /// An operator has ended the client's session.
    Ended,
    /// The session has expired. Never arrives before the local deadline.
    Expired,
    /// The relabel is done. Only sent when the left-out rule makes it relevant.
    Relabelled,
    /// From the predecessor: the lock was handed over.
    Succeeded,
    /// From the predecessor: the lock was not handed over.
    LinkEnded,
}

/// An answer. The state of the queue in it may be out of date when it arrives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Unlisted,
    Listed(Vec<Place>),
    Armed,
    NotArmed,
    ListedAndArmed(Vec<Place>),
}

impl Message {
    /// Returns `true` for a message from a place of the same process, which is delivered independently of the store's messages.
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

    /// The client sees the current queue. The server that it reads from is not behind that.
    pub(crate) fn saw(&mut self, queue: &[Place]) {
        if let Replica::Behind(replica) = &mut self.replica {
            queue.clone_into(replica);
        }
    }

    /// Returns `true` if the server that the client reads from does not have the latest queue.
    pub(crate) fn is_behind(&self, queue: &[Place]) -> bool {
        matches!(&self.replica, Replica::Behind(replica) | Replica::Anywhere(replica) if replica != queue)
    }

    /// The server that the client reads from catches up with the others.
    pub(crate) fn catch_up(&mut self, queue: &[Place]) {
        if let Replica::Behind(replica) | Replica::Anywhere(replica) = &mut self.replica {
            queue.clone_into(replica);
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Asking(_) | Phase::Waiting)
    }

    /// Returns `true` if a request is in flight to the store.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.phase, Phase::Asking(_)) && !self.inbox.iter().any(|m| matches!(m, Message::Answer(_)))
    }

    /// Returns `true` if an operator has removed the node or the session and the client does not know it yet. No rule can
    /// prevent the client from believing that it holds the lock.
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

    /// A fault occurs.
    pub(crate) fn take_fault(&mut self) {
        if self.faults != ANY {
            self.faults -= 1;
        }
    }

    /// Forgets what can no longer have an effect, and the order of messages if delivery is unordered. That reduces the number
    /// of states without changing the behaviour.
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
