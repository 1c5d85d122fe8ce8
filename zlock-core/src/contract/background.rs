//! Work that outlives its caller, run by the backend on its own runtime.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::poll_fn;
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::contract::backend::CoordinationBackend;
use crate::mutex::Mutex;

/// The pause before a job that panicked is run again.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// Work for a [`Background`].
#[async_trait]
pub trait Job: Debug + Send + Sync + 'static {
    /// Does the work, retrying until it is done or no longer needed. `backend` is the one that the job was pushed with.
    ///
    /// All jobs run concurrently. After an outage there may be thousands, so those that send requests to the store
    /// must limit how many do so at once. A job that panics is run again from the beginning after a second.
    ///
    /// # Cancel safety
    /// The future is dropped at any await point when the backend is closed or its runtime ends, and the job with it.
    async fn run(&self, backend: &dyn CoordinationBackend);
}

/// The jobs that a backend runs in the background, each in a separate task. Cheap to clone.
///
/// The backend's own task polls [`run`](Self::run), so jobs run on the runtime that the backend lives on, whatever
/// runtime or thread they were pushed from. They end with it.
#[derive(Clone, Debug, Default)]
pub struct Background(Arc<Jobs>);

#[derive(Debug, Default)]
struct Jobs {
    state: Mutex<State>,
    pushed: Notify,
    /// Shared with each job that counts.
    count: Arc<()>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Entry>,
    closed: bool,
}

/// A job, and the backend that it works with, which owns the list: an entry that stayed in the list would keep both for ever.
#[derive(Debug)]
struct Entry {
    job: Box<dyn Job>,
    backend: Arc<dyn CoordinationBackend>,
    /// `None` for work that lasts as long as something else, and is not to be waited for. Dropped last.
    _count: Option<Arc<()>>,
}

impl Entry {
    /// Runs the job until it returns without a panic.
    async fn run(self) {
        loop {
            let mut run = self.job.run(&*self.backend);
            let is_done = poll_fn(|cx| {
                let polled = catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(cx)));
                polled.map_or(Poll::Ready(false), |polled| polled.map(|()| true))
            });
            if is_done.await {
                return;
            }
            sleep(AFTER_PANIC).await;
        }
    }
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
    /// `backend` is kept until the job is done or the list is closed.
    pub fn push(&self, backend: Arc<dyn CoordinationBackend>, job: impl Job) {
        self.push_entry(backend, job, Some(self.0.count.clone()));
    }

    /// Adds a job as [`push`](Self::push) does, which lasts as long as something that its owner holds. It is run and ended in the
    /// same way, but it is no work that remains to be done: [`len`](Self::len) does not count it.
    pub fn push_lasting(&self, backend: Arc<dyn CoordinationBackend>, job: impl Job) {
        self.push_entry(backend, job, None);
    }

    fn push_entry(&self, backend: Arc<dyn CoordinationBackend>, job: impl Job, count: Option<Arc<()>>) {
        // If it is not moved, it is dropped after the mutex is unlocked, because its destructors may push other jobs.
        let entry = Entry { job: Box::new(job), backend, _count: count };
        let mut state = self.0.state.lock();
        if !state.closed {
            state.waiting.push(entry);
        }
        drop(state);
        self.0.pushed.notify_one();
    }

    /// Returns the number of jobs that are not done yet.
    #[must_use]
    pub fn len(&self) -> usize {
        Arc::strong_count(&self.0.count) - 1
    }

    /// Returns `true` if all jobs are done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all jobs that wait to be run, now and from now on. A backend calls it when its last session has ended, and drops
    /// the future of [`run`](Self::run) then, which drops the others.
    pub fn close(&self) {
        let _dropped = {
            let mut state = self.0.state.lock();
            state.closed = true;
            take(&mut state.waiting)
        };
    }

    /// Runs the jobs concurrently as tasks of the runtime that polls the future, starting them in the order in which
    /// they were pushed. The future never completes.
    ///
    /// # Cancel safety
    /// Dropping the future [closes](Self::close) the list and cancels the jobs that are not done.
    pub fn run(&self) -> impl Future<Output = Infallible> + Send + use<> {
        let runner = Runner(self.clone());
        async move {
            let mut tasks = JoinSet::new();
            loop {
                let pushed = take(&mut runner.0.0.state.lock().waiting);
                for entry in pushed {
                    tasks.spawn(entry.run());
                }
                tokio::select! {
                    biased;
                    Some(_) = tasks.join_next() => {}
                    () = runner.0.0.pushed.notified() => {}
                }
            }
        }
    }
}

/// Closes the list when nothing runs its jobs any more.
struct Runner(Background);

impl Drop for Runner {
    fn drop(&mut self) {
        self.0.close();
    }
}
