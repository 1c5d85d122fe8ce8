//! The state that all locks of a client share.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::Id as TaskId;
use zlock_core::{
    CoordinationBackend, Error, ErrorKind, Label, LockPath, Mutex, NodeIds, Result, SessionEvents,
};

use crate::client::closing::ShutdownState;
use crate::client::hold_record::HoldRecord;
use crate::client::joined::JoinedIds;
use crate::place::admission::Admission;
use crate::place::cohort::Cohorts;
use crate::place::succession::Places;
use crate::queue::Status;
use crate::report::{HeldLocks, Observing, Reports};

pub(crate) struct ClientInner {
    pub(crate) backend: Arc<dyn CoordinationBackend>,
    pub(crate) session: SessionEvents,
    pub(crate) node_ids: NodeIds,
    pub(crate) response_timeout: Duration,
    pub(crate) node_data: Arc<[u8]>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) places: Arc<Places>,
    pub(crate) cohorts: Arc<Cohorts>,
    /// The members that the client has joined as.
    pub(crate) joined: Arc<JoinedIds>,
    pub(crate) shutdown: ShutdownState,
    pub(crate) holds: Mutex<BTreeMap<LockPath, Vec<Holding>>>,
    pub(crate) observing: Observing,
}

/// A lock held through this client, and the task that acquired it.
pub(crate) struct Holding {
    record: Weak<HoldRecord>,
    task: Option<TaskId>,
}

impl ClientInner {
    pub(crate) fn register(&self, record: &Arc<HoldRecord>) {
        let holding = Holding { record: Arc::downgrade(record), task: tokio::task::try_id() };
        self.holds.lock().entry(record.path().clone()).or_default().push(holding);
    }

    pub(crate) fn unregister(&self, record: &HoldRecord) {
        let mut holds = self.holds.lock();
        if let Some(list) = holds.get_mut(record.path()) {
            list.retain(|h| !std::ptr::eq(h.record.as_ptr(), record));
            if list.is_empty() {
                holds.remove(record.path());
            }
        }
        drop(holds);
        self.shutdown.hold_ended();
    }

    pub(crate) fn backend(&self) -> &dyn CoordinationBackend {
        &*self.backend
    }

    /// Waits for what is no acquisition, and ends with `ShuttingDown` as an acquisition does.
    pub(crate) async fn unless_shut_down<T>(
        &self,
        (operation, path): (&'static str, &LockPath),
        wait: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        tokio::select! {
            biased;
            () = self.shutdown.begun.raised() => Err(Error::new(ErrorKind::ShuttingDown, operation).with_path(path)),
            ended = wait => ended,
        }
    }

    /// Returns the held locks. They are dropped outside the mutex, which the end of a hold locks.
    fn records(&self) -> Vec<Arc<HoldRecord>> {
        self.holds.lock().values().flatten().filter_map(|h| h.record.upgrade()).collect()
    }

    /// Returns the number of held locks.
    pub(crate) fn live_holds(&self) -> usize {
        self.records().iter().filter(|record| record.status() == Status::Live).count()
    }

    /// Returns the number of elections that the client leads.
    pub(crate) fn elections_led(&self) -> usize {
        self.records().iter().filter(|record| record.is_held_as(Label::Candidate)).count()
    }

    /// Returns `true` if a lock of this kind is held on this path.
    pub(crate) fn is_held(&self, path: &LockPath, label: Label) -> bool {
        let records: Vec<_> = {
            let holds = self.holds.lock();
            holds.get(path).into_iter().flatten().filter_map(|h| h.record.upgrade()).collect()
        };
        records.iter().any(|record| record.is_held_as(label))
    }

    /// Returns the receiver of measurements. `None` without an observer.
    pub(crate) fn reports(&self) -> Option<&Arc<Reports>> {
        self.observing.get()
    }

    /// Returns `true` if the calling task has acquired this path and not released it.
    pub(crate) fn is_held_by_this_task(&self, path: &LockPath) -> bool {
        let task = tokio::task::try_id();
        task.is_some() && self.holds.lock().get(path).is_some_and(|list| list.iter().any(|h| h.task == task))
    }
}

impl HeldLocks for ClientInner {
    fn look(&self) {
        for record in self.records() {
            record.ended_by();
        }
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
