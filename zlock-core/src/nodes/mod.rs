//! The nodes of a store: their names, their order in a queue, and a session's own ones.

pub(crate) mod label;
pub(crate) mod name;
pub(crate) mod node;
pub(crate) mod node_id;
pub(crate) mod own_nodes;
pub(crate) mod path;
pub(crate) mod queue;
pub(crate) mod sequence;
