//! Admission: how many creates and clean-ups of a client are in flight at once.
//!
//! A store that gets more requests than it can serve answers all of them late. An acquisition with a time limit then gives up
//! its create, which costs the store a create and a delete for nothing. So a create has to be admitted, and an acquisition that runs
//! out of time while it waits for one has sent nothing.
//!
//! | rule | why |
//! |---|---|
//! | the limit grows slowly while creates are answered, and falls by 30 % when one was given up after the time that an answer takes | it finds what the store can serve |
//! | clean-ups come first | a create is begun only if no clean-up waits, so the clean-ups that are pending do not grow |
//! | a create that was given up counts until its node is gone | otherwise one acquisition after another would begin one in vain |
//! | creates never keep a clean-up waiting | a clean-up is what makes room |
//! | no create begins with less time left than an answer recently took, unless no other is in flight | it would be in vain; a single one measures again |
//! | a create in flight for much longer than an answer takes does not count | the server may be silent, or the future may not be polled |
//!
//! Otherwise it is first come, first served. If there is room, a request is admitted without waiting and without an allocation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use zlock_core::Mutex;

const FEWEST: f64 = 4.0;
const MOST: f64 = 256.0;
const AT_FIRST: f64 = 64.0;

/// What is added to the limit for each answered create, besides one for each round.
const GROWTH: f64 = 0.05;

/// What remains of the limit when a create was late.
const REDUCED: f64 = 0.7;

/// The minimum time for which a create without an answer counts.
const SILENT: Duration = Duration::from_secs(1);

/// The time after which a create that was given up no longer counts although its node may still exist.
const STUCK: Duration = Duration::from_secs(15);

/// The weight of all answers before the last one.
const MEMORY: u32 = 7;

/// The requests of a client that are in flight, and those that wait to be.
#[derive(Debug)]
pub(crate) struct Admission(Mutex<State>);

#[derive(Debug)]
struct State {
    limit: f64,
    /// When the limit was last reduced.
    reduced: Option<Instant>,
    /// The time that an answer to a create takes: the slowest recent one, and less with each faster one after it.
    answer: Duration,
    creates: Creates,
    /// Creates that were given up and whose nodes may exist.
    abandoned: usize,
    cleanups: usize,
    waiting: BTreeMap<(Rank, u64), Waiter>,
    /// The number of the next waiter.
    next: u64,
}

/// Those in flight. Counted by when they began, so that old ones can be left out.
#[derive(Debug, Default)]
struct Creates {
    /// `generation` began at this time.
    since: Option<Instant>,
    generation: u64,
    /// Begun in this generation, and in the one before.
    counts: [usize; 2],
}

#[derive(Debug)]
struct Waiter {
    deadline: Option<Instant>,
    sender: oneshot::Sender<Admitted>,
}

/// The order of waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    CleanUp,
    Create,
    /// A create with too little time left. The one with the most time left comes first.
    Late,
}

/// Permission to send a create or a clean-up. Returned when it is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    admission: Arc<Admission>,
    began: Instant,
    used: Use,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    CleanUp,
    /// With its generation.
    Create(u64),
    Abandoned,
}

impl Default for Admission {
    fn default() -> Self {
        Admission(Mutex::new(State {
            limit: AT_FIRST,
            reduced: None,
            answer: Duration::ZERO,
            creates: Creates::default(),
            abandoned: 0,
            cleanups: 0,
            waiting: BTreeMap::new(),
            next: 0,
        }))
    }
}

impl Admission {
    /// Admits a create if there is room. `deadline` is the end of the acquisition's time, if that is limited.
    pub(crate) fn create_now(self: &Arc<Self>, deadline: Option<Instant>) -> Option<Admitted> {
        self.take(Rank::Create, deadline)
    }

    /// Waits until a create is admitted.
    ///
    /// # Cancel safety
    /// Safe, but the caller loses its place in the order.
    pub(crate) async fn create(self: &Arc<Self>, deadline: Option<Instant>) -> Admitted {
        self.wait(Rank::Create, deadline).await
    }

    /// Waits until a clean-up is admitted.
    ///
    /// # Cancel safety
    /// Safe, but the caller loses its place in the order.
    pub(crate) async fn clean_up(self: &Arc<Self>) -> Admitted {
        match self.take(Rank::CleanUp, None) {
            Some(admitted) => admitted,
            None => self.wait(Rank::CleanUp, None).await,
        }
    }

    fn take(self: &Arc<Self>, rank: Rank, deadline: Option<Instant>) -> Option<Admitted> {
        let now = Instant::now();
        let mut state = self.0.lock();
        state.advance(now);
        let is_first = state.waiting.keys().next().is_none_or(|(first, _)| *first > rank);
        let is_free = is_first && state.has_room(rank) && state.is_in_time(rank, deadline, now, state.answer);
        is_free.then(|| self.admit(state.begin(rank), now))
    }

    async fn wait(self: &Arc<Self>, rank: Rank, deadline: Option<Instant>) -> Admitted {
        let mut waiting = Waiting::new(self, rank, deadline);
        loop {
            // There may be room since the last look, or by the time that passes.
            self.pass_on();
            let silent = self.0.lock().silent();
            if let Ok(Ok(admitted)) = timeout(silent, &mut waiting.admitted).await {
                return admitted;
            }
        }
    }

    fn admit(self: &Arc<Self>, used: Use, began: Instant) -> Admitted {
        Admitted { admission: self.clone(), began, used }
    }

    /// Admits those who wait as long as there is room.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let (now, next) = {
                let mut state = self.0.lock();
                if state.waiting.is_empty() {
                    return;
                }
                let now = Instant::now();
                state.advance(now);
                (now, state.next(now))
            };
            let Some((used, waiter)) = next else { return };
            // Outside the mutex: an admission whose receiver has just been dropped ends at once.
            drop(waiter.sender.send(self.admit(used, now)));
        }
    }
}

