//! Keys, values and revisions: where a node is, what stands there, and when.

pub(crate) mod key;
pub(crate) mod members;
#[allow(unreachable_pub, reason = "public with the feature `unstable`")]
pub(crate) mod names;
pub(crate) mod revision;
pub(crate) mod value;
