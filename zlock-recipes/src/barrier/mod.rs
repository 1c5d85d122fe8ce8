//! Barriers and latches: clients that wait for each other, or for a word.
//!
//! A member of a barrier has a node in a queue, which shows that it is alive. The rounds that have opened are in a value, which
//! only grows by whole rounds (`rounds.rs`). So a round opens once, and for members that were all there.

mod cyclic;
mod double;
mod latch;
mod member;
mod rounds;

pub use cyclic::Barrier;
pub use double::{DoubleBarrier, Entered};
pub use latch::Latch;
