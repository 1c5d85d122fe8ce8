//! Schedules that are cron expressions.

use std::fmt;

use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, Zoned};
use zlock_core::{Error, ErrorKind, Result};

use crate::job::schedule::Schedule;
use crate::job::tick::Tick;

/// The ticks of a cron expression in a time zone. Needs the feature `cron`.
///
/// The five fields are those of a crontab: minute, hour, day of the month, month and day of the week. If neither field of days is a
/// plain `*`, a day matches either of them. Names such as `MON` and `JAN`, lists, ranges and steps may be used, and
/// `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly`.
///
/// The time zone is a name of the IANA database, such as `Europe/Berlin`, or `UTC`. The database is part of the program and not that
/// of the machine, so all machines with the same build name the same ticks.
///
/// # Daylight saving
/// What happens depends on whether the expression names its minutes and hours or has a `*` or a step in one of these fields:
///
/// | | fixed times, `30 2 * * *` or `30 2,14 * * *` | `*/15 * * * *` |
/// |---|---|---|
/// | In spring, 02:30 does not exist. | There is one tick, at the end of the gap: 03:00. | The ticks in the gap do not exist. The last one before it is 01:45, the next one 03:00, a quarter of an hour later. |
/// | In autumn, 02:30 exists twice. | There is one tick, at the earlier of the two. | There is a tick at each of the two. |
///
/// So a nightly job runs once a night, and a quarter-hourly job keeps its interval. In `UTC`, none of this happens.
///
/// # Examples
/// ```
/// use zlock::job::{Cron, Schedule, Tick};
///
/// let nightly = Cron::new("30 2 * * *", "Europe/Berlin")?;
/// let next = nightly.next("2026-11-24T21:17:00Z".parse()?);
/// assert_eq!(next, Some("2026-11-25T01:30:00Z".parse::<Tick>()?));
/// # Ok::<(), zlock::Error>(())
/// ```
#[derive(Clone)]
pub struct Cron {
    expression: croner::Cron,
    zone: TimeZone,
    /// Whether minutes and hours are named.
    is_fixed: bool,
}

impl Cron {
    /// Parses an expression and the name of a time zone.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a wrong expression, for one that never matches, and for a time zone that is
    /// not known.
    ///
    /// # Examples
    /// ```
    /// use zlock::job::Cron;
    ///
    /// assert!(Cron::new("0 3 * * MON-FRI", "America/New_York").is_ok());
    /// for (expression, zone) in [("0 3 * *", "UTC"), ("0 3 30 2 *", "UTC"), ("0 3 * * *", "Mars/Olympus")] {
    ///     println!("{}", Cron::new(expression, zone).unwrap_err());
    /// }
    /// ```
    pub fn new(expression: &str, zone: &str) -> Result<Self> {
        let refused = |message: String| Error::new(ErrorKind::InvalidArgument, "job").with_message(message);
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let parsed = parser
            .parse(expression)
            .map_err(|error| refused(format!("the cron expression {expression:?}: {error}")))?;
        let zone = TimeZoneDatabase::bundled()
            .get(zone)
            .map_err(|_| refused(format!("the time zone {zone:?} is not known")))?;
        let cron = Cron { expression: parsed, zone, is_fixed: is_fixed(expression) };
        match cron.next(Tick::from_millis(0)) {
            Some(_) => Ok(cron),
            None => Err(refused(format!("the cron expression {expression:?} never matches"))),
        }
    }
}

impl Schedule for Cron {
    fn next(&self, after: Tick) -> Option<Tick> {
        let after_seconds = i64::try_from(after.millis() / 1000).ok()?;
        let from = Timestamp::from_second(after_seconds).ok()?.to_zoned(self.zone.clone());
        let next = match self.is_fixed {
            true => self.next_fixed(&from)?,
            // The library follows the clock here. It would for lists and ranges of fixed times, too.
            false => self.expression.find_next_occurrence(&from, false).ok()?.timestamp(),
        };
        let next = Tick::from_millis(u64::try_from(next.as_millisecond()).ok()?);
        (next > after).then_some(next)
    }
}

impl Cron {
    /// Returns the next of the fixed times, which are found as if clocks were never set.
    fn next_fixed(&self, after: &Zoned) -> Option<Timestamp> {
        let mut time = after.datetime();
        loop {
            let from = time.to_zoned(TimeZone::UTC).ok()?;
            time = self.expression.find_next_occurrence(&from, false).ok()?.datetime();
            let there = self.zone.to_ambiguous_timestamp(time);
            let next = match there.offset() {
                // The end of the gap.
                AmbiguousOffset::Gap { after, .. } => {
                    let before_the_gap = after.to_timestamp(time).ok()?;
                    self.zone.following(before_the_gap).next()?.timestamp()
                }
                _ => there.earlier().ok()?,
            };
            if next > after.timestamp() {
                return Some(next);
            }
        }
    }
}

