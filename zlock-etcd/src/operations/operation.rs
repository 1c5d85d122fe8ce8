//! One operation of a backend: its budget, and the requests that several operations send.

use std::future::Future;
use std::sync::Arc;

use etcd_client::{Client, GetOptions, GetResponse, KeyValue};
use zlock_core::kit::{Budget, SessionKey};
use zlock_core::{LockPath, Node, Queue, Result};

use crate::connection::connect::{By, kv};
use crate::error::Failure;
use crate::keys::key::{Keys, Range};
use crate::keys::revision::Reply;
use crate::requests::txn::{Answer, Request, Write};
use crate::session::{Live, Shared, lease};

/// A running operation on the queue of one path.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) keys: Keys,
    pub(crate) budget: Budget<'a, Live>,
}

impl<'a> Operation<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>, name: &'static str, path: &'a LockPath) -> Self {
        let budget = Budget::new(&shared.sessions, &shared.options.kit, name, path);
        Operation { shared, keys: Keys::new(shared.options.prefix(), path), budget }
    }

    /// Returns this as a part of other operations, which is not reported.
    pub(crate) fn unreported(mut self) -> Self {
        self.budget = self.budget.unreported();
        self
    }

    /// Sends the request of `call` to one server, and waits for the answer.
    pub(crate) async fn ask<T, F>(
        &self,
        lease: SessionKey,
        by: By,
        call: impl FnOnce(Arc<Client>) -> F + Send + 'static,
    ) -> Result<T, Failure>
    where
        T: Reply + Send + 'static,
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        let asked = self.shared.endpoints.ask(by, self.shared.options.kit.answer_time(), call);
        self.shared.send(lease, self.budget.deadline(), by, asked).await
    }

    /// Returns the key of a node, as a transaction that has changed nothing has read it.
    ///
    /// # Errors
    /// [`Failure::NodeDeleted`] if the node does not exist any more.
    pub(crate) async fn found(
        &mut self,
        lease: SessionKey,
        node: &Node,
        answer: &Answer,
    ) -> Result<KeyValue, Failure> {
        let found = answer.first().cloned().filter(|kv| kv.create_revision() == node.sequence.get());
        if found.is_none() {
            lease::missed(self.shared, lease, node).await?;
        }
        found.ok_or_else(|| self.node_deleted())
    }

    /// Reads keys linearizably: the response includes everything written before.
    pub(crate) async fn read(&self, lease: SessionKey, range: Range) -> Result<GetResponse, Failure> {
        self.get(lease, By::Cluster, range, GetOptions::new()).await
    }

    /// Reads keys in another way: as the asked member has them, if it need not ask the others.
    pub(crate) async fn get(
        &self,
        lease: SessionKey,
        by: By,
        range: Range,
        options: GetOptions,
    ) -> Result<GetResponse, Failure> {
        let options = if by == By::Member { options.with_serializable() } else { options };
        let options = range.end.into_iter().fold(options, GetOptions::with_range);
        let ask = |client: Arc<Client>| async move { kv(&client).get(range.start, Some(options)).await };
        self.ask(lease, by, ask).await
    }

    /// Parses a listing of the queue's range.
    pub(crate) fn queue(&self, lease: SessionKey, kvs: &[KeyValue]) -> Queue {
        Queue::linear(kvs.iter().filter_map(|kv| self.shared.node(lease, &self.keys, kv)).collect())
    }

    /// Returns `true` if all of these keys are places in the queue.
    pub(crate) fn are_places(&self, lease: SessionKey, kvs: &[KeyValue]) -> bool {
        kvs.iter().all(|kv| self.shared.node(lease, &self.keys, kv).is_some())
    }

    /// Sends a write, perhaps together with others, and records if its outcome is unknown.
    pub(crate) async fn write(&mut self, lease: SessionKey, write: Write) -> Result<Answer, Failure> {
        let (shared, until, write) = (self.shared, self.budget.deadline(), Arc::new(write));
        let answer = loop {
            let sent = shared.batches.send(lease, &write);
            match shared.send(lease, until, By::Member, sent).await {
                // The session was not connected any more when its turn came.
                Ok(None) => {}
                Ok(Some(answer)) => {
                    shared.sessions.resume(lease);
                    break Ok(answer);
                }
                Err(failure) => break Err(failure),
            }
        };
        self.budget.record(answer)
    }

    /// Sends a request that leaves alone, and records if its outcome is unknown.
    pub(crate) async fn write_alone(
        &mut self,
        lease: SessionKey,
        request: impl Into<Request>,
    ) -> Result<Answer, Failure> {
        let request = request.into();
        let answer = self.ask(lease, By::Cluster, |client| request.send(client)).await;
        self.budget.record(answer)
    }

    /// Returns the failure with which the operation ends, because its node no longer exists.
    pub(crate) fn node_deleted(&mut self) -> Failure {
        self.budget.ambiguous = false;
        Failure::NodeDeleted
    }
}
