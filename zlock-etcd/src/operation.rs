//! One operation of a backend: its budget, and the requests that several operations send.

use std::future::Future;
use std::sync::Arc;

use etcd_client::{Client, GetOptions, GetResponse, KeyValue};
use zlock_core::kit::{Budget, SessionKey};
use zlock_core::{LockPath, Queue, Result};

use crate::connect::{By, kv};
use crate::error::Failure;
use crate::key::{Keys, Range};
use crate::revision;
use crate::session::{Live, Shared};
use crate::txn::{Answer, Request, Write};

/// A running operation on the queue of one path.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) keys: Keys,
    pub(crate) budget: Budget<'a, Live>,
}

impl<'a> Operation<'a> {
    pub(crate) fn new(shared: &'a Shared, name: &'static str, path: &'a LockPath) -> Self {
        let budget = Budget::new(&shared.sessions, &shared.options.kit, name, path);
        Operation { shared, keys: Keys::new(shared.options.prefix(), path), budget }
    }

    /// Sends the request of `call`, and waits for the answer.
    pub(crate) async fn ask<T, F>(
        &self,
        lease: SessionKey,
        call: impl FnOnce(Arc<Client>) -> F + Send + 'static,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        self.shared.request(lease, By::Cluster, self.budget.deadline(), call).await
    }

    /// Waits for an answer that does not come through [`ask`](Self::ask).
    pub(crate) async fn within<T>(
        &self,
        lease: SessionKey,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        self.shared.within(lease, self.budget.deadline(), answer).await
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
        let read = self.shared.request(lease, by, self.budget.deadline(), ask).await?;
        self.shared.newest.saw(revision::of(read.header()));
        Ok(read)
    }

    /// Parses a listing of the queue's range.
    pub(crate) fn queue(&self, lease: SessionKey, kvs: &[KeyValue]) -> Queue {
        Queue::linear(kvs.iter().filter_map(|kv| self.shared.node(lease, &self.keys, kv)).collect())
    }

    /// Sends a write, perhaps together with others, and records if its outcome is unknown.
    pub(crate) async fn write(&mut self, lease: SessionKey, write: Write) -> Result<Answer, Failure> {
        let answer = self.shared.write(lease, self.budget.deadline(), write).await;
        self.wrote(answer)
    }

    /// Sends a request that leaves alone, and records if its outcome is unknown.
    pub(crate) async fn write_alone(
        &mut self,
        lease: SessionKey,
        request: impl Into<Request>,
    ) -> Result<Answer, Failure> {
        let request = request.into();
        let answer = self.ask(lease, |client| request.send(client)).await;
        self.wrote(answer)
    }

    fn wrote(&mut self, answer: Result<Answer, Failure>) -> Result<Answer, Failure> {
        if let Ok(answer) = &answer {
            self.shared.newest.saw(revision::of(answer.header()));
        }
        self.budget.record(answer)
    }
}
