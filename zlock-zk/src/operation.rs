//! One operation of a backend: its budget, and the requests that several operations send.

use std::future::Future;
use std::sync::Arc;

use tokio::time::Instant;
use zlock_core::kit::{Budget, SessionKey};
use zlock_core::{ErrorKind, Label, LastFailure, LockPath, Node, NodeId, NodeName, Queue, Result};
use zookeeper_client as zk;

use crate::error::Failure;
use crate::session::{Freshness, Live, Shared, catch_up, own_id};

/// The version that turns a version check in a transaction into a check of existence.
pub(crate) const ANY_VERSION: i32 = -1;

/// A running operation on the queue of one path.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) shared: &'a Shared,
    /// The queue's path at the server.
    server_path: Arc<str>,
    pub(crate) budget: Budget<'a, Live>,
}

impl<'a> Operation<'a> {
    pub(crate) fn new(shared: &'a Shared, name: &'static str, path: &'a LockPath) -> Self {
        let budget = Budget::new(&shared.sessions, &shared.options.kit, name, path);
        Operation { shared, server_path: shared.options.server_path(path), budget }
    }

    /// Returns the path at the server. The chroot is prepended here and not by the client library, which would not create a
    /// missing chroot.
    pub(crate) fn server_path(&self) -> Arc<str> {
        self.server_path.clone()
    }

    /// Returns the path at the server of a node in the queue.
    pub(crate) fn node_path(&self, name: &NodeName) -> String {
        [&self.server_path, "/", name.as_str()].concat()
    }

    /// Returns the ID by which the session knows the node with this ID.
    pub(crate) fn own_id(&self, node_id: &NodeId) -> NodeId {
        own_id(&self.server_path, node_id)
    }

    /// Sends the request of `call`, and waits for the answer.
    pub(crate) async fn ask<T, F>(
        &self,
        session: SessionKey,
        call: impl FnOnce(Arc<Live>) -> F,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, zk::Error>> + Send + 'static,
    {
        self.shared.request(session, self.budget.deadline(), call).await
    }

    /// [`ask`](Self::ask) for a write that is committed if this succeeds: also records when it was sent, or that its outcome is
    /// unknown.
    pub(crate) async fn write<T, F>(
        &mut self,
        session: SessionKey,
        call: impl FnOnce(Arc<Live>) -> F,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, zk::Error>> + Send + 'static,
    {
        let mut sent = None;
        let result = self.ask(session, |live| {
            sent = Some(Instant::now());
            call(live)
        });
        let result = result.await;
        if let (Ok(_), Some(sent), Some(live)) = (&result, sent, self.shared.sessions.get(session)) {
            live.touches().wrote(sent);
        }
        self.budget.record(result)
    }

    /// Returns the queue of the path. A missing path has an empty queue.
    pub(crate) async fn list(&self, session: SessionKey, freshness: Freshness) -> Result<Queue, Failure> {
        let path = self.server_path();
        let listed = self.ask(session, move |live| async move {
            let (synced, names) = tokio::join!(catch_up(&live, freshness), live.client.list_children(&path));
            synced.and(names)
        });
        match listed.await {
            Ok(names) => Ok(Queue::listed(names)),
            Err(Failure::Zk(zk::Error::NoNode)) => Ok(Queue::default()),
            Err(failure) => Err(failure),
        }
    }

    /// Returns the current name of a node that does not exist under its known name. `None` if it is gone.
    pub(crate) async fn renamed(
        &self,
        session: SessionKey,
        node: &Node,
    ) -> Result<Option<NodeName>, Failure> {
        // Such a label never changes, so the node cannot have another name by now.
        if node.label == Label::Lock {
            return Ok(None);
        }
        let queue = self.list(session, Freshness::Told).await?;
        Ok(queue.find(&node.id).map(|found| found.name.clone()))
    }

    /// Logs the reason why the operation takes so long.
    pub(crate) fn warn(&self, why: &'static str) {
        let Operation { budget, .. } = self;
        LastFailure::note(|| budget.error(ErrorKind::Unavailable).with_message(why));
        tracing::warn!(operation = budget.operation(), path = %budget.path(), why);
    }
}
