//! One operation of a backend: its requests, and the one budget of time and retries for all of them.

use std::future::Future;
use std::sync::Arc;

use etcd_client::{
    Client, Compare, CompareOp, GetOptions, GetResponse, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use tokio::time::Instant;
use zlock_core::{Error, ErrorKind, LastFailure, LockPath, Node, Queue, Result, Retry};

use crate::connect::kv;
use crate::error::Failure;
use crate::key::{Keys, Range};
use crate::lease;
use crate::session::{Lease, Shared};

/// A running operation on the queue of one path.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) session: &'a Shared,
    pub(crate) keys: Keys,
    name: &'static str,
    path: &'a LockPath,
    until: Instant,
    retry: Retry,
    /// Whether a write of this operation may have taken effect without our knowing.
    pub(crate) unknown: bool,
}

impl<'a> Operation<'a> {
    pub(crate) fn new(session: &'a Shared, name: &'static str, path: &'a LockPath) -> Self {
        let until = Instant::now() + session.options.operation_timeout;
        let keys = Keys::new(&session.options, path);
        Operation { session, keys, name, path, until, retry: session.options.retry.start(), unknown: false }
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
        call: impl FnOnce(Arc<Client>) -> F + Send + 'static,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        self.session.request(lease, self.until, call).await
    }

    /// Waits for an answer that does not come by [`ask`](Self::ask).
    pub(crate) async fn within<T>(
        &self,
        lease: Lease,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        self.session.within(lease, self.until, answer).await
    }

    /// Reads keys: all that any server was told of before.
    pub(crate) async fn read(&self, lease: Lease, range: Range) -> Result<GetResponse, Failure> {
        let options = range.end.map(|end| GetOptions::new().with_range(end));
        self.ask(lease, |client| async move { kv(&client).get(range.start, options).await }).await
    }

    /// The keys of the queue; also finds out, at no cost, whether one of ours is not among them any more.
    pub(crate) async fn list(&self, lease: Lease) -> Result<Queue, Failure> {
        let (mark, range) = (self.session.own.mark(), self.keys.range());
        let listed = self.read(lease, range.clone()).await?;
        lease::compare(self.session, lease, mark, &range, listed.kvs()).await?;
        let queue = self.keys.queue(listed.kvs());
        let revision = listed.header().map_or(0, etcd_client::ResponseHeader::revision);
        self.session.listings.note(&self.keys, &queue, revision);
        Ok(queue)
    }

    /// A transaction; remembers that its outcome is not known, if so.
    pub(crate) async fn write(&mut self, lease: Lease, txn: Txn) -> Result<TxnResponse, Failure> {
        let result = self.ask(lease, |client| async move { kv(&client).txn(txn).await }).await;
        if let Err(failure) = &result {
            self.unknown |= failure.verdict().ambiguous;
        }
        result
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
