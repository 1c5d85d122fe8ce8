//! Watches: the stream that they share, and what shows that one missed nothing.

pub(crate) mod breaks;
pub(crate) mod listings;
pub(crate) mod pace;
pub(crate) mod stream;
