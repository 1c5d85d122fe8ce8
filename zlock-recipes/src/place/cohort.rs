//! The local queue of a client's waiters that share one place in the store.
//!
//! This is a cohort lock (Dice, Marathe and Shavit, "Lock Cohorting", PPoPP 2012): a local queue, first come first
//! served, behind one place in the store's queue. The holders that follow each other in one place are a *batch*. While
//! the batch lasts, each turn ends by handing the lock to the next local waiter, without a request. Then the place is
//! given up, and a new one is taken at the end of the store's queue.
//!
//! | must stay true | how |
//! |---|---|
//! | one holder at a time | a batch has one turn in use; the next one begins when that has ended |
//! | a batch needs its node | a turn is passed on only if the session is connected and the node is not known to be deleted |
//! | other clients wait for a bounded time | the time starts when the place is granted, and is never restarted; the place is kept for a second at most when its batch is over |
//! | no waiter is forgotten | while there are waiters, a task of the client drives the queue; the task also handles a turn that was ended by a drop, and the end of the session |
//! | a cancelled waiter keeps nothing | a turn that was already sent to it is taken back and passed on |

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use zlock_core::{Error, LastFailure, LockPath, Mutex, Result, SessionEvents, SessionState};

use crate::place::granted::Granted;
use crate::queue::{Arrival, Bounds, LocalQueue, Offer, Status, Task};

/// The bounds of a hand-off inside a client: see [`LockHandle::with_handoff`](crate::LockHandle::with_handoff).
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use zlock::Handoff;
///
/// let handoff = Handoff::within(Duration::from_millis(10)).at_most(100);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handoff {
    within: Duration,
    at_most: u32,
}

impl Handoff {
    /// Hands the lock over inside the client for `time` after its place in the store's queue was granted. A critical section
    /// that has begun by then is not interrupted. Zero never hands over.
    ///
    /// A waiter of another client waits for up to `time` longer for each place ahead of it. Choose the duration of a few
    /// requests to the store, such as 10 milliseconds.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use std::time::Duration;
    /// use zlock::Handoff;
    ///
    /// let mutex = client.mutex("/app/orders")?.with_handoff(Handoff::within(Duration::from_millis(10)));
    /// mutex.run(async { /* alone */ }).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn within(time: Duration) -> Self {
        Handoff { within: time, at_most: u32::MAX }
    }

    /// Also limits the number of times that the lock is handed over before its place is given up.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use zlock::Handoff;
    ///
    /// let handoff = Handoff::within(Duration::from_millis(10)).at_most(100);
    /// # let _ = handoff;
    /// ```
    #[must_use]
    pub const fn at_most(mut self, turns: u32) -> Self {
        self.at_most = turns;
        self
    }

    /// Returns the bounds of a batch that begins now. There is no time limit if the instant is out of range.
    fn bounds(self) -> Bounds {
        Bounds { until: Instant::now().checked_add(self.within), at_most: self.at_most }
    }
}

/// The local queues of a client, by lock. A queue is removed with its last user.
#[derive(Debug, Default)]
pub(crate) struct Cohorts(Mutex<BTreeMap<(LockPath, Handoff), Weak<Cohort>>>);

/// The local queue of one lock.
#[derive(Debug)]
pub(crate) struct Cohort {
    all: Arc<Cohorts>,
    path: LockPath,
    handoff: Handoff,
    session: SessionEvents,
    queue: Mutex<LocalQueue<Waiter, Granted>>,
    /// Notifies the driver.
    changed: Notify,
    /// The last failure of the store in the driver's requests.
    pub(crate) failure: LastFailure,
}

#[derive(Debug)]
struct Waiter {
    data: Arc<[u8]>,
    sender: oneshot::Sender<Result<Turn>>,
}

/// The right of a local waiter to hold the lock. Must be ended by [`pass_on`](Self::pass_on) or
/// [`leave`](Self::leave).
#[derive(Debug)]
pub(crate) struct Turn {
    cohort: Arc<Cohort>,
    batch: u64,
    pub(crate) granted: Granted,
}

/// What happens to the place when a turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Ended {
    /// The next local waiter has the place, or the driver takes care of it.
    PassedOn,
    /// The caller must remove the place's node.
    GiveUp,
}

/// The next task of a driver.
#[derive(Debug)]
pub(crate) enum Work {
    /// Acquire a place, with this data for its node. Give up the leftover once the new place is queued.
    Acquire { data: Arc<[u8]>, leftover: Option<Granted> },
    /// Wait until the place of this batch is lost, or until the queue has changed.
    Watch { batch: u64, granted: Granted },
    /// Remove the node of a place without waiters.
    GiveUp(Granted),
    /// Nothing. From here on, there is no driver.
    Done,
}

impl Cohorts {
    /// Returns the queue of a lock, if it has users.
    pub(crate) fn find(&self, path: &LockPath, handoff: Handoff) -> Option<Arc<Cohort>> {
        self.0.lock().get(&(path.clone(), handoff)).and_then(Weak::upgrade)
    }

    /// Returns the queue of a lock.
    pub(crate) fn get(
        self: &Arc<Self>,
        path: &LockPath,
        handoff: Handoff,
        session: &SessionEvents,
    ) -> Arc<Cohort> {
        let mut cohorts = self.0.lock();
        let cohort = cohorts.entry((path.clone(), handoff)).or_default();
        cohort.upgrade().unwrap_or_else(|| {
            let new = Arc::new(Cohort {
                all: self.clone(),
                path: path.clone(),
                handoff,
                session: session.clone(),
                queue: Mutex::default(),
                changed: Notify::new(),
                failure: LastFailure::default(),
            });
            *cohort = Arc::downgrade(&new);
            new
        })
    }
}

