//! The outcome of a tick.

use std::convert::Infallible;
use std::ops::Deref;

use crate::guard::context::LockContext;
use crate::job::record::Run;
use crate::job::tick::Tick;

/// The outcome of [`RecurringJob::run`](super::RecurringJob::run) for one tick. `R` is what the closure returns.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "says whether the job ran"]
pub enum Outcome<R> {
    /// This call ran the job, which returned this result, and the record says so.
    Ran(R),
    /// The tick has run, here or elsewhere, or a later one has begun. Has the last run.
    AlreadyRan(Run),
    /// Another process runs this tick, or an earlier one. Has that run.
    Running(Run),
    /// The tick has no attempts left: the last one failed, or its process died. Has the last run.
    GaveUp(Run),
    /// The tick is so much later than the last one that this machine's clock may be wrong, so it was not run yet. Has the last run, with
    /// a note of the time. See [`RecurringJob::period`](super::RecurringJob::period).
    Doubted(Run),
}

impl Outcome<Infallible> {
    /// Returns the outcome of a tick that was not run, for a closure of any type.
    pub(crate) fn of<R>(self) -> Outcome<R> {
        match self {
            Outcome::Ran(never) => match never {},
            Outcome::AlreadyRan(run) => Outcome::AlreadyRan(run),
            Outcome::Running(run) => Outcome::Running(run),
            Outcome::GaveUp(run) => Outcome::GaveUp(run),
            Outcome::Doubted(run) => Outcome::Doubted(run),
        }
    }
}

/// A run of a job, as its closure sees it. Derefs to the [`LockContext`] of the job's lock, which has the fencing token.
#[derive(Clone, Debug)]
pub struct JobContext {
    lock: LockContext,
    tick: Tick,
    attempt: u32,
}

impl JobContext {
    pub(crate) fn new(lock: LockContext, tick: Tick, attempt: u32) -> Self {
        JobContext { lock, tick, attempt }
    }

    /// Returns the tick that the run is for.
    #[must_use]
    pub fn tick(&self) -> Tick {
        self.tick
    }

    /// Returns the number of the attempt, starting at 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

impl Deref for JobContext {
    type Target = LockContext;

    fn deref(&self) -> &LockContext {
        &self.lock
    }
}
