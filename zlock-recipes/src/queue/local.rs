//! The local queue of a client's waiters that share one place in the store, as a pure state machine: see `cohort.rs`.

use std::collections::BTreeMap;

use tokio::time::Instant;

/// The local queue of one lock. `W` is what a waiter leaves here, and `P` is a place in the store's queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalQueue<W, P> {
    /// Ordered by arrival.
    waiters: BTreeMap<u64, W>,
    arrivals: u64,
    batch: Option<Batch<P>>,
    batches: u64,
    /// The place of the previous batch, which is given up once the next place is queued.
    leftover: Option<P>,
    /// Set whenever there are waiters.
    driver: Option<u64>,
    drivers: u64,
    /// `true` if the place that the driver is acquiring has been created, or if the waiters were behind the previous one: they
    /// keep their places while the session lives.
    is_queued: bool,
}

/// A sequence of turns in one place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Batch<P> {
    number: u64,
    place: P,
    bounds: Bounds,
    /// The number of the turn that is in use or on offer.
    turn: u32,
    /// `true` if a holder has the turn.
    in_use: bool,
    ends: bool,
}

/// The bounds of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// When its last turn begins at the latest. `None` for no time limit.
    pub until: Option<Instant>,
    /// The number of turns after the first one.
    pub at_most: u32,
}

/// The result of [`LocalQueue::join`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The waiter's number.
    pub number: u64,
    /// The driver that the caller must start.
    pub driver: Option<u64>,
}

/// What happens to the turn of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Offer<W, P> {
    /// This waiter has it. If the waiter was cancelled meanwhile, the turn must be [offered again](LocalQueue::offer).
    To {
        /// The waiter, which is no longer in the queue.
        waiter: W,
        /// The place of the batch.
        place: P,
        /// The number of the turn, from 0.
        turn: u32,
    },
    /// There is no waiter. The caller must remove the place's node.
    GiveUp(P),
    /// The batch is over. Its place, unless it is lost, is the driver's leftover.
    Over,
}

/// The next task of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task<W, P> {
    /// Acquire a place, with what the first waiter has left here. Give up the leftover once the new place is queued.
    Acquire {
        /// The first waiter.
        first: W,
        /// The place of the previous batch.
        leftover: Option<P>,
    },
    /// Wait until the place of this batch is lost, or until the queue has changed.
    Watch {
        /// The number of the batch.
        batch: u64,
        /// The place of the batch.
        place: P,
    },
    /// Pass on the turn of this batch, which was ended by [`LocalQueue::leave_turn`].
    PassOn(u64),
    /// Remove the node of a place without waiters.
    GiveUp(P),
    /// Nothing. From here on, there is no driver.
    Done,
}

impl<W, P> Default for LocalQueue<W, P> {
    fn default() -> Self {
        LocalQueue {
            waiters: BTreeMap::new(),
            arrivals: 0,
            batch: None,
            batches: 0,
            leftover: None,
            driver: None,
            drivers: 0,
            is_queued: false,
        }
    }
}

impl<W, P: Clone> LocalQueue<W, P> {
    /// Appends a waiter.
    pub fn join(&mut self, waiter: W) -> Arrival {
        let number = self.arrivals;
        self.arrivals += 1;
        self.waiters.insert(number, waiter);
        let driver = self.driver.is_none().then_some(self.drivers);
        if driver.is_some() {
            self.is_queued = false;
            self.driver = driver;
            self.drivers += 1;
        }
        Arrival { number, driver }
    }

    /// Removes a waiter.
    pub fn leave(&mut self, number: u64) -> Option<W> {
        self.waiters.remove(&number)
    }

    /// Returns `true` if there are waiters.
    pub fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Returns `true` if a holder or waiter has the lock's place.
    pub fn is_taken(&self, is_live: impl Fn(&P) -> bool) -> bool {
        let is_held = self.batch.as_ref().is_some_and(|batch| is_live(&batch.place));
        is_held || self.leftover.as_ref().is_some_and(is_live) || self.has_waiters()
    }

    /// Returns `true` if the waiters have a place in the store's queue.
    pub fn is_queued(&self) -> bool {
        self.is_queued || self.batch.is_some() || self.leftover.is_some()
    }

