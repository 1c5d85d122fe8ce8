//! Getting a place in a queue and keeping it: what a client knows of its own places, without a request.

pub(crate) mod admission;
pub(crate) mod cohort;
pub(crate) mod granted;
pub(crate) mod pauses;
pub(crate) mod succession;
