//! The backend: its operations on queues, each as a loop of attempts.

use std::sync::Arc;

use async_trait::async_trait;
use zlock_core::kit::{SessionKey, Task, repeat};
use zlock_core::{
    Background, Close, CoordinationBackend, Created, DataWrite, Deletion, ErrorKind, Existence, FencingToken,
    Label, LockPath, Needs, Node, NodeData, NodeId, NodeName, Queue, Result, Sequence, SessionEvents,
    SessionTerms, StoreHistory, Target, Watch,
};

use crate::hub::{Watching, owners};
use crate::keeper::Keeper;
use crate::ledger::{Cond, Entry, Fault, Kind, Ledger, Open, Range, Read, Tx, Write};
use crate::operation::Operation;
use crate::shared::Shared;

/// A client of a store without sessions.
///
/// A backend has one session at a time. A task keeps the session alive and runs the background work on the runtime that
/// calls [`connect`](LedgerBackend::connect). The backend works as long as that runtime does. Clients may be created and
/// used on any runtime. Dropping the backend ends its session as [`close`](CoordinationBackend::close) does, without
/// waiting for it.
#[derive(Debug)]
pub struct LedgerBackend<L: Ledger> {
    pub(crate) shared: Arc<Shared<L>>,
    task: Task,
}

impl<L: Ledger> LedgerBackend<L> {
    /// Connects and waits until a session is established.
    ///
    /// # Errors
    /// - `InvalidArgument` for invalid options, in which case nothing was sent, and for a set-up of the store that zlock cannot use.
    /// - `NotAuthorized` if the store refuses the credentials or a permission.
    /// - `Unavailable` if there is no session within the connect timeout.
    ///
    /// # Cancel safety
    /// Safe: a session that is left behind owns nothing, and ends by itself.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time and I/O enabled.
    pub async fn connect(options: impl Open<Ledger = L>) -> Result<Self> {
        let (ledger, options) = options.open()?;
        let shared = Arc::new(Shared::new(ledger, options));
        let task = Task::connect(Keeper(shared.clone())).await?;
        Ok(LedgerBackend { shared, task })
    }

    /// Returns a backend at once, and connects in the background for as long as that takes. Before its first session begins,
    /// each operation waits for it within the operation timeout. The error then says why there is none.
    ///
    /// # Errors
    /// `InvalidArgument` for invalid options. If the store refuses the credentials, the operations fail with `NotAuthorized`.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time and I/O enabled.
    pub fn connect_lazy(options: impl Open<Ledger = L>) -> Result<Self> {
        let (ledger, options) = options.open()?;
        let shared = Arc::new(Shared::new(ledger, options));
        let task = Task::connect_lazy(Keeper(shared.clone()));
        Ok(LedgerBackend { shared, task })
    }

    /// Returns the adapter.
    #[must_use]
    pub fn ledger(&self) -> &L {
        &self.shared.ledger
    }

    /// Returns the terms of the current session, or `None` while there is no session. Performs no I/O.
    #[must_use]
    pub fn session_terms(&self) -> Option<SessionTerms> {
        self.shared.sessions.current_key()?;
        let timeout = self.shared.options.session_timeout;
        Some(SessionTerms::new(timeout, self.shared.beat_interval(), self.shared.life()))
    }

    /// Returns the number of watches that are armed. Without one, the client polls nothing.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.shared.hub.len()
    }

    pub(crate) fn operation<'a>(
        &'a self,
        name: &'static str,
        kind: Kind,
        path: &'a LockPath,
    ) -> Operation<'a, L> {
        Operation::new(&self.shared, name, kind, path)
    }
}

impl Entry {
    /// Returns `true` if it is this node. A create that is repeated after another client has deleted the node makes another one, with
    /// the same key at the end of the queue.
    fn is(&self, node: &Node) -> bool {
        self.created == node.sequence.get().unsigned_abs()
    }

    /// Returns the node that the entry is. Its name is its ID.
    fn node(&self) -> Node {
        let label = Label::parse(self.label.as_deref().unwrap_or_default());
        let sequence = Sequence::new(i64::try_from(self.created).unwrap_or(i64::MAX));
        Node::new(NodeName::new(&*self.key), NodeId::new(&*self.key), label, sequence)
            .with_owner(self.owner, FencingToken::new(self.created))
    }
}

