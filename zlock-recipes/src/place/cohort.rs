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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use zlock_core::{DeletionNotice, Error, LastFailure, LockPath, Result, SessionEvents, SessionState};

use crate::place::granted::Granted;
use crate::queue::Status;

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

    /// Returns the end of a batch that begins now. `None` if the instant is out of range: then there is no time limit.
    fn until(self) -> Option<Instant> {
        Instant::now().checked_add(self.within)
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
    state: Mutex<State>,
    /// Notifies the driver.
    changed: Notify,
    /// The last failure of the store in the driver's requests.
    pub(crate) failure: LastFailure,
}

#[derive(Debug, Default)]
struct State {
    /// Ordered by arrival.
    waiters: BTreeMap<u64, Waiter>,
    arrivals: u64,
    batch: Option<Batch>,
    batches: u64,
    /// The place of the previous batch, which is given up once the next place is queued.
    leftover: Option<Granted>,
    /// Set whenever there are waiters.
    driver: Option<u64>,
    drivers: u64,
    /// `true` if the place that the driver is acquiring has been created, or if the waiters were behind the previous one: they
    /// keep their places while the session lives.
    is_queued: bool,
}

#[derive(Debug)]
struct Waiter {
    data: Arc<[u8]>,
    sender: oneshot::Sender<Result<Turn>>,
}

/// A sequence of turns in one place.
#[derive(Debug)]
struct Batch {
    number: u64,
    /// With the fencing token of the present turn.
    granted: Granted,
    until: Option<Instant>,
    /// `true` if a holder has the turn.
    in_use: bool,
    ends: bool,
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
    Watch { batch: u64, epoch: u64, deletion: DeletionNotice },
    /// Remove the node of a place without waiters.
    GiveUp(Granted),
    /// Nothing. From here on, there is no driver.
    Done,
}

/// A waiter's place in the local queue.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) number: u64,
    pub(crate) turn: oneshot::Receiver<Result<Turn>>,
    /// The driver that the caller must start.
    pub(crate) driver: Option<u64>,
}

