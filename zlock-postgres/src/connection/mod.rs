//! Connections: how one is made, what is sent over it, and the few that operations share.

pub(crate) mod dial;
pub(crate) mod link;
pub(crate) mod pool;
pub(crate) mod statement;
