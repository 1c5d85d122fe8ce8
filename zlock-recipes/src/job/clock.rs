//! The wall clock of schedules.

use std::fmt::Debug;
use std::time::SystemTime;

/// The wall clock that says which tick is due. Nothing else in zlock reads a wall clock, and no two machines' clocks are
/// compared. Implement it for tests.
///
/// # Examples
/// ```
/// use std::time::{Duration, SystemTime, UNIX_EPOCH};
///
/// use zlock::job::Clock;
///
/// #[derive(Debug)]
/// struct Always(u64);
///
/// impl Clock for Always {
///     fn now(&self) -> SystemTime {
///         UNIX_EPOCH + Duration::from_secs(self.0)
///     }
/// }
/// ```
pub trait Clock: Debug + Send + Sync + 'static {
    /// Returns the time of day.
    fn now(&self) -> SystemTime;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "a schedule is about the time of day")]
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}
