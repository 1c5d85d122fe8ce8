//! A held lock, which all its guards share.
//!
//! A hold has the label that it *counts as*. The label of its node follows, by a relabel.

pub(crate) mod limit;

use std::mem::replace;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tracing::Span;
use tracing::field::Empty;
use zlock_core::{Error, ErrorKind, Label, LockPath, Mutex, Node, Result};

use crate::client::hold_record::{Entry, HoldRecord};
use crate::client::inner::ClientInner;
use crate::place::cohort::{Ended, Turn};
use crate::place::granted::Granted;
use crate::place::succession::PlaceHandle;
use crate::report::{HoldReport, kind};

/// The operation in the error of a lock that cannot be entered again.
pub(crate) const REENTER: &str = "reenter";

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
    record: Arc<HoldRecord>,
    /// Passes the lock to the successor at the end.
    handle: Option<Arc<PlaceHandle>>,
    /// Set if the node belongs to a local queue.
    turn: Mutex<Option<Turn>>,
    /// Open while the lock is held.
    span: Mutex<Span>,
}

impl Hold {
    /// Creates a hold with one entry.
    pub(crate) fn new(
        client: Arc<ClientInner>,
        path: LockPath,
        metric_name: Option<&Arc<str>>,
        mut granted: Granted,
        turn: Option<Turn>,
    ) -> Arc<Self> {
        let (label, handle) = (granted.node.label, granted.handle.take());
        let token = granted.fencing_token;
        let report = client.reports().map(|reports| HoldReport::begin(reports, label, metric_name, token));
        let record = Arc::new(HoldRecord::new(client.session.clone(), path, report, granted));
        let (turn, span) = (Mutex::new(turn), Mutex::new(Span::none()));
        client.register(&record);
        Arc::new(Hold { client, record, handle, turn, span })
    }

    /// Begins the span of the hold, which was waited for this long.
    pub(crate) fn begin_span(&self, wait: Duration) {
        let (kind, wait) = (kind(self.label()), tracing::field::debug(wait));
        let span = tracing::debug_span!("hold", path = %self.path(), kind, token = %self.fencing_token(), wait, outcome = Empty);
        *self.span.lock() = span;
    }

    /// Returns the span, in which closures under the lock run.
    pub(crate) fn span(&self) -> Span {
        self.span.lock().clone()
    }

    pub(crate) fn record(&self) -> &Arc<HoldRecord> {
        &self.record
    }

    pub(crate) fn client(&self) -> &Arc<ClientInner> {
        &self.client
    }

    /// Returns `true` if later holders of this client may have the same node.
    pub(crate) fn shares_node(&self) -> bool {
        self.turn.lock().is_some()
    }

    /// Ends the turn of a hold without guards by `end`. Returns `true` if the caller is to remove the node.
    pub(crate) fn end_turn(&self, end: fn(Turn) -> Ended) -> Ended {
        let turn = self.turn.lock().take();
        turn.map_or(Ended::GiveUp, end)
    }

    /// Prevents a hand-over inside the client: another client has requested revocation, or the node was deleted.
    pub(crate) fn make_turn_last(&self) {
        if let Some(turn) = &*self.turn.lock() {
            turn.make_last();
        }
    }

    pub(crate) fn handle(&self) -> Option<&Arc<PlaceHandle>> {
        self.handle.as_ref()
    }

    /// Adds an entry for a lock with this label.
    pub(crate) fn enter(&self, label: Label) -> Entered {
        let mut state = self.state.lock();
        let entry = match (state.label, label) {
            (Label::Lock, Label::Lock)
            | (Label::Candidate, Label::Candidate)
            | (Label::Write, Label::Write) => Entry::Owner,
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
        *self.state.lock().of(entry) += 1;
    }

    /// Removes an entry.
    pub(crate) fn leave(&self, entry: Entry) -> Remaining {
        let (left, is_last_of_kind) = {
            let mut state = self.state.lock();
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
            self.client.unregister(self);
            self.ended();
        }
        if is_last_of_kind {
            self.changed.notify();
        }
        left
    }

    /// Reports the end of the hold.
    fn ended(&self) {
        if let Some(report) = &self.report {
            report.end(|| {
                self.ended_by();
            });
        }
        let span = replace(&mut *self.span.lock(), Span::none());
        if !span.is_disabled() {
            let reason = self.ended_by();
            span.record("outcome", reason.unwrap_or(ErrorKind::Released).as_str());
            span.in_scope(|| match reason {
                None => {}
                Some(ErrorKind::HeldTooLong) => tracing::debug!("the lock was held too long"),
                Some(reason) => tracing::debug!(reason = reason.as_str(), "the lock was lost"),
            });
        }
    }

    /// Converts the only entry, which is a writer's, into a reader's. From here on, the hold counts as a reader's, whatever
    /// label the store has.
    ///
    /// # Errors
    /// `StillEntered`, or the loss of the lock.
    pub(crate) fn downgrade(&self) -> Result<()> {
        if self.ended_by().is_some() {
            return Err(self.loss("downgrade"));
        }
        let mut state = self.state.lock();
        if (state.owners, state.readers) != (1, 0) {
            return Err(Error::new(ErrorKind::StillEntered, "downgrade").with_path(self.path()));
        }
        (state.owners, state.readers, state.label) = (0, 1, Label::Read);
        drop(state);
        self.changed.notify();
        Ok(())
    }

    /// Marks a semaphore's hold as granted, which notifies the node behind it.
    pub(crate) fn promote(&self) -> bool {
        let mut state = self.state.lock();
        let Label::Permits { granted, .. } = &mut state.label else { return false };
        *granted = true;
        true
    }

    /// Returns the node and the label that it needs. `None` if it already has that label, or if the hold has no guards: then
    /// the node is to be removed, and a relabel would only delay the removal.
    pub(crate) fn pending_relabel(&self) -> Option<(Node, Label)> {
        let state = self.state.lock();
        (!state.is_empty() && state.node.label != state.label).then(|| (state.node.clone(), state.label))
    }

    /// Records the result of a relabel.
    pub(crate) fn relabelled(&self, result: &Result<Node>) {
        match result {
            Ok(node) => self.state.lock().node = node.clone(),
            Err(e) if e.kind() == ErrorKind::NodeDeleted => self.removed(),
            Err(_) => {}
        }
    }

    /// Records that the node no longer exists.
    pub(crate) fn removed(&self) {
        self.make_turn_last();
        {
            let mut state = self.state.lock();
            // If no guard is left, the release removes the node by itself.
            state.removed = !state.is_empty();
        }
        self.changed.notify();
    }
}

impl Deref for Hold {
    type Target = HoldRecord;

    fn deref(&self) -> &HoldRecord {
        &self.record
    }
}
