//! The backend: its operations, each as a loop of attempts. The attempts are in files of their own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use tokio::runtime::Handle;
use zlock_core::kit::{Task, repeat};
use zlock_core::{
    Background, Close, CoordinationBackend, Created, DataWrite, Deletion, Existence, Label, LockPath, Needs,
    Node, NodeData, NodeId, Queue, Result, SessionEvents, SessionTerms, Target, Watch,
};

use crate::config::PostgresOptions;
use crate::operations::create::create;
use crate::operations::delete::delete;
use crate::operations::operation::Operation;
use crate::operations::read;
use crate::operations::relabel::relabel;
use crate::operations::watch;
use crate::operations::write;
use crate::session::keep::Rows;
use crate::session::shared::Shared;

/// A PostgreSQL database as a coordination store.
///
/// A backend has one session at a time. A task keeps the session alive and runs the background work on the runtime that
/// calls [`connect`](PostgresBackend::connect). The backend works as long as that runtime does. Clients may be created and
/// used on any runtime. Dropping the backend ends its session as [`close`](CoordinationBackend::close) does, without
/// waiting for it.
#[derive(Debug)]
pub struct PostgresBackend {
    shared: Arc<Shared>,
    task: Task,
}

impl PostgresBackend {
    /// Connects and waits until a session is established.
    ///
    /// # Errors
    /// - `InvalidArgument` for invalid options, in which case nothing was sent, and if the database lacks the schema, has another
    ///   version of it, or has an isolation level or a session timeout that zlock cannot use.
    /// - `NotAuthorized` if the server refuses the user, the password, or the use of the schema.
    /// - `Unavailable` if there is no session within the connect timeout.
    ///
    /// # Cancel safety
    /// Safe: a session that is left behind owns nothing, and ends by itself.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time and I/O enabled.
    pub async fn connect(options: PostgresOptions) -> Result<Self> {
        options.validate()?;
        let shared = Arc::new(Shared::new(options, Handle::current()));
        let task = Task::connect(Rows(shared.clone())).await?;
        Ok(PostgresBackend { shared, task })
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
    pub fn connect_lazy(options: PostgresOptions) -> Result<Self> {
        options.validate()?;
        let shared = Arc::new(Shared::new(options, Handle::current()));
        let task = Task::connect_lazy(Rows(shared.clone()));
        Ok(PostgresBackend { shared, task })
    }

    /// Returns the terms of the current session, or `None` while there is no session. Performs no I/O.
    #[must_use]
    pub fn session_terms(&self) -> Option<SessionTerms> {
        self.shared.sessions.current_key()?;
        let options = &self.shared.options;
        Some(SessionTerms::new(options.kit.session_timeout, options.kit.session_timeout / 3, options.life()))
    }

    /// Returns the number of watches that are armed. Without one, the client polls nothing.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.shared.watches.len()
    }

    pub(crate) fn operation<'a>(&'a self, name: &'static str, path: &'a LockPath) -> Operation<'a> {
        Operation::new(&self.shared, name, path)
    }
}

#[async_trait]
impl CoordinationBackend for PostgresBackend {
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
        repeat!(operation.budget, |session| read::list(&operation, session, up_to))
    }

    async fn children_with_watch(&self, parent: &LockPath) -> Result<(Queue, Watch)> {
        let mut operation = self.operation("children_with_watch", parent);
        repeat!(operation.budget, |session| watch::arm_queue(&operation, session))
    }

    async fn exists_with_watch(&self, parent: &LockPath, seen: &Node) -> Result<Existence> {
        let mut operation = self.operation("exists_with_watch", parent);
        repeat!(operation.budget, |session| watch::arm_node(&operation, session, seen))
    }

    async fn relabel(&self, parent: &LockPath, node: &Node, label: Label) -> Result<Node> {
        let relabelled = node.clone().relabelled(node.name.clone(), label);
        let mut operation = self.operation("relabel", parent);
        let number = self.shared.relabels.fetch_add(1, Ordering::Relaxed) + 1;
        repeat!(operation.budget, |session| relabel(&mut operation, session, &relabelled, number))?;
        Ok(relabelled)
    }

    async fn delete(&self, parent: &LockPath, target: &Target, next: Option<&Node>) -> Result<Deletion> {
        delete(self.operation("delete", parent), target, next).await
    }

    async fn data(&self, parent: &LockPath, node: &Node) -> Result<Option<NodeData>> {
        let mut operation = self.operation("data", parent);
        repeat!(operation.budget, |session| read::content(&operation, session, node))
    }

    async fn data_with_watch(&self, parent: &LockPath, node: &Node) -> Result<Option<(Vec<u8>, Watch)>> {
        let mut operation = self.operation("data_with_watch", parent);
        repeat!(operation.budget, |session| watch::arm_data(&operation, session, node))
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
            return repeat!(operation.budget, |session| {
                write::replace(&mut operation, session, node, writes, data)
            });
        }
        repeat!(operation.budget, |session| write::set(&mut operation, session, node, data))
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
