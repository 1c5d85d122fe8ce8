//! When a job is due.

use std::fmt::Debug;
use std::time::Duration;

use zlock_core::Result;

use crate::job::tick::{Tick, check_period};

/// The most ticks that are looked at after a pause. Older ones are not even counted.
const MOST: usize = 10_000;

/// The ticks of a job: an [`Interval`], or with the feature `cron` a cron expression. All machines must use the same schedule.
pub trait Schedule: Debug + Send + Sync + 'static {
    /// Returns the first tick after this one. `None` if there is none.
    fn next(&self, after: Tick) -> Option<Tick>;

    /// Returns the ticks after `after` and up to `until`, oldest first. If there are too many to be looked at, the oldest are
    /// left out.
    fn due(&self, after: Tick, until: Tick) -> Vec<Tick> {
        let mut due = std::collections::VecDeque::new();
        let mut last = after;
        while let Some(next) = self.next(last).filter(|next| *next <= until && *next > last) {
            due.push_back(next);
            if due.len() > MOST {
                due.pop_front();
            }
            last = next;
        }
        due.into()
    }
}

/// A tick at each multiple of a period since 1970, in UTC: an interval of an hour is due at each full hour, on all machines.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use zlock::job::{Interval, Schedule, Tick};
///
/// let hourly = Interval::new(Duration::from_secs(3600))?;
/// let next = hourly.next("2026-11-24T21:17:00Z".parse()?);
/// assert_eq!(next, Some("2026-11-24T22:00:00Z".parse::<Tick>()?));
/// # Ok::<(), zlock::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    period: u64,
}

impl Interval {
    /// Creates a schedule with this period.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) for a period below a millisecond, or above 366 days.
    pub fn new(period: Duration) -> Result<Self> {
        Ok(Interval { period: check_period(period)? })
    }
}

impl Schedule for Interval {
    fn next(&self, after: Tick) -> Option<Tick> {
        let next = Tick::from_millis((after.millis() / self.period + 1) * self.period);
        (next > after).then_some(next)
    }

    fn due(&self, after: Tick, until: Tick) -> Vec<Tick> {
        let (first, last) = (after.millis() / self.period + 1, until.millis() / self.period);
        let most = u64::try_from(MOST).unwrap_or(u64::MAX);
        let first = first.max((last + 1).saturating_sub(most));
        (first..=last).map(|n| Tick::from_millis(n * self.period)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(seconds: u64) -> Tick {
        Tick::from_millis(seconds * 1000)
    }

    #[test]
    fn an_interval_is_aligned_to_the_epoch() {
        let interval = Interval::new(Duration::from_secs(60)).unwrap();
        assert_eq!(interval.next(tick(0)), Some(tick(60)));
        assert_eq!(interval.next(tick(59)), Some(tick(60)));
        assert_eq!(interval.next(tick(60)), Some(tick(120)));
        assert_eq!(interval.due(tick(60), tick(239)), [tick(120), tick(180)]);
        assert_eq!(interval.due(tick(60), tick(30)), []);
        let many = interval.due(tick(0), tick(60 * 1_000_000));
        assert_eq!((many.len(), many.last()), (MOST, Some(&tick(60 * 1_000_000))));
        assert_eq!(interval.next(Tick::from_millis(u64::MAX)), None);
    }
}
