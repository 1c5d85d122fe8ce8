//! Watches: which connection carries them, and what a silent one is worth.

pub(crate) mod gate;
pub(crate) mod staleness;
pub(crate) mod watchers;
pub(crate) mod watching;
