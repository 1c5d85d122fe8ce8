//! Connections: how one is made, what is sent over it.

pub(crate) mod dial;
pub(crate) mod link;
pub(crate) mod rows;
