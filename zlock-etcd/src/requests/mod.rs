//! Transactions: their parts, how they leave together, and the fences among them.

pub(crate) mod batch;
pub(crate) mod fence;
pub(crate) mod txn;
