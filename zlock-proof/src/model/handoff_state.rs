//! The state of the hand-off model, and its actions: a client with its tasks, another client, and the store's queue.

use zlock_recipes::queue::LocalQueue;

use super::search::Wrong;

pub(crate) const TOKEN_NOT_LARGER: Wrong = "a fencing token that is not larger";

/// A node's number in the store's queue, starting at 1.
pub(crate) type Number = u8;

/// A place of the client, and the session that its node belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) number: Number,
    pub(crate) epoch: u8,
}

/// What has happened to the present batch, whether the client notices it or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Batch {
    pub(crate) number: u64,
    /// Whether the batch's time, which starts when the place is granted, is over; and whether the client notices it.
    pub(crate) time_over: bool,
    pub(crate) time_seen: bool,
    pub(crate) revoked: bool,
}

/// A turn of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    pub(crate) place: Place,
    pub(crate) turn: u32,
    pub(crate) batch: u64,
    /// Whether the place was known to be live when the turn was sent.
    pub(crate) lived: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    Idle,
    /// In the local queue, with this number.
    Waiting(u64),
    /// The turn was sent, and the task has not been polled since.
    Sent(Grant),
    Holding(Grant),
    /// The task has released, was cancelled, or got an error.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Driver {
    None,
    /// Its next step is to check for work.
    Looks,
    /// Its place is in the store's queue.
    Queued(Place),
    /// It has found no work.
    Ends,
}

/// The client's view of its session.
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
    /// The store: the nodes of the lock in order, and whether the client's session exists there.
    pub(crate) queue: Vec<Number>,
    pub(crate) lives_there: bool,
    made: Number,
    /// Removals in flight.
    pub(crate) removals: Vec<Number>,
    /// Nodes that an operator has deleted, before and after the client learns of it.
    pub(crate) taken: Vec<Number>,
    pub(crate) gone: Vec<Number>,
    pub(crate) link: Link,
    pub(crate) epoch: u8,
    /// The local queue, the tasks, and the driver.
    pub(crate) local: LocalQueue<u8, Place>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) driver: Driver,
    pub(crate) batch: Option<Batch>,
    /// A place that was given up, if the rule is left out that it is not handed over.
    pub(crate) kept: Option<Place>,
    pub(crate) remote: Remote,
    remotes: Number,
    /// The largest fencing token that was granted.
    last: (Number, u32),
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
            local: LocalQueue::default(),
            tasks: vec![Task::Idle; tasks.into()],
            driver: Driver::None,
            batch: None,
            kept: None,
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

    /// Starts the removal of a node that is no longer needed.
    pub(crate) fn give_up(&mut self, place: Place) {
        self.removals.push(place.number);
    }

    /// Returns the turn that was sent to a task or is held, if there is one in this batch.
    pub(crate) fn turn(&self, batch: u64) -> Option<u32> {
        let turn = |task: &Task| match task {
            Task::Sent(grant) | Task::Holding(grant) if grant.batch == batch => Some(grant.turn),
            _ => None,
        };
        self.tasks.iter().find_map(turn)
    }

    /// Returns `true` if the client knows the place to be live.
    pub(crate) fn knows_to_live(&self, place: Place) -> bool {
        place.epoch == self.epoch && self.link != Link::Over && !self.gone.contains(&place.number)
    }

    /// A guard is handed out. An operator's deletion that the client has not learned of is not a violation.
    pub(crate) fn granted(&mut self, token: (Number, u32)) {
        if self.taken.contains(&token.0) {
            return;
        }
        if token <= self.last {
            self.wrong = Some(TOKEN_NOT_LARGER);
        }
        self.last = token;
    }

    /// Returns the number of guards that report to be held.
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

    /// The session ends, and the store removes the client's nodes.
    pub(crate) fn end_session(&mut self) {
        let remotes = self.remotes;
        self.queue.retain(|node| *node == remotes);
        self.lives_there = false;
    }

    /// Returns the first of the client's nodes.
    pub(crate) fn own_node(&self) -> Option<Number> {
        self.queue.iter().copied().find(|node| *node != self.remotes)
    }

    /// Returns `true` if a node of the client belongs to no holder and no waiter.
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
    /// The task is polled and finds its turn.
    Poll(u8),
    /// The guard is released, or dropped. After a drop, the driver passes the turn on.
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
    /// The deadline passes at the client, later the session ends at the store, and then the next one begins.
    LoseSession,
    SessionEnds,
    NextSession,
    /// An operator deletes the client's node, and the client learns of it later.
    DeleteNode,
    HearOfIt(u8),
}
