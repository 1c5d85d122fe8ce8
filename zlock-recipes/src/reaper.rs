//! Removes nodes in the background: those of dropped guards, cancelled waiters and releases that could not
//! reach the server. Relabels those of semaphores, and of downgrades that the server did not confirm.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;
use zlock_core::{CoordinationBackend, ErrorKind, LockPath, Result, SessionEvents, SessionState, Target};

use crate::hold::Hold;

/// Between two tries at a node when the first failed although the session is connected.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// A node to work on. Once the epoch is over the store has removed it by itself.
#[derive(Debug)]
struct Job {
    path: LockPath,
    work: Work,
    epoch: u64,
}

#[derive(Debug)]
enum Work {
    Remove(Target),
    /// Weak: the end of the hold is the end of this.
    Relabel(Weak<Hold>),
}

impl Job {
    /// One try. `Ok` means that nothing is left to do.
    async fn attempt(&self, backend: &dyn CoordinationBackend) -> Result<()> {
        match &self.work {
            Work::Remove(target) => backend.delete(&self.path, target).await.map(drop),
            Work::Relabel(hold) => {
                // Not kept meanwhile: a hold keeps its client.
                let relabelling = hold.upgrade().and_then(|hold| hold.relabelling());
                let Some((node, label)) = relabelling else { return Ok(()) };
                // The hold may end meanwhile. A relabel does not bring a removed node back, and a delete finds
                // the node under either label: which comes first does not matter.
                let result = backend.relabel(&self.path, &node, label).await;
                if let Some(hold) = hold.upgrade() {
                    hold.relabelled(&result);
                }
                result.map(drop)
            }
        }
    }
}

/// The reaper of one client. Handing a node over never blocks, never spawns and needs no runtime, so a
/// guard may be dropped anywhere. The task that works the list off is started by the next acquisition if it
/// is not running, on the runtime that the client was made on: that of the acquisition may end long before the
/// session does. It does not keep the backend alive.
#[derive(Debug)]
pub(crate) struct Reaper {
    shared: Arc<Shared>,
    backend: Weak<dyn CoordinationBackend>,
    session: SessionEvents,
    /// The runtime that the client was made on.
    home: Option<Handle>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Jobs taken from `waiting` and not done yet.
    active: usize,
    running: bool,
    /// The client is gone: the task ends when nothing is left to do.
    orphaned: bool,
    /// Keeps the backend until then.
    last: Option<Arc<dyn CoordinationBackend>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is nothing to do and never will be.
    fn is_done(&self) -> bool {
        let state = self.lock();
        state.orphaned && state.pending() == 0
    }
}

impl State {
    fn pending(&self) -> usize {
        self.waiting.len() + self.active
    }
}

impl Reaper {
    pub(crate) fn new(backend: &Arc<dyn CoordinationBackend>) -> Self {
        let (session, home) = (backend.session_events(), Handle::try_current().ok());
        Reaper { shared: Arc::default(), backend: Arc::downgrade(backend), session, home }
    }

    /// Starts the task if it is not running. Called where a runtime is sure.
    pub(crate) fn ensure_running(&self) {
        // One that has ended drops the task at once; then this one has to do.
        for runtime in self.home.clone().into_iter().chain(std::iter::once_with(Handle::current)) {
            // Not spawned under the lock: the end of the task takes it.
            let is_running = std::mem::replace(&mut self.shared.lock().running, true);
            if is_running {
                return;
            }
            let running = Running(self.shared.clone());
            runtime.spawn(run(running, self.backend.clone(), self.session.clone()));
        }
    }

    /// Takes over a node that is to be removed.
    pub(crate) fn remove(&self, path: LockPath, target: Target, epoch: u64) {
        self.push(Job { path, work: Work::Remove(target), epoch });
    }

    /// Takes over a node that is to get the label that its hold counts as.
    pub(crate) fn relabel(&self, path: LockPath, hold: Weak<Hold>, epoch: u64) {
        self.push(Job { path, work: Work::Relabel(hold), epoch });
    }

    fn push(&self, job: Job) {
        self.shared.lock().waiting.push_back(job);
        self.shared.changed.notify_one();
    }

    /// The client is gone. What is left to do is done before the backend is let go: somebody else may have
    /// it too, and then its session, and our nodes, would live on.
    pub(crate) fn end(&self, backend: &Arc<dyn CoordinationBackend>) {
        let mut state = self.shared.lock();
        state.orphaned = true;
        if state.running && state.pending() > 0 {
            state.last = Some(backend.clone());
        }
        self.shared.changed.notify_one();
    }

    /// How many nodes are still to be worked on.
    pub(crate) fn pending(&self) -> usize {
        self.shared.lock().pending()
    }
}

/// Says that the task is not running any more, also when its runtime was shut down.
struct Running(Arc<Shared>);

impl Drop for Running {
    fn drop(&mut self) {
        let _last = {
            let mut state = self.0.lock();
            state.running = false;
            state.last.take()
        };
    }
}

/// A job under way; goes back to the list if its runtime is shut down before it is done.
struct Active {
    job: Option<Job>,
    shared: Arc<Shared>,
}

impl Drop for Active {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.active -= 1;
        if let Some(job) = self.job.take() {
            state.waiting.push_front(job);
        }
    }
}

async fn run(running: Running, backend: Weak<dyn CoordinationBackend>, session: SessionEvents) {
    let shared = &running.0;
    let mut jobs = JoinSet::new();
    loop {
        while let Some(active) = take(shared) {
            jobs.spawn(reap(active, backend.clone(), session.clone()));
        }
        if shared.is_done() {
            return;
        }
        tokio::select! {
            biased;
            () = shared.changed.notified() => {}
            Some(_) = jobs.join_next() => {}
        }
    }
}

fn take(shared: &Arc<Shared>) -> Option<Active> {
    let mut state = shared.lock();
    let job = state.waiting.pop_front()?;
    state.active += 1;
    Some(Active { job: Some(job), shared: shared.clone() })
}

/// Tries until it is done, or the epoch is over, or the backend is gone: each means that no node is left.
async fn reap(mut active: Active, backend: Weak<dyn CoordinationBackend>, mut session: SessionEvents) {
    let mut delay = FIRST_DELAY;
    while let Some(job) = &active.job {
        let now = session.current();
        if now.epoch != job.epoch || !now.is_live() {
            break;
        }
        if now.state == SessionState::Suspended {
            session.changed().await;
            continue;
        }
        let Some(backend) = backend.upgrade() else { break };
        let Err(e) = job.attempt(&*backend).await else { break };
        if matches!(e.kind(), ErrorKind::Closed | ErrorKind::SessionLost | ErrorKind::NodeRemoved) {
            break;
        }
        let what = match job.work {
            Work::Remove(_) => "removed",
            Work::Relabel(_) => "relabelled",
        };
        if active.shared.lock().orphaned && !e.is_retryable() {
            // Nobody is left who could mend it.
            tracing::warn!(path = %job.path, error = %e, "a node could not be {what}");
            break;
        }
        drop(backend);
        tracing::warn!(path = %job.path, error = %e, "a node could not be {what} yet");
        sleep(delay).await;
        delay = (delay * 2).min(LONGEST_DELAY);
    }
    active.job = None;
}
