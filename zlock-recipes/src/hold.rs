//! The state of a held lock, which all its guards share.

use std::mem::{discriminant, replace};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;
use tracing::Span;
use zlock_core::{
    DeletionNotice, Error, ErrorKind, FencingToken, Label, LockPath, Node, NodeName, Result, Target,
};

use crate::client_inner::{ClientInner, Held};
use crate::cohort::{Ended, Turn};
use crate::granted::{Granted, lost_error, lost_kind, status};
use crate::queue::Status;
use crate::report::{HoldReport, kind};
use crate::succession::Predecessor;

/// The kind of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Holds all that was granted.
    Owner,
    /// Reads, beside other readers or inside a write lock.
    Reader,
}

/// The result of entering a hold again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// The hold has one more guard.
    As(Entry),
    /// The hold is of another kind of lock, or of a kind that is never entered again.
    NotThis,
    /// The last guard is already gone.
    TooLate,
    /// The hold only reads, and the label asks for writing.
    Upgrade,
}

/// The guards that remain after one was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Remaining {
    /// Other guards: nothing changes at the store.
    Others,
    /// Readers of a write lock: the node has to be relabelled.
    Readers,
    /// None: the node is to be removed.
    Nobody,
}

/// One grant and the number of its guards. The last guard releases it.
#[derive(Debug)]
pub(crate) struct Hold {
    client: Arc<ClientInner>,
    path: LockPath,
    epoch: u64,
    fencing_token: FencingToken,
    deletion: DeletionNotice,
    /// Passes the lock to the successor at the end.
    predecessor: Option<Arc<Predecessor>>,
    /// Set if the node belongs to a local queue.
    turn: Mutex<Option<Turn>>,
    state: Mutex<State>,
    /// Notified when the last guard of a kind is dropped, and when the node is found to be deleted.
    changed: Notify,
    /// `None` without an observer.
    report: Option<HoldReport>,
    /// Open while the lock is held.
    span: Mutex<Span>,
}

#[derive(Debug)]
struct State {
    /// The node as last reported by the store.
    node: Node,
    /// The label that the hold counts as. If the node has another one, a relabel is under way.
    label: Label,
    owners: usize,
    readers: usize,
    /// `true` if a relabel or a read found no node.
    removed: bool,
}

impl State {
    fn of(&mut self, entry: Entry) -> &mut usize {
        match entry {
            Entry::Owner => &mut self.owners,
            Entry::Reader => &mut self.readers,
        }
    }

    fn is_empty(&self) -> bool {
        self.owners + self.readers == 0
    }
}