    /// Records whether the driver's place has been created.
    pub fn set_queued(&mut self, is_queued: bool) {
        self.is_queued = is_queued;
    }

    /// Returns the driver's next task. `copy` is called with the first waiter.
    pub fn task<C>(&mut self, copy: impl FnOnce(&W) -> C) -> Task<C, P> {
        match (&self.batch, self.waiters.values().next()) {
            (Some(Batch { in_use: false, number, .. }), _) => Task::PassOn(*number),
            (Some(Batch { number, place, .. }), Some(_)) => {
                Task::Watch { batch: *number, place: place.clone() }
            }
            (None, Some(first)) => {
                // Waiters behind the previous batch were queued all the time.
                self.is_queued |= self.leftover.is_some();
                Task::Acquire { first: copy(first), leftover: self.leftover.take() }
            }
            (_, None) => match self.leftover.take() {
                Some(leftover) => Task::GiveUp(leftover),
                None => {
                    self.driver = None;
                    Task::Done
                }
            },
        }
    }

    /// Begins a batch, whose first turn must be [offered](Self::offer). Returns its number.
    pub fn begin(&mut self, place: P, bounds: Bounds) -> u64 {
        let number = self.batches;
        self.batches += 1;
        self.is_queued = false;
        self.batch = Some(Batch { number, place, bounds, turn: 0, in_use: false, ends: false });
        number
    }

    /// Gives the turn of a batch to the first waiter: the next one if `is_next`, because the current one has ended. The first
    /// turn depends on nothing else. A later one needs that the batch goes on, and a place that `is_good`: its session is
    /// connected, and neither the session nor the node is known to be lost.
    pub fn offer(
        &mut self,
        batch: u64,
        is_next: bool,
        now: Instant,
        is_good: impl Fn(&P) -> bool,
    ) -> Offer<W, P> {
        let Some(mut batch) = self.batch.take_if(|current| current.number == batch) else {
            return Offer::Over;
        };
        match batch.turn.checked_add(u32::from(is_next)) {
            Some(turn) => batch.turn = turn,
            None => batch.ends = true,
        }
        let Bounds { until, at_most } = batch.bounds;
        let in_bounds = batch.turn <= at_most && until.is_none_or(|until| now < until);
        let goes_on = batch.turn == 0 || in_bounds && !batch.ends && is_good(&batch.place);
        if self.waiters.is_empty() {
            return Offer::GiveUp(batch.place);
        }
        let next = if goes_on { self.waiters.pop_first() } else { None };
        let Some((_, waiter)) = next else {
            self.leftover = Some(batch.place);
            return Offer::Over;
        };
        let (place, turn) = (batch.place.clone(), batch.turn);
        batch.in_use = true;
        self.batch = Some(batch);
        Offer::To { waiter, place, turn }
    }

    /// Ends a turn without a clock: the driver passes it on. Returns the place if there is no waiter: then its node must be
    /// removed.
    pub fn leave_turn(&mut self, batch: u64) -> Option<P> {
        let current = self.batch.as_mut().filter(|current| current.number == batch)?;
        current.in_use = false;
        if self.has_waiters() { None } else { self.abandon(batch) }
    }

    /// Makes the current turn of a batch its last one.
    pub fn end(&mut self, batch: u64) {
        if let Some(batch) = self.batch.as_mut().filter(|current| current.number == batch) {
            batch.ends = true;
        }
    }

    /// Ends a batch whose place is lost, so that its turn is not passed on. Returns the place.
    pub fn abandon(&mut self, batch: u64) -> Option<P> {
        Some(self.batch.take_if(|current| current.number == batch)?.place)
    }

    /// Removes all waiters, because there was no place to acquire.
    pub fn fail(&mut self) -> BTreeMap<u64, W> {
        self.is_queued = false;
        std::mem::take(&mut self.waiters)
    }

    /// Records that a driver has ended. Unless it had nothing to do, returns the waiters, which it does not serve any more.
    pub fn driver_gone(&mut self, driver: u64) -> BTreeMap<u64, W> {
        match self.driver.take_if(|current| *current == driver) {
            Some(_) => std::mem::take(&mut self.waiters),
            None => BTreeMap::new(),
        }
    }
}