fn queue(entries: &[Entry]) -> Queue {
    Queue::linear(entries.iter().map(Entry::node).collect())
}

/// Returns how many of the last entries a decision about this label needs, or `None` for all.
fn needed(label: Label) -> Option<u32> {
    label.is_exclusive().then_some(2)
}

impl<L: Ledger> Operation<'_, L> {
    /// Records what a listing of the queue shows, up to the own node. `limit` is how many entries it could have.
    fn note(&self, session: SessionKey, entries: &[Entry], limit: Option<u32>) -> Result<(), Fault> {
        if limit.is_none_or(|limit| entries.len() < limit as usize) {
            // Into the state of the session that asked, which may be over.
            let live = self.shared.live(session)?;
            live.floors.lock().raise(&self.scope, entries.iter().map(|entry| entry.created));
        }
        let ahead = owners(entries, session.id);
        self.shared.wants(&ahead);
        Ok(())
    }

    async fn create(
        &mut self,
        session: SessionKey,
        label: Label,
        node_id: &NodeId,
        data: &[u8],
    ) -> Result<Created, Fault> {
        let (key, limit) = (node_id.as_str(), needed(label));
        let read = Read {
            scope: self.scope.clone(),
            range: limit.map_or(Range::All, |limit| Range::Last { up_to: None, limit }),
            floor: self.shared.live(session)?.floors.lock().get(&self.scope),
            data: false,
        };
        let append = Write::Append {
            key: key.into(),
            owned: true,
            label: Some(label.to_string()),
            data: data.to_vec(),
        };
        let tx = Tx { scope: self.scope.clone(), when: Vec::new(), then: vec![append], read: vec![read] };
        let (mut outcome, deletion) = self.own(session, node_id, key, tx).await?;
        let (own, listed) = (outcome.written.pop().flatten(), outcome.read.pop());
        let (Some(own), Some(mut listed), Some(deletion)) = (own, listed, deletion) else {
            return Err(Fault::Unexpected("a node with this ID exists already".into()));
        };
        self.note(session, &listed, limit)?;
        let node = own.node();
        if !listed.iter().any(|entry| entry.key == own.key) {
            listed.push(own);
        }
        Ok(Created::new(node, queue(&listed), session.epoch, deletion))
    }

    async fn list(&self, session: SessionKey, up_to: Option<&Node>) -> Result<Queue, Fault> {
        let limit = up_to.and_then(|node| needed(node.label));
        let number = up_to.map(|node| node.sequence.get().unsigned_abs());
        let range = match (limit, number) {
            (Some(limit), Some(number)) => Range::Last { up_to: Some(number), limit },
            _ => Range::All,
        };
        let entries = self.read(session, range, false).await?;
        self.note(session, &entries, limit)?;
        if let Some(node) = up_to.filter(|node| !entries.iter().any(|entry| entry.key == node.id.as_str())) {
            self.missed(&node.id);
        }
        Ok(queue(&entries))
    }

    async fn entry(&self, session: SessionKey, node: &Node) -> Result<Option<Entry>, Fault> {
        let entries = self.read(session, Range::Key(node.id.as_str().to_owned()), true).await?;
        let entry = entries.into_iter().find(|entry| entry.is(node));
        if entry.is_none() {
            self.missed(&node.id);
        }
        Ok(entry)
    }

    async fn exists(&self, session: SessionKey, seen: &Node) -> Result<Existence, Fault> {
        let (entries, watching) = self.watch(session, Some(seen.id.as_str()), false).await?;
        Ok(match entries.iter().find(|entry| entry.is(seen)).map(Entry::node) {
            None => {
                self.missed(&seen.id);
                Existence::Deleted
            }
            Some(node) if node.label != seen.label => Existence::Changed(node),
            Some(node) => {
                watching.waits_behind(node.sequence.get().unsigned_abs());
                Existence::Watching(self.fires(session, watching))
            }
        })
    }

    /// Returns a watch that also fires when its session ends.
    pub(crate) fn fires(&self, session: SessionKey, watching: Watching) -> Watch {
        self.shared.sessions.watch(session, watching.fired())
    }

    /// Updates a node. Returns the entry, or `None` if there is none.
    async fn update(
        &mut self,
        session: SessionKey,
        when: Option<Cond>,
        update: &Write,
    ) -> Result<std::result::Result<Option<Entry>, Option<Entry>>, Fault> {
        let when = when.into_iter().collect();
        let tx = Tx { scope: self.scope.clone(), when, then: vec![update.clone()], read: Vec::new() };
        let mut outcome = self.transact(session, tx).await?;
        Ok(match outcome.failed {
            Some((_, found)) => Err(found),
            None => Ok(outcome.written.pop().flatten()),
        })
    }

    async fn delete(
        &mut self,
        session: SessionKey,
        target: &Target,
        next: Option<&Node>,
    ) -> Result<Option<Deletion>, Fault> {
        let key = |id: &NodeId| id.as_str().to_owned();
        let is_own = matches!(target, Target::Node(node) if node.session == Some(session.id));
        let next = next.filter(|_| is_own);
        let read = next.map(|node| Read {
            scope: self.scope.clone(),
            range: Range::Key(key(&node.id)),
            floor: 0,
            data: false,
        });
        let delete = Write::Delete { scope: self.scope.clone(), key: key(target.id()) };
        let (then, read) = (vec![delete], read.into_iter().collect());
        let tx = Tx { scope: self.scope.clone(), when: Vec::new(), then, read };
        let mut outcome = self.transact(session, tx).await?;
        let Some(deleted) = outcome.written.pop().flatten() else { return Ok(None) };
        let is_ours = |entry: &Entry| entry.owner == Some(session.id);
        let there = outcome.read.pop().unwrap_or_default();
        let is_there = next.is_some_and(|next| there.iter().any(|entry| is_ours(entry) && entry.is(next)));
        Ok(Some(if is_there && is_ours(&deleted) { Deletion::HandedOver } else { Deletion::Deleted }))
    }

    /// Handles a node that was looked up and does not exist: if it was an own node, another client deleted it, since the session
    /// lives. A node with the same ID may have been created since the look, in this session after one in the last.
    pub(crate) fn missed(&self, node_id: &NodeId) {
        self.shared.sessions.own().report_missing(self.mark, node_id);
    }

    /// Returns the error of an operation whose node no longer exists.
    fn node_deleted(&mut self, node_id: &NodeId) -> zlock_core::Error {
        self.missed(node_id);
        self.budget.ambiguous = false;
        self.budget.refuse(ErrorKind::NodeDeleted)
    }
}

