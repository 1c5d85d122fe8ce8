//! What all locks of a client share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::task::Id as TaskId;
use zlock_core::{CoordinationBackend, Label, LockPath, NodeIds, SessionEvents};

use crate::abandoned::Abandoned;
use crate::cohort::Cohorts;
use crate::report::{HeldLocks, Observing, Reports};
use crate::shutdown::ShutdownState;
use crate::succession::Places;

pub(crate) struct ClientInner {
    pub(crate) backend: Arc<dyn CoordinationBackend>,
    pub(crate) session: SessionEvents,
    pub(crate) node_ids: NodeIds,
    pub(crate) operation_timeout: Duration,
    pub(crate) node_data: Arc<[u8]>,
    pub(crate) abandoned: Arc<Abandoned>,
    pub(crate) places: Arc<Places>,
    pub(crate) cohorts: Arc<Cohorts>,
    pub(crate) shutdown: ShutdownState,
    pub(crate) holds: Mutex<BTreeMap<LockPath, Vec<Holding>>>,
    pub(crate) observing: Observing,
}

/// A lock that is held.
pub(crate) trait Held: Send + Sync {
    /// Whether a lock with this label is held by it. Local.
    fn is_held_as(&self, label: Label) -> bool;

    /// Looks whether the lock is lost, and reports it.
    fn look(&self);

    /// Whether its node is certainly at the store. Local.
    fn is_live(&self) -> bool;
}

/// A lock held through this client, and the task that acquired it.
pub(crate) struct Holding {
    hold: Weak<dyn Held>,
    task: Option<TaskId>,
}

impl ClientInner {
    fn holds(&self) -> MutexGuard<'_, BTreeMap<LockPath, Vec<Holding>>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register(&self, path: &LockPath, hold: Weak<dyn Held>) {
        let holding = Holding { hold, task: tokio::task::try_id() };
        self.holds().entry(path.clone()).or_default().push(holding);
    }

    pub(crate) fn unregister(&self, path: &LockPath, hold: &dyn Held) {
        let mut holds = self.holds();
        if let Some(list) = holds.get_mut(path) {
            list.retain(|h| !std::ptr::addr_eq(h.hold.as_ptr(), hold));
            if list.is_empty() {
                holds.remove(path);
            }
        }
        drop(holds);
        self.shutdown.hold_ended();
    }

    /// Whether there is a guard of any lock.
    pub(crate) fn has_holds(&self) -> bool {
        !self.holds().is_empty()
    }

    /// The number of locks that are held.
    pub(crate) fn live_holds(&self) -> usize {
        let all: Vec<_> = self.holds().values().flatten().filter_map(|h| h.hold.upgrade()).collect();
        // Dropped outside the lock: a hold's end takes it.
        all.iter().filter(|hold| hold.is_live()).count()
    }

    /// Whether a lock of this kind is held on this path.
    pub(crate) fn is_held(&self, path: &LockPath, label: Label) -> bool {
        let held: Vec<_> = {
            let holds = self.holds();
            holds.get(path).into_iter().flatten().filter_map(|h| h.hold.upgrade()).collect()
        };
        // Dropped outside the lock: a hold's end takes it.
        held.iter().any(|h| h.is_held_as(label))
    }

    /// Where to report measurements; `None` without an observer.
    pub(crate) fn reports(&self) -> Option<&Arc<Reports>> {
        self.observing.get()
    }

    /// Whether the task that asks has acquired this path and not released it.
    pub(crate) fn is_held_by_this_task(&self, path: &LockPath) -> bool {
        let task = tokio::task::try_id();
        task.is_some() && self.holds().get(path).is_some_and(|list| list.iter().any(|h| h.task == task))
    }
}

impl HeldLocks for ClientInner {
    fn look(&self) {
        let held: Vec<_> = self.holds().values().flatten().filter_map(|h| h.hold.upgrade()).collect();
        // Outside the lock: a hold's end takes it.
        held.iter().for_each(|hold| hold.look());
    }
}

impl fmt::Debug for ClientInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("backend", &self.backend)
            .field("session", &self.session.current())
            .finish_non_exhaustive()
    }
}
