//! What a session knows of queues without asking.

pub(crate) mod alone;
pub(crate) mod listings;
