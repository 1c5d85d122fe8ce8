//! Removes nodes in the background: those of dropped guards, cancelled waiters and releases that could not reach the
//! server. Also relabels nodes of semaphores, and those of downgrades that the server did not confirm.
//!
//! Each is a job of the backend's `Background`, which runs until it has succeeded or the session is over.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;
use zlock_core::kit::FailureLog;
use zlock_core::{
    CoordinationBackend, ErrorKind, Job, LockPath, Mutex, Result, Session, SessionEvents, SessionState,
    Target,
};

use crate::client::inner::ClientInner;
use crate::hold::Hold;
use crate::place::admission::{Admission, Admitted};
use crate::place::cohort::{Ended, Turn};
use crate::place::granted::Granted;
use crate::place::pauses::PAUSES;
use crate::place::succession::{PlaceHandle, remove};

/// How long a job without an answer keeps other jobs from sending requests.
const TURN: Duration = Duration::from_secs(1);

/// A node to work on. When the epoch ends, the store removes the node by itself.
#[derive(Debug)]
struct NodeJob {
    path: LockPath,
    work: Work,
    epoch: u64,
    session: SessionEvents,
    /// Dropped when no handle is left that could correct what the store refuses.
    client: Weak<ClientInner>,
    admission: Arc<Admission>,
    /// The admission of a create that was given up, until the store has answered that its node is gone.
    create: Mutex<Option<Admitted>>,
}

#[derive(Debug)]
enum Work {
    /// Passes the lock to the successor if the node held it.
    Remove(Target, Option<Arc<PlaceHandle>>),
    /// Weak: the job ends with the hold.
    Relabel(Weak<Hold>),
}

/// Passing a node to the background never blocks, never spawns, and needs neither a runtime nor a clock, so a guard may be
/// dropped anywhere.
impl ClientInner {
    /// Removes a node in the background. `create` is the admission of its create, if that was given up.
    pub(crate) fn remove_in_background(
        self: &Arc<Self>,
        path: &LockPath,
        target: Target,
        epoch: u64,
        create: Option<Admitted>,
    ) {
        self.push(path, Work::Remove(target, None), epoch, create);
    }

    /// Removes the node of a held lock that has no registered holder.
    pub(crate) fn give_up_in_background(self: &Arc<Self>, path: &LockPath, granted: Granted) {
        let Granted { node, epoch, handle, .. } = granted;
        self.push(path, Work::Remove(Target::Node(node), handle), epoch, None);
    }

    fn push(self: &Arc<Self>, path: &LockPath, work: Work, epoch: u64, create: Option<Admitted>) {
        let (path, session, client) = (path.clone(), self.session.clone(), Arc::downgrade(self));
        let (admission, create) = (self.admission.clone(), Mutex::new(create));
        let job = NodeJob { path, work, epoch, session, client, admission, create };
        self.backend().background().push(self.backend.clone(), job);
    }
}

impl Hold {
    /// Removes the node, unless a waiter of the local queue gets the lock.
    pub(crate) fn remove_in_background(self: &Arc<Self>) {
        if self.end_turn(Turn::leave) == Ended::PassedOn {
            return;
        }
        let removal = Work::Remove(self.target(), self.handle().cloned());
        self.client().push(self.path(), removal, self.epoch(), None);
    }

    /// Gives the node the label that the hold counts as.
    pub(crate) fn relabel_in_background(self: &Arc<Self>) {
        self.client().push(self.path(), Work::Relabel(Arc::downgrade(self)), self.epoch(), None);
    }
}

#[async_trait]
impl Job for NodeJob {
    /// Retries until it succeeds or the epoch is over. In both cases no node is left.
    async fn run(&self, backend: &dyn CoordinationBackend) {
        let (path, mut session, mut pauses) = (&self.path, self.session.clone(), PAUSES.start());
        let mut log = FailureLog::default();
        if let Some(create) = &mut *self.create.lock() {
            create.abandon();
        }
        loop {
            // Before being admitted: once the epoch is over, there is nothing to do.
            if !self.is_due(&mut session).await {
                return;
            }
            let admitted = self.admission.clean_up().await;
            let now = session.current();
            if now.epoch != self.epoch || now.state != SessionState::Connected {
                continue;
            }
            let mut attempt = pin!(self.attempt(backend));
            let attempted = timeout(TURN, &mut attempt).await;
            drop(admitted);
            let attempted = match attempted {
                Ok(attempted) => attempted,
                Err(_) => attempt.await,
            };
            let Err(e) = attempted else { return };
            let create = self.create.lock().take_if(|create| !e.is_retryable() || create.is_stuck());
            drop(create);
            if matches!(e.kind(), ErrorKind::Closed | ErrorKind::SessionLost | ErrorKind::NodeDeleted) {
                return;
            }
            let what = match self.work {
                Work::Remove(..) => "removed",
                Work::Relabel(_) => "relabelled",
            };
            if self.client.strong_count() == 0 && !e.is_retryable() {
                tracing::warn!(%path, error = %e, "a node could not be {what}");
                return;
            }
            if log.record(&e) {
                tracing::warn!(%path, error = %e, "a node could not be {what} yet");
            }
            pauses.sleep().await;
        }
    }
}

impl NodeJob {
    /// Waits until the session is connected; `false` if it is over.
    async fn is_due(&self, session: &mut SessionEvents) -> bool {
        let is_over = |now: Session| now.epoch != self.epoch || !now.is_live();
        let now = session.until(|now| is_over(now) || now.state == SessionState::Connected).await;
        !is_over(now)
    }

    /// Makes one attempt. `Ok` means that nothing is left to do.
    async fn attempt(&self, backend: &dyn CoordinationBackend) -> Result<()> {
        match &self.work {
            Work::Remove(target, handle) => {
                let next = handle.as_ref().and_then(|handle| handle.next());
                remove(backend, &self.path, target, next).await.map(drop)
            }
            Work::Relabel(hold) => {
                // Not kept during the request, because a hold keeps its client alive.
                let relabelling = hold.upgrade().and_then(|hold| hold.pending_relabel());
                let Some((node, label)) = relabelling else { return Ok(()) };
                // The hold may end meanwhile. The order does not matter: a relabel does not restore a removed node, and a
                // delete finds the node under either label.
                let result = backend.relabel(&self.path, &node, label).await;
                if let Some(hold) = hold.upgrade() {
                    hold.relabelled(&result);
                }
                result.map(drop)
            }
        }
    }
}