impl Cohorts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(LockPath, Handoff), Weak<Cohort>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the queue of a lock, if it has users.
    pub(crate) fn find(&self, path: &LockPath, handoff: Handoff) -> Option<Arc<Cohort>> {
        self.lock().get(&(path.clone(), handoff)).and_then(Weak::upgrade)
    }

    /// Returns the queue of a lock.
    pub(crate) fn get(
        self: &Arc<Self>,
        path: &LockPath,
        handoff: Handoff,
        session: &SessionEvents,
    ) -> Arc<Cohort> {
        let mut cohorts = self.lock();
        let cohort = cohorts.entry((path.clone(), handoff)).or_default();
        cohort.upgrade().unwrap_or_else(|| {
            let new = Arc::new(Cohort {
                all: self.clone(),
                path: path.clone(),
                handoff,
                session: session.clone(),
                state: Mutex::default(),
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
        let mut cohorts = self.all.lock();
        let key = (self.path.clone(), self.handoff);
        // Another queue may have replaced it meanwhile.
        if cohorts.get(&key).is_some_and(|cohort| cohort.strong_count() == 0) {
            cohorts.remove(&key);
        }
    }
}

impl Cohort {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn path(&self) -> &LockPath {
        &self.path
    }

    /// Appends a waiter.
    pub(crate) fn join(&self, data: &Arc<[u8]>) -> Joined {
        let (sender, turn) = oneshot::channel();
        let mut state = self.lock();
        let number = state.arrivals;
        state.arrivals += 1;
        state.waiters.insert(number, Waiter { data: data.clone(), sender });
        let driver = state.driver.is_none().then_some(state.drivers);
        if driver.is_some() {
            state.is_queued = false;
            state.driver = driver;
            state.drivers += 1;
        }
        Joined { number, turn, driver }
    }

    /// Removes a waiter.
    pub(crate) fn leave(&self, number: u64) {
        // Dropped outside the lock: that may wake the waiter's task.
        let (waiter, is_empty) = {
            let mut state = self.lock();
            (state.waiters.remove(&number), state.waiters.is_empty())
        };
        if waiter.is_some() && is_empty {
            self.changed.notify_one();
        }
    }

    /// Returns `true` if a local holder or waiter has the lock's place.
    pub(crate) fn is_taken(&self) -> bool {
        let session = self.session.current();
        let state = self.lock();
        let is_live = |granted: &Granted| granted.status(session) == Status::Live;
        let is_held = state.batch.as_ref().is_some_and(|batch| is_live(&batch.granted));
        is_held || state.leftover.as_ref().is_some_and(is_live) || !state.waiters.is_empty()
    }

    /// Returns `true` if the waiters have a place in the store's queue.
    pub(crate) fn is_queued(&self) -> bool {
        let state = self.lock();
        state.is_queued || state.batch.is_some() || state.leftover.is_some()
    }

    /// Records whether the driver's place has been created.
    pub(crate) fn set_queued(&self, is_queued: bool) {
        self.lock().is_queued = is_queued;
    }

    /// Returns the driver's next task.
    pub(crate) fn work(self: &Arc<Self>) -> Work {
        loop {
            let ended = {
                let mut state = self.lock();
                match &state.batch {
                    Some(batch) if batch.in_use && !state.waiters.is_empty() => {
                        let Granted { epoch, deletion, .. } = &batch.granted;
                        return Work::Watch {
                            batch: batch.number,
                            epoch: *epoch,
                            deletion: deletion.clone(),
                        };
                    }
                    Some(batch) if !batch.in_use => batch.number,
                    None if !state.waiters.is_empty() => {
                        // Waiters behind the previous batch were queued all the time.
                        state.is_queued |= state.leftover.is_some();
                        let data = state.waiters.values().next().map(|waiter| waiter.data.clone());
                        return Work::Acquire {
                            data: data.unwrap_or_default(),
                            leftover: state.leftover.take(),
                        };
                    }
                    _ => {
                        if let Some(leftover) = state.leftover.take() {
                            return Work::GiveUp(leftover);
                        }
                        state.driver = None;
                        return Work::Done;
                    }
                }
            };
            if let Some(granted) = self.next_turn(ended) {
                return Work::GiveUp(granted);
            }
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
            if self.lock().waiters.is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Begins a batch with its first turn. Returns the grant if there is no waiter.
    pub(crate) fn begin(self: &Arc<Self>, granted: Granted) -> Option<Granted> {
        let number = {
            let mut state = self.lock();
            let number = state.batches;
            state.batches += 1;
            state.is_queued = false;
            let until = self.handoff.until();
            state.batch = Some(Batch { number, granted, until, in_use: false, ends: false });
            number
        };
        self.offer(number, |_| true)
    }

    /// Gives the next turn of a batch to the first waiter, if the batch goes on. If it does not, its place becomes the
    /// driver's leftover. Returns the grant if there is no waiter: then its node must be removed.
    fn next_turn(self: &Arc<Self>, batch: u64) -> Option<Granted> {
        let (session, now) = (self.session.current(), Instant::now());
        let Handoff { at_most, .. } = self.handoff;
        let mut before = None;
        self.offer(batch, |batch| {
            // The turn keeps its number until a waiter takes it.
            let turn = *before.get_or_insert(batch.granted.fencing_token.turn());
            let goes_on = !batch.ends
                && turn < at_most
                && batch.until.is_none_or(|until| now < until)
                && session.state == SessionState::Connected
                && batch.granted.status(session) == Status::Live;
            if goes_on {
                batch.granted.fencing_token = batch.granted.fencing_token.with_turn(turn + 1);
            }
            goes_on
        })
    }

    fn offer(self: &Arc<Self>, number: u64, mut goes_on: impl FnMut(&mut Batch) -> bool) -> Option<Granted> {
        loop {
            let (waiter, turn) = {
                let mut state = self.lock();
                let state = &mut *state;
                let batch = state.batch.as_mut().filter(|batch| batch.number == number)?;
                batch.in_use = false;
                if state.waiters.is_empty() {
                    self.changed.notify_one();
                    return state.batch.take().map(|batch| batch.granted);
                }
                if !goes_on(batch) {
                    self.changed.notify_one();
                    state.leftover = state.batch.take().map(|batch| batch.granted);
                    return None;
                }
                let (_, waiter) = state.waiters.pop_first()?;
                batch.in_use = true;
                let granted = batch.granted.clone();
                (waiter, Turn { cohort: self.clone(), batch: number, granted })
            };
            // A waiter that was cancelled meanwhile does not take it.
            if waiter.sender.send(Ok(turn)).is_ok() {
                return None;
            }
        }
    }

    /// Ends a batch whose place is lost, so that its turn is not passed on.
    pub(crate) fn abandon(&self, number: u64) {
        // Dropped outside the lock: that may wake another waiter.
        let _batch = { self.lock().batch.take_if(|batch| batch.number == number) };
    }

    /// Ends the wait of all waiters with an error.
    pub(crate) fn fail(&self, error: &Error) {
        let waiters = {
            let mut state = self.lock();
            state.is_queued = false;
            std::mem::take(&mut state.waiters)
        };
        for waiter in waiters.into_values() {
            // The waiter may have been cancelled.
            drop(waiter.sender.send(Err(error.clone())));
        }
    }

    /// Records that a driver has ended. Unless it had nothing to do, the waiters receive an error.
    pub(crate) fn driver_gone(&self, driver: u64) {
        let _unserved = {
            let mut state = self.lock();
            let is_gone = state.driver.take_if(|current| *current == driver).is_some();
            is_gone.then(|| std::mem::take(&mut state.waiters))
        };
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
        let mut state = self.cohort.lock();
        let state = &mut *state;
        let Some(batch) = state.batch.as_mut().filter(|batch| batch.number == self.batch) else {
            return Ended::PassedOn;
        };
        batch.in_use = false;
        let is_last = state.waiters.is_empty();
        if is_last {
            state.batch = None;
        }
        self.cohort.changed.notify_one();
        if is_last { Ended::GiveUp } else { Ended::PassedOn }
    }

    /// Makes this the last turn of its batch: the holder was asked to release the lock, or has found that its node is
    /// deleted.
    pub(crate) fn is_last(&self) {
        if let Some(batch) = &mut self.cohort.lock().batch
            && batch.number == self.batch
        {
            batch.ends = true;
        }
    }
}
