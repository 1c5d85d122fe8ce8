//! One operation of a backend: its budget, and the requests that several operations send.

use std::future::Future;
use std::sync::Arc;

use etcd_client::{
    Client, Compare, CompareOp, GetOptions, GetResponse, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use zlock_core::kit::{Budget, SessionKey};
use zlock_core::{LockPath, Node, Queue, Result};

use crate::connect::kv;
use crate::error::Failure;
use crate::key::{Keys, Range};
use crate::lease;
use crate::session::{Fence, Shared};

/// A running operation on the queue of one path.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) session: &'a Shared,
    pub(crate) keys: Keys,
    pub(crate) budget: Budget<'a, Fence>,
}

impl<'a> Operation<'a> {
    pub(crate) fn new(session: &'a Shared, name: &'static str, path: &'a LockPath) -> Self {
        let budget = Budget::new(&session.sessions, &session.options.kit, name, path);
        Operation { session, keys: Keys::new(&session.options, path), budget }
    }

    /// Sends what `call` asks for, and waits for the answer.
    pub(crate) async fn ask<T, F>(
        &self,
        lease: SessionKey,
        call: impl FnOnce(Arc<Client>) -> F + Send + 'static,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        self.session.request(lease, self.budget.deadline(), call).await
    }

    /// Waits for an answer that does not come by [`ask`](Self::ask).
    pub(crate) async fn within<T>(
        &self,
        lease: SessionKey,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        self.session.within(lease, self.budget.deadline(), answer).await
    }

    /// Reads keys: all that any server was told of before.
    pub(crate) async fn read(&self, lease: SessionKey, range: Range) -> Result<GetResponse, Failure> {
        let options = range.end.map(|end| GetOptions::new().with_range(end));
        self.ask(lease, |client| async move { kv(&client).get(range.start, options).await }).await
    }

    /// The keys of the queue; also finds out, at no cost, whether one of ours is not among them any more.
    pub(crate) async fn list(&self, lease: SessionKey) -> Result<Queue, Failure> {
        let (mark, range) = (self.session.own.mark(), self.keys.range());
        let listed = self.read(lease, range.clone()).await?;
        lease::compare(self.session, lease, mark, &range, listed.kvs()).await?;
        let queue = self.keys.queue(listed.kvs());
        let revision = listed.header().map_or(0, etcd_client::ResponseHeader::revision);
        self.session.listings.note(&self.keys, &queue, revision);
        Ok(queue)
    }

    /// A transaction; remembers that its outcome is not known, if so.
    pub(crate) async fn write(&mut self, lease: SessionKey, txn: Txn) -> Result<TxnResponse, Failure> {
        let result = self.ask(lease, |client| async move { kv(&client).txn(txn).await }).await;
        self.budget.record(result)
    }
}

/// That the key is still this node, and not another of the same name.
pub(crate) fn is_still(key: &str, node: &Node) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, node.sequence.get())
}

/// Reads the range of a queue, as a part of a transaction.
pub(crate) fn get(range: Range) -> TxnOp {
    TxnOp::get(range.start, range.end.map(|end| GetOptions::new().with_range(end)))
}

/// The answers to the reads of a transaction, in order.
pub(crate) fn gets(answer: &TxnResponse) -> Vec<GetResponse> {
    let get = |answer| if let TxnOpResponse::Get(get) = answer { Some(get) } else { None };
    answer.op_responses().into_iter().filter_map(get).collect()
}

/// The revision of a transaction's answer.
pub(crate) fn revision(answer: &TxnResponse) -> i64 {
    answer.header().map_or(0, etcd_client::ResponseHeader::revision)
}