#[async_trait]
impl<L: Ledger> CoordinationBackend for LedgerBackend<L> {
    async fn create_ephemeral_sequential(
        &self,
        parent: &LockPath,
        label: Label,
        node_id: &NodeId,
        data: &[u8],
        _: Needs,
    ) -> Result<Created> {
        let mut operation = self.operation("create", Kind::Queue, parent);
        operation.budget.check_node(node_id, data)?;
        if self.shared.sessions.own().contains(node_id) {
            let error = operation.budget.refuse(ErrorKind::Unexpected);
            return Err(error.with_message("a node with this ID exists already"));
        }
        let mut lost_in = None;
        repeat!(operation.budget, |session| async {
            if lost_in.is_some_and(|lost_in| lost_in != session) {
                // What was created in an earlier session is gone, because it was ended before this session began.
                (lost_in, operation.budget.ambiguous) = (None, false);
            }
            let created = operation.create(session, label, node_id, data).await;
            lost_in = operation.budget.ambiguous.then_some(session);
            created
        })
    }

    async fn children(&self, parent: &LockPath, up_to: Option<&Node>) -> Result<Queue> {
        let mut operation = self.operation("children", Kind::Queue, parent);
        repeat!(operation.budget, |session| operation.list(session, up_to))
    }

    async fn children_with_watch(&self, parent: &LockPath) -> Result<(Queue, Watch)> {
        let mut operation = self.operation("children_with_watch", Kind::Queue, parent);
        repeat!(operation.budget, |session| async {
            let (entries, watching) = operation.watch(session, None, false).await?;
            operation.note(session, &entries, None)?;
            Ok::<_, Fault>((queue(&entries), operation.fires(session, watching)))
        })
    }

    async fn exists_with_watch(&self, parent: &LockPath, seen: &Node) -> Result<Existence> {
        let mut operation = self.operation("exists_with_watch", Kind::Queue, parent);
        repeat!(operation.budget, |session| operation.exists(session, seen))
    }

