//! The requests of each operation.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod listing;
pub(crate) mod operation;
pub(crate) mod read;
pub(crate) mod relabel;
pub(crate) mod watch;
pub(crate) mod write;