impl State {
    fn silent(&self) -> Duration {
        SILENT.max(2 * self.answer)
    }

    fn advance(&mut self, now: Instant) {
        let silent = self.silent();
        self.creates.advance(now, silent);
    }

    fn has_room(&self, rank: Rank) -> bool {
        let limit = self.limit as usize;
        let creates = self.creates.count() + self.abandoned;
        match rank {
            Rank::CleanUp => self.cleanups < limit,
            Rank::Create | Rank::Late => creates + self.cleanups < limit,
        }
    }

    /// Returns `true` if that much time is left before the deadline, or if there is nothing to expect an answer by.
    fn is_in_time(&self, rank: Rank, deadline: Option<Instant>, now: Instant, needed: Duration) -> bool {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
        rank == Rank::CleanUp
            || self.creates.count() + self.abandoned == 0
            || left.is_none_or(|left| left >= needed)
    }

    fn begin(&mut self, rank: Rank) -> Use {
        if rank == Rank::CleanUp {
            self.cleanups += 1;
            return Use::CleanUp;
        }
        self.creates.counts[0] += 1;
        Use::Create(self.creates.generation)
    }

    fn end(&mut self, used: Use) {
        match used {
            Use::CleanUp => self.cleanups -= 1,
            Use::Create(generation) => self.creates.end(generation),
            Use::Abandoned => self.abandoned -= 1,
        }
    }

    /// Admits the first waiter that may begin.
    fn next(&mut self, now: Instant) -> Option<(Use, Waiter)> {
        loop {
            let &(rank, mut number) = self.waiting.keys().next()?;
            if rank == Rank::Late {
                number = self.waiting.keys().next_back()?.1;
            }
            let deadline = self.waiting.get(&(rank, number))?.deadline;
            // With a reserve: those who have waited longest are first, and all of them have little time left.
            let is_in_time = self.is_in_time(rank, deadline, now, self.answer * 3 / 2);
            if !self.has_room(rank) || rank == Rank::Late && !is_in_time {
                return None;
            }
            let waiter = self.waiting.remove(&(rank, number))?;
            if is_in_time {
                return Some((self.begin(rank), waiter));
            }
            self.waiting.insert((Rank::Late, number), waiter);
        }
    }

    fn answered(&mut self, took: Duration) {
        self.answer = if took > self.answer { took } else { (self.answer * MEMORY + took) / (MEMORY + 1) };
        // Only if it is the limit that keeps creates from being begun.
        if (self.creates.count() + self.abandoned + self.cleanups) as f64 * 2.0 >= self.limit {
            self.limit = (self.limit + 1.0 / self.limit + GROWTH).min(MOST);
        }
    }

    /// Reduces the limit, at most once for all creates that were in flight together.
    fn late(&mut self, began: Instant, now: Instant) {
        let is_known = self.reduced.is_some_and(|reduced| began < reduced);
        if !is_known && now.saturating_duration_since(began) >= self.answer {
            self.limit = (self.limit * REDUCED).max(FEWEST);
            self.reduced = Some(now);
        }
    }
}

impl Creates {
    fn count(&self) -> usize {
        self.counts[0] + self.counts[1]
    }

    /// Begins the next generation if this one is over.
    fn advance(&mut self, now: Instant, length: Duration) {
        let since = *self.since.get_or_insert(now);
        let age = now.saturating_duration_since(since);
        if age < length {
            return;
        }
        let is_long_over = age >= 2 * length;
        self.counts = [0, if is_long_over { 0 } else { self.counts[0] }];
        self.generation += if is_long_over { 2 } else { 1 };
        self.since = Some(now);
    }

    fn end(&mut self, generation: u64) {
        if let Some(count) = self.counts.get_mut((self.generation - generation) as usize) {
            *count -= 1;
        }
    }
}

impl Admitted {
    /// Ends the admission of a create that was answered.
    pub(crate) fn answered(self) {
        let took = self.began.elapsed();
        self.admission.0.lock().answered(took);
    }

    /// Keeps counting a create that was given up, until its node is gone.
    pub(crate) fn abandon(&mut self) {
        if self.used == Use::Abandoned {
            return;
        }
        let now = Instant::now();
        let mut state = self.admission.0.lock();
        state.late(self.began, now);
        state.end(self.used);
        state.abandoned += 1;
        self.used = Use::Abandoned;
    }

    /// Returns `true` if the create was begun so long ago that its clean-up must not keep others waiting.
    pub(crate) fn is_stuck(&self) -> bool {
        self.began.elapsed() >= STUCK
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.admission.0.lock().end(self.used);
        self.admission.pass_on();
    }
}

/// A place in the order, which is given up when this is dropped.
struct Waiting<'a> {
    admission: &'a Admission,
    rank: Rank,
    number: u64,
    admitted: oneshot::Receiver<Admitted>,
}

impl<'a> Waiting<'a> {
    fn new(admission: &'a Admission, rank: Rank, deadline: Option<Instant>) -> Self {
        let (sender, admitted) = oneshot::channel();
        let mut state = admission.0.lock();
        let number = state.next;
        state.next += 1;
        state.waiting.insert((rank, number), Waiter { deadline, sender });
        Waiting { admission, rank, number, admitted }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.admission.0.lock();
        let waiter = state.waiting.remove(&(self.rank, self.number));
        let late = state.waiting.remove(&(Rank::Late, self.number));
        drop(state);
        drop((waiter, late));
    }
}

#[cfg(test)]
mod tests;
