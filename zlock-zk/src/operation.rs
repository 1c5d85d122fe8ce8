//! One operation of a backend: its requests, and the one budget of time and retries for all of them.

use std::future::Future;
use std::sync::Arc;

use tokio::time::Instant;
use zlock_core::{
    Error, ErrorKind, Label, LastFailure, LockPath, Node, NodeId, NodeName, Queue, Result, Retry,
};
use zookeeper_client as zk;

use crate::error::Failure;
use crate::session::{Freshness, Lease, Live, Shared, catch_up, own_id};

/// A running operation on the queue of one path.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) session: &'a Shared,
    name: &'static str,
    path: &'a LockPath,
    pub(crate) until: Instant,
    retry: Retry,
    /// Whether a write of this operation may have taken effect without our knowing.
    pub(crate) unknown: bool,
}

impl<'a> Operation<'a> {
    pub(crate) fn new(session: &'a Shared, name: &'static str, path: &'a LockPath) -> Self {
        let until = Instant::now() + session.options.operation_timeout;
        Operation { session, name, path, until, retry: session.options.retry.start(), unknown: false }
    }

    /// Begins the budget of time and retries anew.
    pub(crate) fn restart(&mut self) {
        self.until = Instant::now() + self.session.options.operation_timeout;
        self.retry = self.session.options.retry.start();
    }

    pub(crate) fn path(&self) -> &'a LockPath {
        self.path
    }

    /// The path as the server has it. The chroot is put in front here, and not by the client library, which
    /// would not make it when it is missing.
    pub(crate) fn server_path(&self) -> String {
        self.session.options.server_path(self.path)
    }

    /// The path of a node in the queue, as the server has it.
    pub(crate) fn node_path(&self, name: &NodeName) -> String {
        self.session.options.node_path(self.path, name)
    }

    /// What the session knows the node of this ID by.
    pub(crate) fn own_id(&self, node_id: &NodeId) -> NodeId {
        own_id(&self.server_path(), node_id)
    }

    /// Waits for a live session.
    pub(crate) async fn lease(&self) -> Result<Lease> {
        let leased = tokio::select! {
            biased;
            leased = self.session.lease(self.until) => leased,
            () = self.note_attempts() => Err(Failure::Closed),
        };
        leased.map_err(|failure| match failure {
            Failure::TimedOut => self.no_session(" within the operation timeout"),
            failure => self.fail(failure),
        })
    }

    /// Notes that there is no session, and with each attempt at one why.
    async fn note_attempts(&self) {
        let mut attempts = self.session.no_session.subscribe();
        loop {
            attempts.mark_unchanged();
            LastFailure::note(|| self.no_session(""));
            if attempts.changed().await.is_err() {
                return;
            }
        }
    }

    /// The error while there is no session, with what the last attempt at one has come to.
    fn no_session(&self, within: &str) -> Error {
        let hosts = self.session.options.hosts_text();
        let error =
            self.error(ErrorKind::Unavailable).with_message(format!("no session with {hosts}{within}"));
        match self.session.no_session.borrow().clone() {
            Some(cause) => error.with_source(cause),
            None => error,
        }
    }

    /// Sends what `call` asks for, and waits for the answer.
    pub(crate) async fn ask<T, F>(
        &self,
        lease: Lease,
        call: impl FnOnce(Arc<Live>) -> F,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, zk::Error>> + Send + 'static,
    {
        self.session.request(lease, self.until, call).await
    }

    /// [`ask`](Self::ask) for a write: remembers that its outcome is not known, if so.
    pub(crate) async fn write<T, F>(
        &mut self,
        lease: Lease,
        call: impl FnOnce(Arc<Live>) -> F,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, zk::Error>> + Send + 'static,
    {
        let result = self.ask(lease, call).await;
        if let Err(failure) = &result {
            self.unknown |= failure.verdict().ambiguous;
        }
        result
    }

    /// The queue of the path. A missing one is empty.
    pub(crate) async fn list(&self, lease: Lease, freshness: Freshness) -> Result<Queue, Failure> {
        let path = self.server_path();
        let listed = self.ask(lease, move |live| async move {
            let (synced, names) = tokio::join!(catch_up(&live, freshness), live.client.list_children(&path));
            synced.and(names)
        });
        match listed.await {
            Ok(names) => Ok(Queue::listed(names)),
            Err(Failure::Zk(zk::Error::NoNode)) => Ok(Queue::default()),
            Err(failure) => Err(failure),
        }
    }

    /// The name by now of a node that is not there under the one that we knew; `None` if it is gone.
    pub(crate) async fn renamed(&self, lease: Lease, node: &Node) -> Result<Option<NodeName>, Failure> {
        // A label that is never changed: there is no other name that the node could have by now.
        if node.label == Label::Lock {
            return Ok(None);
        }
        let queue = self.list(lease, Freshness::Told).await?;
        Ok(queue.find(&node.id).map(|found| found.name.clone()))
    }

    /// Waits before another try, or says why there is none.
    pub(crate) async fn again(&mut self, failure: Failure) -> Result<()> {
        if !failure.verdict().retryable {
            return Err(self.fail(failure));
        }
        // The next session is waited for, not tried for.
        if failure.verdict().kind == ErrorKind::SessionLost {
            LastFailure::note(|| self.fail(failure));
            return Ok(());
        }
        let Some(delay) = self.retry.next_delay() else {
            return Err(self.fail(failure));
        };
        tracing::debug!(operation = self.name, path = %self.path, ?delay, ?failure, "trying again");
        let until = Instant::now() + delay;
        if until >= self.until {
            return Err(self.fail(failure));
        }
        LastFailure::note(|| self.fail(failure));
        self.session.pause(until).await.map_err(|failure| self.fail(failure))
    }

    /// Logs what somebody should know who wonders why the operation takes so long.
    pub(crate) fn warn(&self, why: &'static str) {
        LastFailure::note(|| self.error(ErrorKind::Unavailable).with_message(why));
        tracing::warn!(operation = self.name, path = %self.path, why);
    }

    /// The error that this failure ends the operation with.
    pub(crate) fn fail(&self, failure: Failure) -> Error {
        let error = self.error(failure.verdict().kind);
        failure.explain(error)
    }

    pub(crate) fn error(&self, kind: ErrorKind) -> Error {
        let error = Error::new(kind, self.name).with_path(self.path);
        if self.unknown { error.ambiguous() } else { error }
    }
}
