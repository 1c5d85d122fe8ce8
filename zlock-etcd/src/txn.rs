//! Parts of transactions, and of the answers to them.

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, SortOrder, SortTarget, TxnOp, TxnOpResponse, TxnResponse,
};
use zlock_core::Node;

use crate::key::Range;

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
