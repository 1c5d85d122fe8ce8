//! The operations: the way of a request to the server, and the attempts at each operation.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod operation;
pub(crate) mod read;
pub(crate) mod relabel;
pub(crate) mod watch;
pub(crate) mod write;
