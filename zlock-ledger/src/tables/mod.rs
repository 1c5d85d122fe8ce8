//! What adapters have in common whose stores keep entries in tables.

mod names;
mod queue;
mod steps;

use std::time::Duration;

use zlock_core::SessionId;

pub use names::{Names, is_queue, kind_number, stripe};
pub use queue::{Batch, Found, Gone, New};
pub use steps::{Done, Step, empty, in_order, outcomes, steps};

/// Returns the number of a session in the tables.
#[must_use]
pub fn id(session: SessionId) -> i64 {
    session.get().cast_signed()
}

/// Returns a number of the engine. Those of the store are positive; "the last of all" is what the largest is for.
#[must_use]
pub fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a duration in whole milliseconds.
#[must_use]
pub fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
