//! Work that outlives its caller, run by the backend on its own runtime.
//!
//! A job keeps its backend alive only while there is a task that runs it, since the backend keeps the list of jobs.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Debug;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

use crate::contract::backend::CoordinationBackend;

/// The pause before a job that panicked is run again.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// Work for a [`Background`].
#[async_trait]
pub trait Job: Debug + Send + Sync + 'static {
    /// Does the work, retrying until it is done or no longer needed. `backend` is the one that the job was pushed with.
    ///
    /// All jobs run concurrently. After an outage there may be thousands, so those that send requests to the store
    /// must limit how many do so at once.
    ///
    /// # Cancel safety
    /// The future may be dropped at any await point when its runtime ends. The job is then run again from the
    /// beginning, so its work must be idempotent.
    async fn run(&self, backend: &dyn CoordinationBackend);
}

/// The jobs that a backend runs in the background, each in a separate task. Cheap to clone.
///
/// The backend's own task polls [`run`](Self::run), so jobs run on the runtime that the backend lives on, whatever
/// runtime or thread they were pushed from.
#[derive(Clone, Debug, Default)]
pub struct Background(Arc<Jobs>);

#[derive(Debug, Default)]
struct Jobs {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Entry>,
    /// Jobs taken from `waiting` and not done yet, of those that count.
    active: usize,
    /// The number of running calls of `run`.
    runners: usize,
    closed: bool,
}

/// A job, and the backend that it works with.
#[derive(Debug)]
struct Entry {
    job: Box<dyn Job>,
    backend: Weak<dyn CoordinationBackend>,
    /// Keeps the backend alive while the jobs are run, and not longer, because the backend owns this list.
    kept: Option<Arc<dyn CoordinationBackend>>,
    /// `true` if the last run panicked.
    panicked: bool,
    /// `false` for work that lasts as long as something else, and is not to be waited for.
    counts: bool,
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, entry: Entry, side: Side) {
        let mut entry = Some(entry);
        // Dropped outside the mutex, because the last handle of a backend closes this list.
        let _dropped = {
            let mut state = self.lock();
            if side == Side::Front && entry.as_ref().is_some_and(|entry| entry.counts) {
                state.active -= 1;
            }
            let dropped = state.let_go(&mut entry);
            match side {
                Side::Front => entry.into_iter().for_each(|entry| state.waiting.push_front(entry)),
                Side::Back => state.waiting.extend(entry),
            }
            dropped
        };
        self.changed.notify_one();
    }
}

impl State {
    /// Takes from a job what it must not keep while it waits in the list.
    fn let_go(&self, entry: &mut Option<Entry>) -> (Option<Entry>, Option<Arc<dyn CoordinationBackend>>) {
        match entry {
            _ if self.closed => (entry.take(), None),
            Some(entry) if self.runners == 0 => (None, entry.kept.take()),
            _ => (None, None),
        }
    }
}

/// The position at which a job is added.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// For a job that was running.
    Front,
    /// For a new job.
    Back,
}

impl Background {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a job, or drops it if the list is [closed](Self::close).
    ///
    /// Never blocks or spawns, and needs neither a runtime nor a clock: it may be called from any thread, while
    /// unwinding, and in the destructor of a thread-local.
    ///
    /// `backend` is kept until the job is done, the list is closed, or the runtime that ran the jobs has ended.
    pub fn push(&self, backend: Arc<dyn CoordinationBackend>, job: impl Job) {
        self.push_entry(backend, job, true);
    }

    /// Adds a job as [`push`](Self::push) does, which lasts as long as something that its owner holds. It is run and ended in the
    /// same way, but it is no work that remains to be done: [`len`](Self::len) does not count it.
    pub fn push_lasting(&self, backend: Arc<dyn CoordinationBackend>, job: impl Job) {
        self.push_entry(backend, job, false);
    }

