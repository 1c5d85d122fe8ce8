//! The record of a hold: what its guards and contexts look at.
//!
//! It may outlive the hold, and does not keep the client alive.

use std::mem::discriminant;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::sleep_until;
use zlock_core::{
    Error, ErrorKind, FencingToken, Label, LockPath, Mutex, Node, NodeId, NodeName, Result, SessionEvents,
    Signal, Target,
};

use crate::hold::limit::Limit;
use crate::place::granted::{Granted, lost, lost_error, lost_kind};
use crate::queue::Status;
use crate::report::HoldReport;

/// A guard's part of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Holds all that was granted.
    Owner,
    /// Reads, beside other readers or inside a write lock.
    Reader,
}

/// The state of one grant. It may outlive its hold, so it does not keep the client alive.
#[derive(Debug)]
pub(crate) struct HoldRecord {
    path: LockPath,
    session: SessionEvents,
    granted: Granted,
    /// The end of the longest hold. Not set without one.
    limit: OnceLock<Limit>,
    pub(crate) state: Mutex<State>,
    /// Notified when the last guard of a kind is dropped, and when the node is found to be deleted.
    pub(crate) changed: Signal,
    /// `None` without an observer.
    pub(crate) report: Option<HoldReport>,
}

/// The part of a record that changes.
#[derive(Debug)]
pub(crate) struct State {
    /// The node as last reported by the store.
    pub(crate) node: Node,
    /// The label that the hold counts as. If the node has another one, a relabel is under way.
    pub(crate) label: Label,
    pub(crate) owners: usize,
    pub(crate) readers: usize,
    /// `true` if a relabel or a read found no node.
    pub(crate) removed: bool,
}

impl State {
    pub(crate) fn of(&mut self, entry: Entry) -> &mut usize {
        match entry {
            Entry::Owner => &mut self.owners,
            Entry::Reader => &mut self.readers,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.owners + self.readers == 0
    }
}

impl HoldRecord {
    /// Creates the record of a hold with one entry.
    pub(crate) fn new(
        session: SessionEvents,
        path: LockPath,
        report: Option<HoldReport>,
        granted: Granted,
    ) -> Self {
        let (node, label) = (granted.node.clone(), granted.node.label);
        let mut state = State { node, label, owners: 0, readers: 0, removed: false };
        *state.of(Entry::of(state.label)) = 1;
        let (state, changed) = (Mutex::new(state), Signal::default());
        HoldRecord { path, session, granted, limit: OnceLock::new(), state, changed, report }
    }

    /// Sets how long the lock may be held, from now on.
    pub(crate) fn limit(&self, longest: Duration) {
        let _ = self.limit.set(Limit::begin(longest));
    }

    pub(crate) fn path(&self) -> &LockPath {
        &self.path
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.granted.epoch
    }

    pub(crate) fn fencing_token(&self) -> FencingToken {
        self.granted.fencing_token
    }

    /// Returns the label that the hold counts as.
    pub(crate) fn label(&self) -> Label {
        self.state.lock().label
    }

    /// Returns the node's name as last reported by the store.
    pub(crate) fn node(&self) -> NodeName {
        self.state.lock().node.name.clone()
    }

    /// Returns the ID of the node, which no relabel changes.
    pub(crate) fn node_id(&self) -> NodeId {
        self.state.lock().node.id.clone()
    }

    /// Returns the node as last reported by the store, for a delete. A relabel of unknown outcome starts from this node, and
    /// so must the delete.
    pub(crate) fn target(&self) -> Target {
        Target::Node(self.state.lock().node.clone())
    }

    /// Returns the status of the node, whether or not the hold has guards. Performs no I/O.
    pub(crate) fn status(&self) -> Status {
        let status = match self.granted.status(self.session.current()) {
            Status::Live if self.state.lock().removed => Status::NodeDeleted,
            status => status,
        };
        if status != Status::Live
            && let Some(report) = &self.report
        {
            report.lost(lost_kind(status));
        }
        status
    }

    /// Returns an error unless the lock is live.
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        match self.status() {
            Status::Live => Ok(()),
            bad => Err(lost_error(bad, operation, &self.path)),
        }
    }

    /// Returns why the lock must not be used any more: it is lost, or was held for too long. Performs no I/O.
    pub(crate) fn ended_by(&self) -> Option<ErrorKind> {
        match self.status() {
            Status::Live if self.limit.get().is_some_and(Limit::is_over) => {
                if let Some(report) = &self.report {
                    report.overdue();
                }
                Some(ErrorKind::HeldTooLong)
            }
            Status::Live => None,
            bad => Some(lost_kind(bad)),
        }
    }

    /// Returns `true` if the epoch is live, the deadline has not passed, the node was not reported as deleted, the longest hold is
    /// not over, and there is a guard of this kind. Performs no I/O.
    pub(crate) fn is_held(&self, entry: Entry) -> bool {
        *self.state.lock().of(entry) > 0 && self.ended_by().is_none()
    }

    /// Returns `true` if a lock with this label is held. Performs no I/O.
    pub(crate) fn is_held_as(&self, label: Label) -> bool {
        let held = self.label();
        let same =
            discriminant(&held) == discriminant(&label) || (held, label) == (Label::Write, Label::Read);
        same && self.is_held(Entry::of(label))
    }

    /// Waits until no lock of this kind is held, and returns the reason.
    pub(crate) async fn lost(&self, entry: Entry) -> Error {
        let is_left = || {
            let mut state = self.state.lock();
            state.removed || *state.of(entry) == 0
        };
        tokio::select! {
            biased;
            () = lost(&self.session, self.granted.epoch, &self.granted.deletion) => {}
            () = self.changed.until(|| is_left().then_some(())) => {}
            () = self.overdue(), if self.limit.get().is_some() => {}
        }
        self.loss("lock")
    }

    /// Waits until the lock was held for too long.
    async fn overdue(&self) {
        match self.limit.get().and_then(Limit::end) {
            // Boxed, because few locks have a limit.
            Some(end) => Box::pin(sleep_until(end)).await,
            None => std::future::pending().await,
        }
    }

    /// Returns the reason why the lock is not held.
    pub(crate) fn loss(&self, operation: &'static str) -> Error {
        let has_guards = !self.state.lock().is_empty();
        match (self.ended_by(), self.limit.get()) {
            (Some(ErrorKind::HeldTooLong), Some(limit)) if has_guards => limit.error(operation, &self.path),
            _ => lost_error(self.status(), operation, &self.path),
        }
    }
}

impl Entry {
    /// The kind of the first guard of a lock with this label.
    pub(crate) fn of(label: Label) -> Self {
        if label == Label::Read { Entry::Reader } else { Entry::Owner }
    }
}