impl Hold {
    /// Creates a hold with one entry.
    pub(crate) fn new(
        client: Arc<ClientInner>,
        path: LockPath,
        metric_name: Option<&Arc<str>>,
        granted: Granted,
        turn: Option<Turn>,
    ) -> Arc<Self> {
        let Granted { node, epoch, fencing_token, deletion, predecessor } = granted;
        let mut state = State { label: node.label, node, owners: 0, readers: 0, removed: false };
        *state.of(Entry::of(state.label)) = 1;
        let label = state.label;
        let report = client.reports().map(|reports| HoldReport::begin(reports, label, metric_name));
        let span = tracing::debug_span!("hold", %path, kind = kind(label), token = %fencing_token);
        let span = Mutex::new(span);
        let (turn, state, changed) = (Mutex::new(turn), Mutex::new(state), Notify::new());
        let hold = Arc::new(Hold {
            client,
            path,
            epoch,
            fencing_token,
            deletion,
            predecessor,
            turn,
            state,
            changed,
            report,
            span,
        });
        let held: Weak<Hold> = Arc::downgrade(&hold);
        hold.client.register(&hold.path, held);
        hold
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn path(&self) -> &LockPath {
        &self.path
    }

    pub(crate) fn client(&self) -> &Arc<ClientInner> {
        &self.client
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn fencing_token(&self) -> FencingToken {
        self.fencing_token
    }

    /// Returns the label that the hold counts as.
    pub(crate) fn label(&self) -> Label {
        self.state().label
    }

    /// Returns the node's name as last reported by the store.
    pub(crate) fn node(&self) -> NodeName {
        self.state().node.name.clone()
    }

    /// Returns the node as last reported by the store, for a delete. A relabel of unknown outcome starts from this node, and
    /// so must the delete.
    pub(crate) fn target(&self) -> Target {
        Target::Node(self.state().node.clone())
    }

    fn turn(&self) -> MutexGuard<'_, Option<Turn>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the turn of a hold without guards by `end`. Returns `true` if the caller is to remove the node.
    pub(crate) fn end_turn(&self, end: fn(Turn) -> Ended) -> Ended {
        let turn = self.turn().take();
        turn.map_or(Ended::GiveUp, end)
    }

    /// Prevents a hand-over inside the client: another client has requested revocation, or the node was deleted.
    pub(crate) fn is_last_turn(&self) {
        if let Some(turn) = &*self.turn() {
            turn.is_last();
        }
    }

    pub(crate) fn predecessor(&self) -> Option<&Arc<Predecessor>> {
        self.predecessor.as_ref()
    }

    /// Adds an entry for a lock with this label.
    pub(crate) fn enter(&self, label: Label) -> Entered {
        let mut state = self.state();
        let entry = match (state.label, label) {
            (Label::Lock, Label::Lock) | (Label::Write, Label::Write) => Entry::Owner,
            (Label::Write | Label::Read, Label::Read) => Entry::Reader,
            (Label::Read, Label::Write) if !state.is_empty() => return Entered::Upgrade,
            _ => return Entered::NotThis,
        };
        if state.is_empty() {
            return Entered::TooLate;
        }
        *state.of(entry) += 1;
        Entered::As(entry)
    }

    /// Adds another entry of the same kind.
    pub(crate) fn enter_again(&self, entry: Entry) {
        *self.state().of(entry) += 1;
    }

    /// Removes an entry.
    pub(crate) fn leave(&self, entry: Entry) -> Remaining {
        let (left, is_last_of_kind) = {
            let mut state = self.state();
            let guards = state.of(entry);
            *guards -= 1;
            let is_last_of_kind = *guards == 0;
            let left = if state.is_empty() {
                Remaining::Nobody
            } else if state.owners == 0 && state.label == Label::Write {
                state.label = Label::Read;
                Remaining::Readers
            } else {
                Remaining::Others
            };
            (left, is_last_of_kind)
        };
        if left == Remaining::Nobody {
            self.client.unregister(&self.path, self);
            self.ended();
        }
        if is_last_of_kind {
            self.changed.notify_waiters();
        }
        left
    }

    /// Reports the end of the hold.
    fn ended(&self) {
        if let Some(report) = &self.report {
            report.end(|| {
                self.status();
            });
        }
        drop(replace(&mut *self.span.lock().unwrap_or_else(PoisonError::into_inner), Span::none()));
    }

    /// Converts the only entry, which is a writer's, into a reader's. From here on, the hold counts as a reader's, whatever
    /// label the store has.
    ///
    /// # Errors
    /// `StillEntered`, or the loss of the lock.
    pub(crate) fn downgrade(&self) -> Result<()> {
        self.check("downgrade")?;
        let mut state = self.state();
        if (state.owners, state.readers) != (1, 0) {
            return Err(Error::new(ErrorKind::StillEntered, "downgrade").with_path(&self.path));
        }
        (state.owners, state.readers, state.label) = (0, 1, Label::Read);
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Marks a semaphore's hold as granted, which notifies the node behind it.
    pub(crate) fn promote(&self) -> bool {
        let mut state = self.state();
        let Label::Permits { granted, .. } = &mut state.label else { return false };
        *granted = true;
        true
    }

    /// Returns the node and the label that it needs. `None` if it already has that label, or if the hold has no guards: then
    /// the node is to be removed, and a relabel would only delay the removal.
    pub(crate) fn pending_relabel(&self) -> Option<(Node, Label)> {
        let state = self.state();
        (!state.is_empty() && state.node.label != state.label).then(|| (state.node.clone(), state.label))
    }

    /// Records the result of a relabel.
    pub(crate) fn relabelled(&self, result: &Result<Node>) {
        match result {
            Ok(node) => self.state().node = node.clone(),
            Err(e) if e.kind() == ErrorKind::NodeDeleted => self.removed(),
            Err(_) => {}
        }
    }

    /// Records that the node no longer exists.
    pub(crate) fn removed(&self) {
        self.is_last_turn();
        {
            let mut state = self.state();
            // If no guard is left, the release removes the node by itself.
            state.removed = !state.is_empty();
        }
        self.changed.notify_waiters();
    }

    /// Returns the status of the node, whether or not the hold has guards. Performs no I/O.
    pub(crate) fn status(&self) -> Status {
        let status = match status(self.client.session.current(), self.epoch, &self.deletion) {
            Status::Live if self.state().removed => Status::NodeDeleted,
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

    /// Returns `true` if the epoch is live, the deadline has not passed, the node was not reported as deleted, and
    /// there is a guard of this kind. Performs no I/O.
    pub(crate) fn is_held(&self, entry: Entry) -> bool {
        *self.state().of(entry) > 0 && self.status() == Status::Live
    }

    /// Waits until no lock of this kind is held, and returns the reason.
    pub(crate) async fn lost(&self, entry: Entry) -> Error {
        let mut session = self.client.session.clone();
        let mut gone = self.deletion.clone();
        tokio::select! {
            biased;
            _ = session.over(self.epoch) => {}
            () = gone.deleted() => {}
            () = self.left(entry) => {}
        }
        self.loss()
    }

    /// Returns the reason why the lock is not held.
    pub(crate) fn loss(&self) -> Error {
        lost_error(self.status(), "lock", &self.path)
    }

    /// Waits until there is no guard of this kind, or until the node is found to be deleted.
    async fn left(&self, entry: Entry) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let is_left = {
                let mut state = self.state();
                state.removed || *state.of(entry) == 0
            };
            if is_left {
                return;
            }
            changed.await;
        }
    }
}

impl Held for Hold {
    fn is_held_as(&self, label: Label) -> bool {
        let same = {
            let held = self.label();
            discriminant(&held) == discriminant(&label) || (held, label) == (Label::Write, Label::Read)
        };
        same && self.is_held(Entry::of(label))
    }

    fn look(&self) {
        self.status();
    }

    fn is_live(&self) -> bool {
        self.status() == Status::Live
    }
}

impl Entry {
    /// The kind of the first guard of a lock with this label.
    pub(crate) fn of(label: Label) -> Self {
        if label == Label::Read { Entry::Reader } else { Entry::Owner }
    }
}
