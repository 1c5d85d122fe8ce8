//! A tick: the time at which a job was due.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use zlock_core::{Error, ErrorKind, Result};

/// The end of the year 9999, in milliseconds.
const LAST: u64 = 253_402_300_799_999;

const DAY: u64 = 86_400_000;

/// The time at which a job was due, in whole milliseconds. It names one run of the job: all machines must name the same tick
/// for the same run, so it is the *scheduled* time, and not the time of the call.
///
/// It is shown and parsed as a time in UTC, such as `2026-11-24T21:00:00Z`.
///
/// # Examples
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
///
/// use zlock::job::Tick;
///
/// let hour = Duration::from_secs(3600);
/// // Two machines, whose clocks are 3 seconds apart, name the same tick.
/// let (one, two) = (UNIX_EPOCH + 7 * hour, UNIX_EPOCH + 7 * hour - Duration::from_secs(3));
/// assert_eq!(Tick::nearest(one, hour)?, Tick::nearest(two, hour)?);
/// assert_eq!(Tick::nearest(one, hour)?.to_string(), "1970-01-01T07:00:00Z");
/// # Ok::<(), zlock::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tick(u64);

impl Tick {
    /// Returns the tick at this time. Fractions of a millisecond are cut off, and so is what is before 1970 or after 9999.
    #[must_use]
    pub fn at(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Tick(u64::try_from(since.as_millis()).unwrap_or(LAST).min(LAST))
    }

    /// Returns the multiple of `period` since 1970 that is nearest to `now`. Machines whose clocks differ by less than half a
    /// period name the same one if they ask at about its time.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a period below a millisecond, or above a year.
    pub fn nearest(now: SystemTime, period: Duration) -> Result<Self> {
        let (now, period) = (Tick::at(now).0, check_period(period)?);
        Ok(Tick(((now + period / 2) / period * period).min(LAST)))
    }

    /// Returns the time of the tick.
    #[must_use]
    pub fn time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.0)
    }

    /// Returns the milliseconds since 1970.
    #[must_use]
    pub fn millis(self) -> u64 {
        self.0
    }

    /// Returns how long after the tick `now` is.
    pub(crate) fn late(self, now: SystemTime) -> Duration {
        now.duration_since(self.time()).unwrap_or_default()
    }

    /// Returns how long this tick is after another one.
    pub(crate) fn after(self, other: Tick) -> Duration {
        Duration::from_millis(self.0.saturating_sub(other.0))
    }

    /// Returns the time just before this tick.
    pub(crate) fn before(self) -> Self {
        Tick(self.0.saturating_sub(1))
    }

    pub(crate) fn from_millis(millis: u64) -> Self {
        Tick(millis.min(LAST))
    }
}

/// Returns the milliseconds of a period.
pub(crate) fn check_period(period: Duration) -> Result<u64> {
    match u64::try_from(period.as_millis()) {
        Ok(millis @ 1..=31_622_400_000) => Ok(millis),
        _ => {
            let message = format!("the period is {period:?}; it must be from 1 millisecond to 366 days");
            Err(Error::new(ErrorKind::InvalidArgument, "job").with_message(message))
        }
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, millis) = (self.0 / DAY, self.0 % DAY);
        let (year, month, day) = date_of(days);
        let (seconds, millis) = (millis / 1000, millis % 1000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if millis > 0 {
            write!(f, ".{millis:03}")?;
        }
        write!(f, "Z")
    }
}

impl FromStr for Tick {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).map(Tick).ok_or_else(|| {
            let message = format!("{text:?} is not a time in UTC such as 2026-11-24T21:00:00Z");
            Error::new(ErrorKind::InvalidArgument, "tick").with_message(message)
        })
    }
}

fn parse(text: &str) -> Option<u64> {
    let (text, millis) = match text.strip_suffix('Z')?.split_once('.') {
        None => (text.strip_suffix('Z')?, 0),
        Some((text, millis)) if millis.len() == 3 => (text, digits(millis)?),
        Some(_) => return None,
    };
    let (date, time) = text.split_once('T')?;
    let [year, month, day] = three(date, '-')?;
    let [hour, minute, second] = three(time, ':')?;
    let is_date = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days(year, month, day);
    // A day that the month does not have is one of the next month.
    (date_of(days) == (year, month, day))
        .then(|| days * DAY + (hour * 3600 + minute * 60 + second) * 1000 + millis)
}

fn three(text: &str, separator: char) -> Option<[u64; 3]> {
    let mut parts = text.split(separator).map(digits);
    let all = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(all)
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Returns the days from 1970 to this day. Months are counted from March here, so that a leap day is the last one of its year.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 719_469
}

/// Returns the year, month and day of a day since 1970.
fn date_of(days_since: u64) -> (u64, u64, u64) {
    let mut year = 1970 + days_since / 366;
    while days(year + 1, 1, 1) <= days_since {
        year += 1;
    }
    let month = (1..=12).rev().find(|month| days(year, *month, 1) <= days_since).unwrap_or(1);
    (year, month, days_since - days(year, month, 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_shown() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_764_018_000_001, "2025-11-24T21:00:00.001Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59Z"),
            (LAST, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Tick(millis).to_string(), text);
            assert_eq!(text.parse::<Tick>().unwrap(), Tick(millis));
        }
        for millis in (0..LAST).step_by(7_654_321_098) {
            assert_eq!(Tick(millis).to_string().parse::<Tick>().unwrap(), Tick(millis));
        }
        for wrong in [
            "",
            "2026-11-24",
            "2026-11-24T21:00:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-00T00:00:00Z",
            "2026-11-18446744073709551615T00:00:00Z",
            "2026-11-24T24:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-11-24T21:00:00.1Z",
            "2026-11-24T+1:00:00Z",
            "2026-11-24T21:00:00:00Z",
        ] {
            assert!(wrong.parse::<Tick>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_nearest_multiple_is_the_tick() {
        let (at, minute) = (|s: f64| UNIX_EPOCH + Duration::from_secs_f64(s), Duration::from_secs(60));
        for (now, tick) in [(0.0, 0), (29.9, 0), (30.0, 60), (57.0, 60), (60.0, 60), (63.0, 60), (89.0, 60)] {
            assert_eq!(Tick::nearest(at(now), minute).unwrap(), Tick(tick * 1000), "{now}");
        }
        for wrong in [Duration::ZERO, Duration::from_micros(999), Duration::from_secs(367 * 86_400)] {
            assert_eq!(Tick::nearest(at(0.0), wrong).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(Tick::at(UNIX_EPOCH - minute), Tick(0));
    }
}
