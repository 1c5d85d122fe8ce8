//! The contract, on the mem server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::time::timeout;
use zlock_core::kit::Task;
use zlock_core::{
    Background, Close, CloseReason, CoordinationBackend, Created, DataWrite, Deletion, Existence, Head,
    Label, LockPath, Needs, Node, NodeData, NodeId, NodeName, Queue, Result, SessionEvents, SessionTerms,
    Target, Watch,
};

use crate::armed::Arming;
use crate::create::{Wanted, create};
use crate::mem_link::MemLink;
use crate::operation::Operation;
use crate::options::MemOptions;
use crate::request::{Answer, Request};
use crate::server::MemServer;
use crate::session::Shared;

/// Clients.
impl MemServer {
    /// Connects a new client with the default options. See [`connect_with`](Self::connect_with).
    #[must_use]
    pub fn connect(&self) -> MemBackend {
        self.connect_with(MemOptions::default())
    }

    /// Connects a new client, which has its own session.
    ///
    /// Inside a tokio runtime, the client is connected when this returns, unless the server is stopped or just busy with another thread's
    /// request. Elsewhere, its first
    /// operation connects it. The runtime of that call keeps the session alive and runs the background work, whatever runtimes
    /// the client is used on. While that runtime is not being driven, the session is lost at its deadline. When it ends, the client
    /// ends with it: operations fail with `Closed`, and the server removes the client's nodes when the session expires.
    ///
    /// All runtimes that share a server must use the same clock. A runtime with paused time (`start_paused`) together with
    /// one with real time is like two machines whose clocks run at different speeds, for which no lock is safe.
    #[must_use]
    pub fn connect_with(&self, options: MemOptions) -> MemBackend {
        let shared = Arc::new(Shared::new(self.0.clone(), options));
        if Handle::try_current().is_ok() {
            shared.connect_now();
        }
        let backend = MemBackend { shared, has_task: AtomicBool::new(false), ended: AtomicBool::new(false) };
        backend.keep_task();
        backend
    }
}

/// One client of a [`MemServer`], with one session at a time. Created by [`MemServer::connect`]. Dropping it closes its
/// session.
///
/// Requests are divided, counted and ordered as on ZooKeeper. Those of one client take effect in the order in which
/// they were sent, a create and its listing are sent together, and a missing parent costs two more requests.
#[derive(Debug)]
pub struct MemBackend {
    pub(crate) shared: Arc<Shared>,
    /// `true` once a task keeps the sessions alive.
    has_task: AtomicBool,
    /// `true` once the server has confirmed the end of the session.
    ended: AtomicBool,
}

impl MemBackend {
    /// Returns the link between this client and the server, through which a test injects network faults.
    #[must_use]
    pub fn link(&self) -> MemLink {
        MemLink::new(&self.shared.server, self.shared.client)
    }

    /// Returns the terms of the client's sessions, according to its options. Performs no I/O.
    #[must_use]
    pub fn session_terms(&self) -> SessionTerms {
        let options = &self.shared.options;
        SessionTerms::new(options.kit.session_timeout, options.interval(), options.certain())
    }

    /// Starts the session task at the first call inside a runtime.
    fn keep_task(&self) {
        if Handle::try_current().is_err() || self.has_task.swap(true, Ordering::Relaxed) {
            return;
        }
        let home = Home(self.shared.clone());
        // Closing the backend ends the session directly, so the task needs no handle.
        drop(Task::spawn(
            &self.shared.sessions,
            || {},
            |_| async move {
                home.0.keep_sessions().await;
                Close::Pending
            },
        ));
    }

    pub(crate) fn operation<'a>(&'a self, name: &'static str, path: &'a LockPath) -> Operation<'a> {
        // Panics outside a runtime, even if the answer would be available at once, because with any delay it would not be.
        let _ = Handle::current();
        self.keep_task();
        Operation::new(&self.shared, name, path)
    }
}

/// The session task ends with the backend, or is dropped with its runtime. From then on, no session is kept alive.
struct Home(Arc<Shared>);

impl Drop for Home {
    fn drop(&mut self) {
        self.0.sessions.close(CloseReason::Requested);
    }
}

#[async_trait]
impl CoordinationBackend for MemBackend {
    async fn create_ephemeral_sequential(
        &self,
        parent: &LockPath,
        label: Label,
        node_id: &NodeId,
        data: &[u8],
        needs: Needs,
    ) -> Result<Created> {
        let wanted = Wanted { label, node_id, data, needs };
        create(self.operation("create", parent), wanted).await
    }

    async fn children(&self, parent: &LockPath, _: Option<&Node>) -> Result<Queue> {
        let (_, queue) = self.operation("children", parent).list(|| None).await?;
        Ok(queue)
    }

    async fn children_with_watch(&self, parent: &LockPath) -> Result<(Queue, Watch)> {
        let mut armed = Arming::default();
        let watcher = || Some(armed.renew(&self.shared.server));
        let (session, queue) = self.operation("children_with_watch", parent).list(watcher).await?;
        Ok((queue, armed.watch(&self.shared, session)))
    }

    async fn exists_with_watch(&self, parent: &LockPath, seen: &Node) -> Result<Existence> {
        let mut operation = self.operation("exists_with_watch", parent);
        loop {
            let mut armed = Arming::default();
            let request = || Request::Watch {
                parent: parent.clone(),
                name: seen.name.as_str().into(),
                watcher: armed.renew(&self.shared.server),
            };
            match operation.ask(request).await? {
                (session, Answer::Done) => {
                    return Ok(Existence::Watching(armed.watch(&self.shared, session)));
                }
                (_, Answer::NoNode) if seen.label.is_fixed() => return Ok(Existence::Deleted),
                (_, Answer::NoNode) => match operation.find(&seen.id).await? {
                    None => return Ok(Existence::Deleted),
                    // Its create took effect in another session of the client, at another place.
                    Some(node) if node.sequence != seen.sequence => return Ok(Existence::Deleted),
                    Some(node) if node.label != seen.label => return Ok(Existence::Changed(node)),
                    // The node has its old label again: try again to watch it.
                    Some(_) => {}
                },
                (_, answer) => return Err(operation.unexpected(&answer)),
            }
        }
    }

