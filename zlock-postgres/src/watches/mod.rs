//! Watches: what is watched and by whom, and what was seen of it before.

pub(crate) mod registry;
pub(crate) mod seen;
