//! The backend: its operations, each as a loop of attempts. The attempts are in files of their own.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::runtime::Handle;
use zlock_core::kit::{Task, repeat};
use zlock_core::{
    Background, Close, CoordinationBackend, Created, DataWrite, Deletion, Existence, Head, Label, LockPath,
    Needs, Node, NodeData, NodeId, Queue, Result, SessionEvents, SessionTerms, Target, Watch,
};

use crate::config::EtcdOptions;
use crate::operations::create::create;
use crate::operations::delete::delete;
use crate::operations::head::arm_head;
use crate::operations::operation::Operation;
use crate::operations::read;
use crate::operations::relabel::relabel;
use crate::operations::watch;
use crate::operations::write::{self, Now};
use crate::session::Shared;
use crate::session::keep::Leases;

/// An etcd cluster as a coordination store.
///
/// A backend has one session at a time. A task keeps the session alive and runs the background work on the runtime that
/// calls [`connect`](EtcdBackend::connect). The backend works as long as that runtime does. Clients may be created and
/// used on any runtime. Dropping the backend ends its session as [`close`](CoordinationBackend::close) does, without
/// waiting for it.
#[derive(Debug)]
pub struct EtcdBackend {
    shared: Arc<Shared>,
    task: Task,
}

impl EtcdBackend {
    /// Connects and waits until a session is established.
    ///
    /// # Errors
    /// - `InvalidArgument` for invalid options. Nothing was sent.
    /// - `NotAuthorized` if the server refuses the credentials.
    /// - `Unavailable` if there is no session within the connect timeout. The message says what is wrong with each
    ///   host. The call fails earlier if waiting is pointless for all hosts: at once for hosts that speak another
    ///   protocol, and after two lookups 5 seconds apart for names that do not resolve.
    ///
    /// # Cancel safety
    /// Safe: no session is left behind for longer than its TTL.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time and I/O enabled.
    pub async fn connect(options: EtcdOptions) -> Result<Self> {
        options.validate()?;
        let shared = Arc::new(Shared::new(options, Handle::current()));
        let task = Task::connect(Leases::new(shared.clone())).await?;
        Ok(EtcdBackend { shared, task })
    }

    /// Returns a backend at once, and connects in the background for as long as that takes. Before its first session begins,
    /// each operation waits for it within the operation timeout. The error then says why there is none.
    ///
    /// # Errors
    /// `InvalidArgument` for invalid options. If the server refuses the credentials, the operations fail with
    /// `NotAuthorized`.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time and I/O enabled.
    pub fn connect_lazy(options: EtcdOptions) -> Result<Self> {
        options.validate()?;
        let shared = Arc::new(Shared::new(options, Handle::current()));
        let task = Task::connect_lazy(Leases::new(shared.clone()));
        Ok(EtcdBackend { shared, task })
    }

    /// Returns what the server granted for the current session, or `None` while there is no session. Performs no I/O.
    #[must_use]
    pub fn session_terms(&self) -> Option<SessionTerms> {
        let key = self.shared.sessions.current_key()?;
        let live = self.shared.sessions.get(key)?;
        Some(SessionTerms::new(live.ttl, live.ttl / 3, live.life))
    }

    pub(crate) fn operation<'a>(&'a self, name: &'static str, path: &'a LockPath) -> Operation<'a> {
        Operation::new(&self.shared, name, path)
    }
}

#[async_trait]
impl CoordinationBackend for EtcdBackend {
    async fn create_ephemeral_sequential(
        &self,
        parent: &LockPath,
        label: Label,
        node_id: &NodeId,
        data: &[u8],
        _: Needs,
    ) -> Result<Created> {
        create(self.operation("create", parent), label, node_id, data).await
    }

    async fn children(&self, parent: &LockPath, up_to: Option<&Node>) -> Result<Queue> {
        let mut operation = self.operation("children", parent);
        repeat!(operation.budget, |lease| read::list(&operation, lease, up_to))
    }

    async fn children_with_watch(&self, parent: &LockPath) -> Result<(Queue, Watch)> {
        let mut operation = self.operation("children_with_watch", parent);
        repeat!(operation.budget, |lease| watch::arm_queue(&operation, lease))
    }

    async fn exists_with_watch(&self, parent: &LockPath, seen: &Node) -> Result<Existence> {
        let mut operation = self.operation("exists_with_watch", parent);
        repeat!(operation.budget, |lease| watch::arm_node(&operation, lease, seen))
    }

    async fn relabel(&self, parent: &LockPath, node: &Node, label: Label) -> Result<Node> {
        let relabelled = node.clone().relabelled(node.name.clone(), label);
        let mut operation = self.operation("relabel", parent);
        repeat!(operation.budget, |lease| relabel(&mut operation, lease, &relabelled))?;
        Ok(relabelled)
    }

    async fn delete(&self, parent: &LockPath, target: &Target, next: Option<&Node>) -> Result<Deletion> {
        delete(self.operation("delete", parent), target, next).await
    }

    async fn data(&self, parent: &LockPath, node: &Node) -> Result<Option<NodeData>> {
        let mut operation = self.operation("data", parent);
        repeat!(operation.budget, |lease| read::content(&operation, lease, node))
    }

    async fn data_with_watch(&self, parent: &LockPath, node: &Node) -> Result<Option<(Vec<u8>, Watch)>> {
        let mut operation = self.operation("data_with_watch", parent);
        repeat!(operation.budget, |lease| watch::arm_data(&operation, lease, node))
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
        if let Some(writes) = expected {
            return repeat!(operation.budget, |lease| {
                write::replace(&mut operation, lease, node, writes, data)
            });
        }
        let mut now = Now::of(node);
        repeat!(operation.budget, |lease| write::set(&mut operation, lease, node, &mut now, data))
    }

    async fn head_with_watch(&self, parent: &LockPath) -> Result<(Option<Head>, Watch)> {
        let mut operation = self.operation("head_with_watch", parent);
        repeat!(operation.budget, |lease| arm_head(&operation, lease))
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