    async fn relabel(&self, parent: &LockPath, node: &Node, label: Label) -> Result<Node> {
        let mut operation = self.operation("relabel", parent);
        let to = NodeName::of(&node.id, label, node.sequence);
        let done = node.clone().relabelled(to.clone(), label);
        let mut from = node.name.clone();
        // The node is not hidden from the heartbeat, which lists IDs, and a relabel keeps the ID.
        loop {
            let session = operation.session_of(node).await?;
            let (from_, to_) = (from.as_str().into(), to.as_str().into());
            let request = Request::Relabel { parent: parent.clone(), from: from_, to: to_ };
            match operation.ask_in(session, request).await {
                Ok(Answer::Done) => return operation.budget.finish(Ok(done)),
                Ok(Answer::NoNode) => match operation.find(&node.id).await? {
                    Some(found) if found.name == to => return Ok(done),
                    Some(found) => from = found.name,
                    None => {
                        operation.session_of(node).await?;
                        self.shared.sessions.own().report_deleted(&node.id);
                        return Err(operation.node_deleted());
                    }
                },
                Ok(answer) => return Err(operation.unexpected(&answer)),
                Err(failure) => operation.budget.retry(failure).await?,
            }
        }
    }

    async fn delete(&self, parent: &LockPath, target: &Target, next: Option<&Node>) -> Result<Deletion> {
        let mut operation = self.operation("delete", parent);
        self.shared.sessions.own().remove(target.id());
        operation.delete(target, next).await
    }

    async fn data(&self, parent: &LockPath, node: &Node) -> Result<Option<NodeData>> {
        let read = self.operation("data", parent).read(node, || None).await?;
        Ok(read.map(|(_, data)| data))
    }

    async fn data_with_watch(&self, parent: &LockPath, node: &Node) -> Result<Option<(Vec<u8>, Watch)>> {
        let mut armed = Arming::default();
        let watcher = || Some(armed.renew(&self.shared.server));
        let read = self.operation("data_with_watch", parent).read(node, watcher).await?;
        Ok(read.map(|(session, node)| (node.data, armed.watch(&self.shared, session))))
    }

    async fn write_data(
        &self,
        parent: &LockPath,
        node: &Node,
        expected: Option<u64>,
        data: &[u8],
    ) -> Result<DataWrite> {
        let mut operation = self.operation("write_data", parent);
        operation.budget.check_size(data)?;
        let mut name = node.name.clone();
        loop {
            let request = || Request::SetData {
                parent: parent.clone(),
                name: name.as_str().into(),
                data: data.into(),
                writes: expected,
            };
            match operation.ask(request).await?.1 {
                Answer::Done => return Ok(DataWrite::Written),
                // By a request of this call whose answer was lost.
                Answer::Written { writes: now, data: is }
                    if operation.budget.ambiguous && Some(now) == expected.map(|n| n + 1) && is == data =>
                {
                    return Ok(DataWrite::Written);
                }
                Answer::Written { writes: now, .. } => return Ok(DataWrite::Conflict(now)),
                Answer::NoNode => match operation.renamed(node).await? {
                    Some(now) => name = now,
                    None => return Err(operation.node_deleted()),
                },
                answer => return Err(operation.unexpected(&answer)),
            }
        }
    }

    async fn head_with_watch(&self, parent: &LockPath) -> Result<(Option<Head>, Watch)> {
        let mut operation = self.operation("head_with_watch", parent);
        loop {
            let (_, queue) = operation.list(|| None).await?;
            let mut armed = Arming::default();
            let watcher = || Some(armed.renew(&self.shared.server));
            let Some(node) = queue.first() else {
                let (session, queue) = operation.list(watcher).await?;
                if queue.is_empty() {
                    return Ok((None, armed.watch(&self.shared, session)));
                }
                continue;
            };
            if let Some((session, told)) = operation.read(node, watcher).await?
                && let Some(token) = told.fencing_token
            {
                let head = Head::new(node.clone(), told.data, token);
                return Ok((Some(head), armed.watch(&self.shared, session)));
            }
        }
    }

    fn session_events(&self) -> SessionEvents {
        // Whatever waits for the first session needs a task that begins it.
        self.keep_task();
        self.shared.sessions.events()
    }

    fn background(&self) -> Background {
        self.shared.sessions.background().clone()
    }

    async fn close(&self) -> Result<Close> {
        let had_session = self.shared.sessions.last_seen().epoch > 0;
        let ended = match self.shared.close() {
            // Without an answer, the session ends by itself.
            Some(answer) => timeout(Task::CLOSE_TIMEOUT, answer).await.is_ok_and(|answer| answer.is_ok()),
            None => !had_session,
        };
        let ended = self.ended.fetch_or(ended, Ordering::Relaxed) || ended;
        Ok(if ended { Close::Ended } else { Close::Pending })
    }
}

impl Drop for MemBackend {
    fn drop(&mut self) {
        drop(self.shared.close());
        self.shared.server.with(|state, _| {
            if let Some(link) = state.links.get_mut(&self.shared.client) {
                link.forgotten = true;
            }
            state.mark(self.shared.client);
        });
    }
}
