//! When a job is due.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use zlock_core::Result;

use crate::job::tick::{Tick, check_period};

/// The most ticks that are returned after a pause. Older ones are not even counted.
const MOST: usize = 10_000;

const HOUR: u64 = 3_600_000;

/// The ticks of a job: an [`Interval`], or with the feature `cron` a cron expression. All machines must use the same schedule.
pub trait Schedule: Debug + Send + Sync + 'static {
    /// Returns the first tick after this one. `None` if there is none.
    fn next(&self, after: Tick) -> Option<Tick>;

    /// Returns the ticks after `after` and up to `until`, oldest first. If there are too many to be looked at, the oldest are
    /// left out.
    fn due(&self, after: Tick, until: Tick) -> Vec<Tick> {
        // The last ones are enough, so the search goes back only until it has found them: a clock may have been set by decades.
        let mut back = HOUR;
        loop {
            let from = after.max(Tick::from_millis(until.millis().saturating_sub(back)));
            let mut due: Vec<_> = ticks(self, from).take_while(|tick| *tick <= until).collect();
            if from == after || due.len() >= MOST {
                due.drain(..due.len().saturating_sub(MOST));
                return due;
            }
            back = back.saturating_mul(4);
        }
    }
}

macro_rules! forwarded {
    ($($pointer:ty),*) => {
        $(impl<S: Schedule + ?Sized> Schedule for $pointer {
            fn next(&self, after: Tick) -> Option<Tick> {
                (**self).next(after)
            }

            fn due(&self, after: Tick, until: Tick) -> Vec<Tick> {
                (**self).due(after, until)
            }
        })*
    };
}

forwarded!(Box<S>, Arc<S>, &'static S);

/// Returns the schedule of a closure, which returns the first tick after another one, or `None` if there is none.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use zlock::job::{Interval, Schedule, Tick, schedule_fn};
///
/// // Every hour, until the end of 2026.
/// let (hourly, end) = (Interval::new(Duration::from_secs(3600))?, "2027-01-01T00:00:00Z".parse::<Tick>()?);
/// let schedule = schedule_fn(move |after| hourly.next(after).filter(|next| *next < end));
/// assert_eq!(schedule.next("2026-12-31T22:10:00Z".parse()?), Some("2026-12-31T23:00:00Z".parse()?));
/// assert_eq!(schedule.next("2026-12-31T23:10:00Z".parse()?), None);
/// # Ok::<(), zlock::Error>(())
/// ```
pub fn schedule_fn(next: impl Fn(Tick) -> Option<Tick> + Send + Sync + 'static) -> impl Schedule {
    FromFn(next)
}

struct FromFn<F>(F);

impl<F: Fn(Tick) -> Option<Tick> + Send + Sync + 'static> Schedule for FromFn<F> {
    fn next(&self, after: Tick) -> Option<Tick> {
        self.0(after)
    }
}

impl<F> Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("schedule_fn")
    }
}

/// Returns the ticks after this one.
fn ticks<S: Schedule + ?Sized>(schedule: &S, after: Tick) -> impl Iterator<Item = Tick> {
    let mut last = after;
    std::iter::from_fn(move || {
        let next = schedule.next(last).filter(|next| *next > last)?;
        last = next;
        Some(next)
    })
}

/// Returns the longest time between two ticks, as the next year shows it. `None` if there are no two ticks any more.
pub(crate) fn longest_gap(schedule: &dyn Schedule, now: Tick) -> Option<Duration> {
    // The ticks of an hour, or of some months of a job that runs each month.
    let next: Vec<_> = ticks(schedule, now).take(64).collect();
    let mut longest = next.windows(2).map(|two| two[1].after(two[0])).max()?;
    // Pauses between bursts: each hour of a week, and each day of a year.
    let hours = (1..8 * 24).chain((8..=366).map(|day| day * 24));
    for at in hours.map(|hour| Tick::from_millis(now.millis() + hour * HOUR)) {
        let Some(next) = schedule.next(at) else { break };
        if next.after(at) > longest {
            longest = next.after(last_until(schedule, at).unwrap_or(at));
        }
    }
    Some(longest)
}

