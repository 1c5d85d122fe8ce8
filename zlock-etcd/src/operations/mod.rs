//! The operations: the requests of each attempt, and their way to the server.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod detached;
pub(crate) mod head;
pub(crate) mod operation;
pub(crate) mod read;
pub(crate) mod relabel;
pub(crate) mod watch;
pub(crate) mod write;
