//! The queue engine: every recipe is a discipline of it.
//!
//! Public so that a model checker or a simulation can run it as it is. It may change with any version; users of
//! locks have no need of it.

mod acquisition;
mod driver;
mod judge;

pub use acquisition::{Acquisition, Event, Status, Step};
pub(crate) use driver::{Request, acquire, acquire_within, try_acquire};
pub use judge::{Discipline, Verdict, holders, judge, other_max, would_hold};
