//! Parts of transactions, and of the answers to them.

use std::sync::Arc;

use etcd_client::{
    Client, Compare, CompareOp, DeleteResponse, Error, GetOptions, GetResponse, KeyValue, ResponseHeader,
    SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use zlock_core::Node;

use crate::connection::connect::kv;
use crate::keys::key::{Keys, Range};
use crate::keys::revision::Reply;

/// A request that writes.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Txn(Txn),
    /// Deletes the key, whichever node has it.
    Delete(String),
}

impl Request {
    pub(crate) async fn send(self, client: Arc<Client>) -> Result<Answer, Error> {
        match self {
            Request::Txn(txn) => kv(&client).txn(txn).await.map(Answer::of),
            Request::Delete(key) => kv(&client).delete(key, None).await.map(Answer::of_delete),
        }
    }

    /// Returns the request as a part of a transaction.
    pub(crate) fn nested(self) -> TxnOp {
        match self {
            Request::Txn(txn) => TxnOp::txn(txn),
            Request::Delete(key) => TxnOp::delete(key, None),
        }
    }
}

impl From<Txn> for Request {
    fn from(txn: Txn) -> Self {
        Request::Txn(txn)
    }
}

/// A request that writes or deletes one key of a queue.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) keys: Keys,
    pub(crate) request: Request,
    /// The key that is written.
    key: String,
    /// The number of operations of a transaction, as etcd counts them.
    pub(crate) operations: usize,
    /// About the size of the request.
    pub(crate) bytes: usize,
}

impl Write {
    /// The number of [`checks`](Self::checks).
    pub(crate) const CHECKS: usize = 2;

    /// A transaction. The value is `size` bytes long.
    pub(crate) fn new(
        keys: &Keys,
        key: &str,
        size: usize,
        when: Vec<Compare>,
        then: Vec<TxnOp>,
        or_else: Vec<TxnOp>,
    ) -> Self {
        let operations = when.len().max(then.len()).max(or_else.len());
        // Each condition and each operation has about one key.
        let bytes = size + (when.len() + then.len() + or_else.len()) * (key.len() + 32);
        let request = Request::Txn(Txn::new().when(when).and_then(then).or_else(or_else));
        Write { keys: keys.clone(), request, key: key.to_owned(), operations, bytes }
    }

    /// A delete without a condition.
    pub(crate) fn plain_delete(keys: &Keys, key: &str) -> Self {
        let request = Request::Delete(key.to_owned());
        Write { keys: keys.clone(), request, key: key.to_owned(), operations: 0, bytes: key.len() + 32 }
    }

    /// Returns operations that need the same permissions.
    pub(crate) fn checks(&self) -> [TxnOp; Self::CHECKS] {
        [TxnOp::delete(self.key.as_str(), None), get(self.keys.range())]
    }
}

/// The answer to a request that writes.
#[derive(Debug)]
pub(crate) struct Answer {
    header: Option<ResponseHeader>,
    succeeded: bool,
    responses: Vec<TxnOpResponse>,
}

impl Reply for Answer {
    fn header(&self) -> Option<&ResponseHeader> {
        self.header()
    }
}

impl Answer {
    pub(crate) fn of(mut txn: TxnResponse) -> Self {
        let header = txn.take_header();
        Answer { header, succeeded: txn.succeeded(), responses: txn.op_responses() }
    }

    fn of_delete(mut delete: DeleteResponse) -> Self {
        let header = delete.take_header();
        Answer { header, succeeded: true, responses: vec![TxnOpResponse::Delete(delete)] }
    }

    /// Splits the answer to a transaction whose operations are [nested](Request::nested) requests. They are executed at the
    /// same revision, but only the header of the outer answer says which one it was.
    pub(crate) fn nested(self) -> Vec<Self> {
        let Answer { header, responses, .. } = self;
        let answers = responses.into_iter().filter_map(|response| match response {
            TxnOpResponse::Txn(txn) => Some(Answer { header: header.clone(), ..Answer::of(txn) }),
            TxnOpResponse::Delete(delete) => {
                Some(Answer { header: header.clone(), ..Answer::of_delete(delete) })
            }
            _ => None,
        });
        answers.collect()
    }

    pub(crate) fn header(&self) -> Option<&ResponseHeader> {
        self.header.as_ref()
    }

    /// Returns `true` if the conditions were met.
    pub(crate) fn succeeded(&self) -> bool {
        self.succeeded
    }

    /// Returns the answers to the reads, in order.
    pub(crate) fn gets(&self) -> Vec<&GetResponse> {
        let gets = self.responses.iter().filter_map(|response| match response {
            TxnOpResponse::Get(get) => Some(get),
            _ => None,
        });
        gets.collect()
    }

    /// Returns the first key that was read.
    pub(crate) fn first(&self) -> Option<&KeyValue> {
        self.gets().into_iter().next()?.kvs().first()
    }

    /// Returns `true` if a key was deleted.
    pub(crate) fn has_deleted(&self) -> bool {
        let has_deleted = |response: &TxnOpResponse| matches!(response, TxnOpResponse::Delete(delete) if delete.deleted() > 0);
        self.responses.iter().any(has_deleted)
    }
}

/// The condition that the key is still this node, and not a later one with the same name.
pub(crate) fn is_still(key: &str, node: &Node) -> Compare {
    was_created_at(key, node.sequence.get())
}

/// The condition that the key was created at this revision; 0 means that it does not exist.
pub(crate) fn was_created_at(key: &str, revision: i64) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, revision)
}

/// Reads the range of a queue, as a part of a transaction.
pub(crate) fn get(range: Range) -> TxnOp {
    TxnOp::get(range.start, range.end.map(|end| GetOptions::new().with_range(end)))
}

/// Reads the two keys of the range that were created last.
pub(crate) fn get_last_two(range: Range) -> TxnOp {
    TxnOp::get(range.start, Some(range.end.into_iter().fold(last_two(), GetOptions::with_range)))
}

/// Options for the two keys of a range that were created last.
pub(crate) fn last_two() -> GetOptions {
    GetOptions::new().with_sort(SortTarget::Create, SortOrder::Descend).with_limit(2)
}

/// Returns the answers to the reads of a transaction, in order.
pub(crate) fn gets(answer: &TxnResponse) -> Vec<GetResponse> {
    let get = |answer| if let TxnOpResponse::Get(get) = answer { Some(get) } else { None };
    answer.op_responses().into_iter().filter_map(get).collect()
}