/// Returns `true` if an expression names its minutes and hours.
fn is_fixed(expression: &str) -> bool {
    let mut fields = expression.split_whitespace();
    match fields.next() {
        Some(name) if name.starts_with('@') => !name.eq_ignore_ascii_case("@hourly"),
        Some(minute) => {
            [minute, fields.next().unwrap_or("*")].iter().all(|field| !field.contains(['*', '/', '?']))
        }
        None => false,
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zone = self.zone.iana_name().unwrap_or("UTC");
        write!(f, "Cron({:?}, {zone:?})", self.expression.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(cron: &Cron, after: &str, until: &str) -> Vec<String> {
        let [after, until] = [after, until].map(|time| time.parse().unwrap());
        cron.due(after, until).iter().map(ToString::to_string).collect()
    }

    fn berlin(expression: &str) -> Cron {
        Cron::new(expression, "Europe/Berlin").unwrap()
    }

    /// On 29 March 2026, 02:00 to 03:00 do not exist in Berlin: 01:00 in UTC is 03:00 there.
    #[test]
    fn half_past_two_does_not_exist_in_spring() {
        let nights = ("2026-03-27T12:00:00Z", "2026-03-30T12:00:00Z");
        let fixed = ticks(&berlin("30 2 * * *"), nights.0, nights.1);
        assert_eq!(fixed, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
        // Whoever asks, and when: there is no second one.
        let cron = berlin("30 2 * * *");
        let at = |time: &str| cron.next(time.parse().unwrap()).unwrap().to_string();
        assert_eq!(at("2026-03-29T00:59:59.999Z"), "2026-03-29T01:00:00Z");
        assert_eq!(at("2026-03-29T01:00:00Z"), "2026-03-30T00:30:00Z");
        let steps = ticks(&berlin("*/15 * * * *"), "2026-03-29T00:30:00Z", "2026-03-29T01:15:00Z");
        assert_eq!(steps, ["2026-03-29T00:45:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:15:00Z"]);
    }

    /// Vixie's cron looks at each of them alone, too.
    #[test]
    fn lists_and_ranges_are_fixed_times() {
        let spring = |expression| ticks(&berlin(expression), "2026-03-28T12:00:00Z", "2026-03-29T13:00:00Z");
        let autumn = |expression| ticks(&berlin(expression), "2026-10-24T12:00:00Z", "2026-10-25T14:00:00Z");
        assert_eq!(
            spring("30 2,14 * * *"),
            ["2026-03-28T13:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T12:30:00Z"]
        );
        assert_eq!(
            autumn("30 2,14 * * *"),
            ["2026-10-24T12:30:00Z", "2026-10-25T00:30:00Z", "2026-10-25T13:30:00Z"]
        );
        // Both times of the gap are its end.
        assert_eq!(spring("0,30 2 * * *"), ["2026-03-29T01:00:00Z"]);
        assert_eq!(autumn("0,30 2 * * *"), ["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z"]);
        assert_eq!(spring("0 1-4 * * *"), ["00", "01", "02"].map(|hour| format!("2026-03-29T{hour}:00:00Z")));
        let hours = ["24T23", "25T00", "25T02", "25T03"].map(|hour| format!("2026-10-{hour}:00:00Z"));
        assert_eq!(autumn("0 1-4 * * *"), hours);
        assert_eq!(spring("@daily"), ["2026-03-28T23:00:00Z"]);
        assert_eq!(autumn("@hourly").len(), 26);
    }

    /// On 25 October 2026, 02:00 to 03:00 exist twice in Berlin: from 00:00 and from 01:00 in UTC.
    #[test]
    fn half_past_two_exists_twice_in_autumn() {
        let nights = ("2026-10-23T12:00:00Z", "2026-10-26T12:00:00Z");
        let fixed = ticks(&berlin("30 2 * * *"), nights.0, nights.1);
        assert_eq!(fixed, ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
        let cron = berlin("30 2 * * *");
        let at = |time: &str| cron.next(time.parse().unwrap()).unwrap().to_string();
        assert_eq!(at("2026-10-25T00:30:00Z"), "2026-10-26T01:30:00Z");
        assert_eq!(at("2026-10-25T01:15:00Z"), "2026-10-26T01:30:00Z");
        let steps = ticks(&berlin("*/30 * * * *"), "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z");
        let expected =
            ["2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z"];
        assert_eq!(steps, expected);
    }

    #[test]
    fn ticks_only_grow_and_each_night_has_one() {
        for zone in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"] {
            for (expression, in_two_years) in [("30 2 * * *", 730), ("15 1 * * *", 730), ("0 0 1 * *", 24)] {
                let cron = Cron::new(expression, zone).unwrap();
                let ticks = ticks(&cron, "2025-12-31T18:00:00Z", "2027-12-31T18:00:00Z");
                assert!(ticks.is_sorted_by(|one, next| one < next), "{ticks:?}");
                assert!(ticks.len().abs_diff(in_two_years) <= 1, "{expression} {zone}: {}", ticks.len());
            }
        }
    }

    #[test]
    fn wrong_expressions_are_refused() {
        for (expression, zone, part) in [
            ("", "UTC", "\"\""),
            ("* * * *", "UTC", "\"* * * *\""),
            ("0 * * * * *", "UTC", "0 * * * * *"),
            ("60 * * * *", "UTC", "60"),
            ("0 0 30 2 *", "UTC", "never matches"),
            ("0 0 * * *", "Mars/Olympus", "Mars/Olympus"),
            ("0 0 * * *", "", "time zone"),
        ] {
            let error = Cron::new(expression, zone).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(part), "{error}");
        }
        assert_eq!(format!("{:?}", berlin("@daily")), "Cron(\"0 0 * * *\", \"Europe/Berlin\")");
    }
}
