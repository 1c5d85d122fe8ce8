//! The queue engine: every recipe is a discipline of this queue.
//!
//! Public with the feature `unstable`, so that a model checker can run it as it is. It may change with any version; users
//! of locks do not need it.

mod acquisition;
mod judge;
mod local;

pub use acquisition::{Acquisition, Event, Status, Step};
pub use judge::{Discipline, SHARED_MAX, Verdict, fits, holders, judge, other_max, would_hold};
pub use local::{Arrival, Bounds, LocalQueue, Offer, Task};
