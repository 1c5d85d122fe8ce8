//! Connections to the servers of a cluster.

pub(crate) mod connect;
pub(crate) mod dial;
pub(crate) mod endpoint;