    async fn relabel(&self, parent: &LockPath, node: &Node, label: Label) -> Result<Node> {
        let mut operation = self.operation("relabel", Kind::Queue, parent);
        operation.budget = operation.budget.of_node(node.session);
        let key = node.id.as_str().to_owned();
        let update = Write::Update { key: key.clone(), label: Some(label.to_string()), data: None };
        let updated = repeat!(operation.budget, |session| async {
            if node.session.is_some_and(|id| id != session.id) {
                return Err(Fault::SessionOver);
            }
            operation.update(session, Some(Cond::Own { key: key.clone() }), &update).await
        })?;
        match updated {
            Ok(Some(_)) => Ok(node.clone().relabelled(node.name.clone(), label)),
            _ => Err(operation.node_deleted(&node.id)),
        }
    }

    async fn delete(&self, parent: &LockPath, target: &Target, next: Option<&Node>) -> Result<Deletion> {
        // From here on, the backend no longer reports the deletion of the node.
        self.shared.sessions.own().remove(target.id());
        let mut operation = self.operation("delete", Kind::Queue, parent);
        if let Target::Node(node) = target {
            operation.budget = operation.budget.of_node(node.session);
        }
        let deleted = repeat!(operation.budget, |session| async {
            self.shared.live(session)?.known.lock().remove(target.id());
            operation.delete(session, target, next).await
        });
        // A request without an answer may have removed the node, too.
        let not_found = if operation.budget.ambiguous { Deletion::Deleted } else { Deletion::AlreadyDeleted };
        let deletion = match deleted {
            Ok(deletion) => Ok(deletion.unwrap_or(not_found)),
            // The node was removed with its session.
            Err(error) if error.kind() == ErrorKind::SessionLost => Ok(not_found),
            Err(error) => Err(error),
        };
        operation.budget.finish(deletion)
    }

    async fn data(&self, parent: &LockPath, node: &Node) -> Result<Option<NodeData>> {
        let mut operation = self.operation("data", Kind::Queue, parent);
        let entry = repeat!(operation.budget, |session| operation.entry(session, node))?;
        Ok(entry.map(|entry| {
            let data =
                NodeData::new(entry.data, entry.owner).with_fencing_token(FencingToken::new(entry.created));
            match entry.time {
                Some(time) => data.with_created(time),
                None => data,
            }
        }))
    }

    async fn data_with_watch(&self, parent: &LockPath, node: &Node) -> Result<Option<(Vec<u8>, Watch)>> {
        let mut operation = self.operation("data_with_watch", Kind::Queue, parent);
        repeat!(operation.budget, |session| async {
            let (entries, watching) = operation.watch(session, Some(node.id.as_str()), true).await?;
            let Some(entry) = entries.into_iter().find(|entry| entry.is(node)) else {
                operation.missed(&node.id);
                return Ok(None);
            };
            Ok::<_, Fault>(Some((entry.data, operation.fires(session, watching))))
        })
    }

    async fn write_data(
        &self,
        parent: &LockPath,
        node: &Node,
        expected: Option<u64>,
        data: &[u8],
    ) -> Result<DataWrite> {
        let mut operation = self.operation("write_data", Kind::Queue, parent);
        operation.budget.check_size(data)?;
        let key = node.id.as_str().to_owned();
        let when = expected.map(|writes| Cond::Writes { key: key.clone(), writes });
        let update = Write::Update { key, label: None, data: Some(data.to_vec()) };
        let updated = repeat!(operation.budget, |session| operation.update(session, when.clone(), &update))?;
        match (updated, expected) {
            (Ok(Some(_)), _) => Ok(DataWrite::Written),
            (Err(Some(found)), Some(writes)) => {
                // By an earlier attempt whose answer was lost.
                let is_ours = operation.budget.ambiguous && found.writes == writes + 1 && found.data == data;
                Ok(if is_ours { DataWrite::Written } else { DataWrite::Conflict(found.writes) })
            }
            _ => Err(operation.node_deleted(&node.id)),
        }
    }

    fn history(&self) -> Option<&dyn StoreHistory> {
        Some(self)
    }

    fn session_events(&self) -> SessionEvents {
        self.shared.sessions.events()
    }

    fn background(&self) -> Background {
        self.shared.sessions.background().clone()
    }

    async fn close(&self) -> Result<Close> {
        Ok(self.task.close().await)
    }
}
