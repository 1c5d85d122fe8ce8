//! The backend: its operations, each as a loop of attempts. The attempts are in files of their own.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::runtime::Handle;
use zlock_core::kit::{Task, first_session, repeat};
use zlock_core::{
    Background, Close, Consistency, CoordinationBackend, Created, DataWrite, Deletion, ErrorKind, Existence,
    Head, Label, LockPath, Needs, Node, NodeData, NodeId, Queue, Result, SessionEvents, SessionTerms, Target,
    Watch,
};
use zookeeper_client::Client;

use crate::config::ZkOptions;
use crate::operations::create::{Wanted, create};
use crate::operations::delete::delete;
use crate::operations::operation::Operation;
use crate::operations::read::content;
use crate::operations::relabel::Relabel;
use crate::operations::watch::{watch_data, watch_head, watch_node, watch_queue};
use crate::operations::write;
use crate::session::Shared;
use crate::session::heartbeat::{interval, unwritten};
use crate::session::keep::ZkSessions;
use crate::session::touches::usual_life;

/// A ZooKeeper ensemble as a coordination store.
///
/// A backend has one session at a time that owns nodes. If it has very many watches, it opens further sessions for them,
/// which own no nodes. A task keeps the session alive and runs the background work on the runtime that calls
/// [`connect`](ZkBackend::connect). The backend works as long as that runtime does. Clients may be created and used on
/// any runtime. Dropping the backend ends its session as [`close`](CoordinationBackend::close) does, without waiting
/// for it.
#[derive(Debug)]
pub struct ZkBackend {
    shared: Arc<Shared>,
    task: Task,
}

impl ZkBackend {
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
    /// Safe: no session is left behind for longer than its timeout.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    pub async fn connect(options: ZkOptions) -> Result<Self> {
        options.validate()?;
        let shared = Arc::new(Shared::new(options, Handle::current()));
        let task = Task::connect(ZkSessions::new(shared.clone())).await?;
        Ok(ZkBackend { shared, task })
    }

    /// Returns a backend at once, and connects in the background for as long as that takes. Before its first session begins,
    /// each operation waits for it within the operation timeout. The error then says why there is none.
    ///
    /// # Errors
    /// `InvalidArgument` for invalid options. If the server refuses the credentials, the operations fail with
    /// `NotAuthorized`.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    pub fn connect_lazy(options: ZkOptions) -> Result<Self> {
        options.validate()?;
        let shared = Arc::new(Shared::new(options, Handle::current()));
        let task = Task::connect_lazy(ZkSessions::new(shared.clone()));
        Ok(ZkBackend { shared, task })
    }

    /// Returns what the server granted for the current session, or `None` while there is no session. Performs no I/O.
    #[must_use]
    pub fn session_terms(&self) -> Option<SessionTerms> {
        let key = self.shared.sessions.current_key()?;
        let timeout = self.shared.sessions.get(key)?.client.session_timeout();
        let (heartbeat, half_tick) = (interval(timeout), self.shared.options.half_tick(timeout));
        let life = usual_life(timeout, half_tick, heartbeat, unwritten(timeout));
        Some(SessionTerms::new(timeout, heartbeat, life))
    }

    pub(crate) fn operation<'a>(&'a self, name: &'static str, path: &'a LockPath) -> Operation<'a> {
        Operation::new(&self.shared, name, path)
    }
}

/// For programs that also send requests of their own.
impl ZkOptions {
    /// Connects a client of the crate `zookeeper-client` with these options, in a session of its own, below the chroot. Use it
    /// for requests that locks do not need, such as writes that [check the lock's node](Self::node_path).
    ///
    /// # Errors
    /// Those of [`ZkBackend::connect`](crate::ZkBackend::connect).
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the connection is closed.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time and I/O enabled.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn f(options: zlock::zk::ZkOptions) -> Result<(), Box<dyn std::error::Error>> {
    /// let zookeeper = options.connect_client().await?;
    /// println!("{:?}", zookeeper.list_children("/app").await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_client(&self) -> Result<Client> {
        self.validate()?;
        let shared = Arc::new(Shared::new(self.clone(), Handle::current()));
        let client = first_session(&ZkSessions::new(shared)).await?.granted.client;
        let Some(chroot) = &self.kit.prefix else { return Ok(client) };
        let bad = |_| self.kit.connect_error(ErrorKind::InvalidArgument).with_message("bad chroot");
        client.chroot(chroot.as_str()).map_err(bad)
    }

    /// Returns the current servers, each `host:port`. Looks them up in DNS if a domain names them.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if the servers cannot be found in DNS.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time and I/O enabled, if the servers are looked up.
    pub async fn server_addresses(&self) -> Result<Vec<String>> {
        let unknown = |why| self.kit.connect_error(ErrorKind::Unavailable).with_message(why);
        Ok(self.servers().await.map_err(unknown)?.concat())
    }
}

#[async_trait]
impl CoordinationBackend for ZkBackend {
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
        let mut operation = self.operation("children", parent);
        repeat!(operation.budget, |session| operation.list(session, Consistency::Seen))
    }

    async fn children_with_watch(&self, parent: &LockPath) -> Result<(Queue, Watch)> {
        let mut operation = self.operation("children_with_watch", parent);
        repeat!(operation.budget, |session| watch_queue(&mut operation, session))
    }

    async fn exists_with_watch(&self, parent: &LockPath, seen: &Node) -> Result<Existence> {
        let mut operation = self.operation("exists_with_watch", parent);
        repeat!(operation.budget, |session| watch_node(&mut operation, session, seen))
    }

    async fn relabel(&self, parent: &LockPath, node: &Node, label: Label) -> Result<Node> {
        let mut operation = self.operation("relabel", parent);
        let id = operation.own_id(&node.id);
        let _hidden = self.shared.sessions.own().hide(&id);
        self.shared.names.remove(&id);
        let mut relabel = Relabel::new(node, label);
        repeat!(operation.budget, |session| relabel.attempt(&mut operation, session))
    }

    async fn delete(&self, parent: &LockPath, target: &Target, next: Option<&Node>) -> Result<Deletion> {
        delete(self.operation("delete", parent), target, next).await
    }

    async fn data(&self, parent: &LockPath, node: &Node) -> Result<Option<NodeData>> {
        let (mut operation, mut name) = (self.operation("data", parent), node.name.clone());
        repeat!(operation.budget, |session| content(&mut operation, session, node, &mut name))
    }

    async fn data_with_watch(&self, parent: &LockPath, node: &Node) -> Result<Option<(Vec<u8>, Watch)>> {
        let (mut operation, mut name) = (self.operation("data_with_watch", parent), node.name.clone());
        repeat!(operation.budget, |session| watch_data(&mut operation, session, node, &mut name))
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
        let mut name = node.name.clone();
        repeat!(operation.budget, |session| write::set(&mut operation, session, node, &mut name, data))
    }

    async fn head_with_watch(&self, parent: &LockPath) -> Result<(Option<Head>, Watch)> {
        let (mut operation, mut gone) = (self.operation("head_with_watch", parent), None);
        repeat!(operation.budget, |session| watch_head(&mut operation, session, &mut gone))
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