impl Drop for Cohort {
    fn drop(&mut self) {
        let mut cohorts = self.all.0.lock();
        let key = (self.path.clone(), self.handoff);
        // Another queue may have replaced it meanwhile.
        if cohorts.get(&key).is_some_and(|cohort| cohort.strong_count() == 0) {
            cohorts.remove(&key);
        }
    }
}

impl Cohort {
    pub(crate) fn path(&self) -> &LockPath {
        &self.path
    }

    /// Appends a waiter.
    pub(crate) fn join(&self, data: &Arc<[u8]>) -> (Arrival, oneshot::Receiver<Result<Turn>>) {
        let (sender, turn) = oneshot::channel();
        let arrival = self.queue.lock().join(Waiter { data: data.clone(), sender });
        (arrival, turn)
    }

    /// Removes a waiter.
    pub(crate) fn leave(&self, number: u64) {
        // Dropped outside the lock: that may wake the waiter's task.
        let (waiter, has_waiters) = {
            let mut queue = self.queue.lock();
            (queue.leave(number), queue.has_waiters())
        };
        if waiter.is_some() && !has_waiters {
            self.changed.notify_one();
        }
    }

    /// Returns `true` if a local holder or waiter has the lock's place.
    pub(crate) fn is_taken(&self) -> bool {
        let session = self.session.current();
        self.queue.lock().is_taken(|granted| granted.status(session) == Status::Live)
    }

    /// Returns `true` if the waiters have a place in the store's queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.queue.lock().is_queued()
    }

    /// Records whether the driver's place has been created.
    pub(crate) fn set_queued(&self, is_queued: bool) {
        self.queue.lock().set_queued(is_queued);
    }

    /// Returns the driver's next task.
    pub(crate) fn work(self: &Arc<Self>) -> Work {
        loop {
            let task = self.queue.lock().task(|waiter| waiter.data.clone());
            return match task {
                Task::Acquire { first, leftover } => Work::Acquire { data: first, leftover },
                Task::Watch { batch, place } => Work::Watch { batch, granted: place },
                Task::GiveUp(granted) => Work::GiveUp(granted),
                Task::Done => Work::Done,
                Task::PassOn(batch) => match self.next_turn(batch) {
                    Some(granted) => Work::GiveUp(granted),
                    None => continue,
                },
            };
        }
    }

    /// Waits until the driver should call [`work`](Self::work) again.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until there are no waiters.
    pub(crate) async fn deserted(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if !self.queue.lock().has_waiters() {
                return;
            }
            changed.await;
        }
    }

    /// Begins a batch with its first turn. Returns the grant if there is no waiter.
    pub(crate) fn begin(self: &Arc<Self>, granted: Granted) -> Option<Granted> {
        let number = self.queue.lock().begin(granted, self.handoff.bounds());
        self.offer(number, false)
    }

    /// Gives the next turn of a batch to the first waiter, if the batch goes on. If it does not, its place becomes the
    /// driver's leftover. Returns the grant if there is no waiter: then its node must be removed.
    fn next_turn(self: &Arc<Self>, batch: u64) -> Option<Granted> {
        self.offer(batch, true)
    }

    fn offer(self: &Arc<Self>, batch: u64, mut is_next: bool) -> Option<Granted> {
        let (session, now) = (self.session.current(), Instant::now());
        let is_good = |granted: &Granted| {
            session.state == SessionState::Connected && granted.status(session) == Status::Live
        };
        loop {
            let offer = self.queue.lock().offer(batch, is_next, now, is_good);
            let Offer::To { waiter, place: mut granted, turn } = offer else {
                self.changed.notify_one();
                return if let Offer::GiveUp(granted) = offer { Some(granted) } else { None };
            };
            granted.fencing_token = granted.fencing_token.with_turn(turn);
            // A waiter that was cancelled meanwhile does not take it.
            if waiter.sender.send(Ok(Turn { cohort: self.clone(), batch, granted })).is_ok() {
                return None;
            }
            is_next = false;
        }
    }

    /// Ends a batch whose place is lost, so that its turn is not passed on.
    pub(crate) fn abandon(&self, number: u64) {
        // Dropped outside the lock: that may wake another waiter.
        let _place = self.queue.lock().abandon(number);
    }

    /// Ends the wait of all waiters with an error.
    pub(crate) fn fail(&self, error: &Error) {
        let waiters = self.queue.lock().fail();
        for waiter in waiters.into_values() {
            // The waiter may have been cancelled.
            drop(waiter.sender.send(Err(error.clone())));
        }
    }

    /// Records that a driver has ended. Unless it had nothing to do, the waiters receive an error.
    pub(crate) fn driver_gone(&self, driver: u64) {
        let _unserved = self.queue.lock().driver_gone(driver);
    }
}

impl Turn {
    /// Passes the turn on to the next local waiter, if the batch goes on.
    pub(crate) fn pass_on(self) -> Ended {
        match self.cohort.next_turn(self.batch) {
            Some(_) => Ended::GiveUp,
            None => Ended::PassedOn,
        }
    }

    /// Ends the turn without using a clock. The driver passes it on.
    pub(crate) fn leave(self) -> Ended {
        let given_up = self.cohort.queue.lock().leave_turn(self.batch);
        self.cohort.changed.notify_one();
        if given_up.is_some() { Ended::GiveUp } else { Ended::PassedOn }
    }

    /// Makes this the last turn of its batch: the holder was asked to release the lock, or has found that its node is
    /// deleted.
    pub(crate) fn make_last(&self) {
        self.cohort.queue.lock().end(self.batch);
    }
}