    fn push_entry(&self, backend: Arc<dyn CoordinationBackend>, job: impl Job, counts: bool) {
        let (job, kept) = (Box::new(job), Some(backend.clone()));
        let entry = Entry { job, backend: Arc::downgrade(&backend), kept, panicked: false, counts };
        self.0.add(entry, Side::Back);
    }

    /// Returns the number of jobs that are not done yet.
    #[must_use]
    pub fn len(&self) -> usize {
        let state = self.0.lock();
        state.waiting.iter().filter(|entry| entry.counts).count() + state.active
    }

    /// Returns `true` if all jobs are done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all jobs, now and from now on. A backend calls it when its last session has ended.
    pub fn close(&self) {
        let _dropped = {
            let mut state = self.0.lock();
            state.closed = true;
            take(&mut state.waiting)
        };
    }

    /// Runs the jobs concurrently as tasks of the runtime that polls the future, starting them in the order in which
    /// they were pushed. The future never completes. Jobs keep their backends from this call until it is dropped.
    ///
    /// A job is orphaned if the runtime that ran the jobs ended, and the handle that it was pushed with was dropped
    /// before this call. Only the end of the session can then have the job's effect, so this call drops the job and
    /// calls `lose`, which must report the backend's current session as lost.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the jobs that are not done; the next call runs them again.
    pub fn run(&self, lose: &dyn Fn()) -> impl Future<Output = Infallible> + Send + use<> {
        let (runner, orphans) = Runner::new(self.0.clone());
        if !orphans.is_empty() {
            lose();
        }
        async move { runner.run().await }
    }
}

/// A call of `run`. While one exists, jobs keep their backends alive.
struct Runner(Arc<Jobs>);

impl Runner {
    /// Also returns the orphaned jobs. From then on, no other job can become one.
    fn new(jobs: Arc<Jobs>) -> (Self, VecDeque<Entry>) {
        let orphans = {
            let mut state = jobs.lock();
            state.runners += 1;
            for entry in &mut state.waiting {
                entry.kept = entry.backend.upgrade();
            }
            let (kept, orphans) =
                take(&mut state.waiting).into_iter().partition(|entry| entry.kept.is_some());
            state.waiting = kept;
            orphans
        };
        (Runner(jobs), orphans)
    }

    async fn run(&self) -> Infallible {
        let mut tasks = JoinSet::new();
        loop {
            while let Some(active) = self.take() {
                // A runtime that is ending cancels the task at once, and the job is back in the list. The runtime can only
                // end when this future yields.
                if tasks.spawn(active.run()).is_finished() {
                    yield_now().await;
                }
            }
            tokio::select! {
                biased;
                Some(_) = tasks.join_next() => {}
                () = self.0.changed.notified() => {}
            }
        }
    }

    fn take(&self) -> Option<Active> {
        let mut state = self.0.lock();
        let entry = state.waiting.pop_front()?;
        let counts = entry.counts;
        state.active += usize::from(counts);
        Some(Active { entry: Some(entry), jobs: self.0.clone(), counts })
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _dropped: Vec<_> = {
            let mut state = self.0.lock();
            state.runners -= 1;
            let is_last = state.runners == 0;
            state.waiting.iter_mut().filter_map(|entry| entry.kept.take_if(|_| is_last)).collect()
        };
    }
}

/// A running job. It returns to the list if it panics or is dropped before it is done.
struct Active {
    entry: Option<Entry>,
    jobs: Arc<Jobs>,
    counts: bool,
}

impl Active {
    async fn run(mut self) {
        if let Some(Entry { job, kept: Some(backend), panicked, .. }) = &self.entry {
            if *panicked {
                sleep(AFTER_PANIC).await;
            }
            job.run(&**backend).await;
        }
        drop(self.entry.take());
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        match self.entry.take() {
            Some(mut entry) => {
                entry.panicked = thread::panicking();
                self.jobs.add(entry, Side::Front);
            }
            None => self.jobs.lock().active -= usize::from(self.counts),
        }
    }
}
