//! The state of the model of hand-off, and what may happen to it: a client with its tasks, another client, and the store's
//! queue.

use super::handoff_rules::Wrong;

/// A node's number in the store's queue; from 1.
pub(crate) type Number = u8;

/// A place of the client, and the session that its node belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) number: Number,
    pub(crate) epoch: u8,
}

/// The turns that follow each other in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Batch {
    pub(crate) number: u8,
    pub(crate) place: Place,
    pub(crate) turn: u8,
    /// A task has been sent the turn, or holds.
    pub(crate) in_use: bool,
    /// The time since the place was granted is over; and that it is, as the client takes it.
    pub(crate) time_over: bool,
    pub(crate) time_seen: bool,
    pub(crate) revoked: bool,
    /// Its place is being removed. Only without a rule is there such a batch.
    pub(crate) given_up: bool,
}

impl Batch {
    pub(crate) fn new(number: u8, place: Place) -> Self {
        let (time_over, time_seen, revoked, given_up) = (false, false, false, false);
        Batch { number, place, turn: 0, in_use: false, time_over, time_seen, revoked, given_up }
    }
}

/// A turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    pub(crate) place: Place,
    pub(crate) turn: u8,
    pub(crate) batch: u8,
    /// When it was sent, the place was known to live.
    pub(crate) lived: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    Idle,
    /// In the local queue.
    Waiting,
    /// The turn is there, and the task has not been polled since.
    Sent(Grant),
    Holding(Grant),
    /// It has released, was cancelled, or got an error.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Driver {
    None,
    /// Its next step is to look at what it has to do.
    Looks,
    /// Its place is in the store's queue.
    Queued(Place),
    /// It has seen that there is nothing to do.
    Ends,
}

/// The session as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    Connected,
    Suspended,
    /// The deadline has passed.
    Over,
}

/// The other client, which takes the lock once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Remote {
    Idle,
    Queued(Number),
    Holds,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The store: the nodes of the lock in their order, and whether it has the client's session.
    pub(crate) queue: Vec<Number>,
    pub(crate) lives_there: bool,
    made: Number,
    /// Removals on their way.
    pub(crate) removals: Vec<Number>,
    /// Nodes that an operator has deleted, before and after the client has heard of it.
    pub(crate) taken: Vec<Number>,
    pub(crate) gone: Vec<Number>,
    pub(crate) link: Link,
    pub(crate) epoch: u8,
    /// The local queue, the tasks, and the driver.
    pub(crate) waiters: Vec<u8>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) driver: Driver,
    pub(crate) batch: Option<Batch>,
    pub(crate) batches: u8,
    /// The place of the batch before.
    pub(crate) leftover: Option<Place>,
    pub(crate) remote: Remote,
    remotes: Number,
    /// The largest fencing token that was granted.
    last: (Number, u8),
    pub(crate) losses: u8,
    pub(crate) wrong: Option<Wrong>,
}

impl State {
    pub(crate) fn new(tasks: u8, losses: u8) -> Self {
        State {
            queue: Vec::new(),
            lives_there: true,
            made: 0,
            removals: Vec::new(),
            taken: Vec::new(),
            gone: Vec::new(),
            link: Link::Connected,
            epoch: 1,
            waiters: Vec::new(),
            tasks: vec![Task::Idle; tasks.into()],
            driver: Driver::None,
            batch: None,
            batches: 0,
            leftover: None,
            remote: Remote::Idle,
            remotes: 0,
            last: (0, 0),
            losses,
            wrong: None,
        }
    }

    fn make(&mut self) -> Number {
        self.made += 1;
        self.queue.push(self.made);
        self.made
    }

    pub(crate) fn create(&mut self) -> Place {
        Place { number: self.make(), epoch: self.epoch }
    }

    /// What the client knows of a place.
    pub(crate) fn knows_to_live(&self, place: Place) -> bool {
        place.epoch == self.epoch && self.link != Link::Over && !self.gone.contains(&place.number)
    }

    /// A guard was handed out. An operator's deletion that the client has not heard of is nobody's fault.
    pub(crate) fn granted(&mut self, token: (Number, u8)) {
        if self.taken.contains(&token.0) {
            return;
        }
        if token <= self.last {
            self.wrong = Some(Wrong::TokenNotLarger);
        }
        self.last = token;
    }

    /// Guards that say that they are held.
    pub(crate) fn holders(&self) -> usize {
        let is_held = |task: &&Task| match task {
            Task::Holding(grant) => {
                self.knows_to_live(grant.place) && !self.taken.contains(&grant.place.number)
            }
            _ => false,
        };
        self.tasks.iter().filter(is_held).count() + usize::from(self.remote == Remote::Holds)
    }

    pub(crate) fn queue_remote(&mut self) {
        self.remotes = self.make();
        self.remote = Remote::Queued(self.remotes);
    }

    pub(crate) fn remote_is_first(&self) -> bool {
        matches!(self.remote, Remote::Queued(number) if self.queue.first() == Some(&number))
    }

    pub(crate) fn grant_remote(&mut self) {
        self.remote = Remote::Holds;
        self.granted((self.remotes, 0));
    }

    pub(crate) fn release_remote(&mut self) {
        self.remote = Remote::Done;
        let number = self.remotes;
        self.queue.retain(|node| *node != number);
    }

    /// The store removes the client's nodes.
    pub(crate) fn end_session(&mut self) {
        let remotes = self.remotes;
        self.queue.retain(|node| *node == remotes);
        self.lives_there = false;
    }

    /// The first of the client's nodes.
    pub(crate) fn own_node(&self) -> Option<Number> {
        self.queue.iter().copied().find(|node| *node != self.remotes)
    }

    /// Whether there is a node of the client that is no holder's and no waiter's.
    pub(crate) fn is_one_left(&self) -> bool {
        let is_used = |number: Number| {
            let is_held = |task: &Task| matches!(task, Task::Holding(grant) if grant.place.number == number);
            let is_queued = matches!(self.driver, Driver::Queued(place) if place.number == number);
            self.tasks.iter().any(is_held) || is_queued
        };
        self.queue.iter().any(|number| *number != self.remotes && !is_used(*number))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The task joins the local queue.
    Join(u8),
    /// The future of the task's acquisition is dropped.
    Cancel(u8),
    /// The task is polled, and finds its turn.
    Poll(u8),
    /// The guard is released, or dropped: then the driver passes the turn on.
    Release(u8),
    Drop(u8),
    /// The driver's next step.
    Drive,
    /// The store carries out a removal.
    Remove(usize),
    RemoteQueues,
    RemoteIsGranted,
    RemoteReleases,
    TimeIsOver,
    Revoke,
    Suspend,
    Resume,
    /// The deadline passes here, later the session ends there, and the next one begins.
    LoseSession,
    SessionEnds,
    NextSession,
    /// An operator deletes the client's node, of which the client hears later.
    DeleteNode,
    HearOfIt(u8),
}