/// Returns the last tick up to `until`, if there is one within a year. Found by halves, since there may be a tick each second.
fn last_until(schedule: &dyn Schedule, until: Tick) -> Option<Tick> {
    let next = |after: u64| {
        let next = schedule.next(Tick::from_millis(after))?;
        (next.millis() > after && next <= until).then_some(next.millis())
    };
    let mut back = HOUR;
    let mut last = loop {
        if let Some(first) = next(until.millis().saturating_sub(back)) {
            break first;
        }
        if back > 366 * 24 * HOUR {
            return None;
        }
        back *= 4;
    };
    let mut end = until.millis();
    while last < end {
        let middle = u64::midpoint(last, end);
        match next(middle) {
            Some(later) => last = later,
            None => end = middle,
        }
    }
    Some(Tick::from_millis(last))
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
        assert_eq!(longest_gap(&interval, tick(0)), Some(Duration::from_secs(60)));
    }

    #[test]
    fn a_pointer_to_a_schedule_is_one() {
        let interval = Interval::new(Duration::from_secs(60)).unwrap();
        let closure = schedule_fn(move |after| interval.next(after));
        let all: [Box<dyn Schedule>; 4] = [
            Box::new(interval),
            Box::new(Arc::new(interval)),
            Box::new(Box::leak(Box::new(interval)) as &_),
            Box::new(closure),
        ];
        for schedule in all {
            assert_eq!(schedule.next(tick(59)), Some(tick(60)), "{schedule:?}");
            assert_eq!(schedule.due(tick(0), tick(120)), [tick(60), tick(120)], "{schedule:?}");
        }
    }

    /// Each second of the first ten minutes of a day. Counts the calls.
    #[derive(Debug, Default)]
    struct Burst(std::sync::atomic::AtomicUsize);

    impl Schedule for Burst {
        fn next(&self, after: Tick) -> Option<Tick> {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let (day, second) = (after.millis() / 86_400_000, after.millis() % 86_400_000 / 1000);
            Some(tick(if second < 599 { day * 86_400 + second + 1 } else { (day + 1) * 86_400 }))
        }
    }

    #[test]
    fn the_last_ticks_of_decades_are_found_without_all_others() {
        let (burst, now) = (Burst::default(), tick(56 * 365 * 86_400));
        let due = burst.due(tick(0), now);
        assert_eq!((due.len(), due.last()), (MOST, Some(&now)));
        assert_eq!(burst.due(tick(10), tick(13)), [tick(11), tick(12), tick(13)]);
        let calls = burst.0.into_inner();
        assert!(calls < 10 * MOST, "{calls} calls");
    }

    /// Each minute of the first so many days of 90.
    #[derive(Debug)]
    struct Season(u64);

    impl Schedule for Season {
        fn next(&self, after: Tick) -> Option<Tick> {
            const DAY: u64 = 86_400;
            let next = after.millis() / 60_000 * 60 + 60;
            Some(tick(if next % (90 * DAY) < self.0 * DAY {
                next
            } else {
                (next / (90 * DAY) + 1) * 90 * DAY
            }))
        }
    }

    #[test]
    fn a_long_pause_is_the_longest_gap_whenever_it_is_looked_at() {
        for days in [5, 60] {
            let gap = Duration::from_secs((90 - days) * 86_400 + 60);
            for day in [0, 4, 10, 40, 54, 56, 60, 89] {
                let longest = longest_gap(&Season(days), tick((900 + day) * 86_400));
                assert_eq!(longest, Some(gap), "{days} {day}");
            }
        }
    }

    #[test]
    fn a_pause_between_bursts_is_the_longest_gap() {
        let gap = Duration::from_secs(86_400 - 599);
        for now in [0, 300, 601, 40_000, 86_399] {
            assert_eq!(longest_gap(&Burst::default(), tick(1_000 * 86_400 + now)), Some(gap), "{now}");
        }
    }
}
