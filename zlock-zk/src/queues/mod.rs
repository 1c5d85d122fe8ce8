//! What a session knows of queues without asking.

#[allow(unreachable_pub, reason = "public with the feature `unstable`")]
pub(crate) mod alone;
pub(crate) mod listings;
