//! The decisions about a tick, from the record alone.

use std::time::Duration;

use crate::job::record::{Run, RunState};
use crate::job::tick::Tick;

/// What the record of a job says of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It may run as this attempt. If the record says that a run has started, its holder must be gone.
    Claim(u32),
    /// It has run, or a later one has begun.
    Ran,
    /// Its last attempt has begun, and is running if its holder is not gone.
    LastStarted,
    /// Its last attempt has failed.
    LastFailed,
}

/// Decides about `tick`, which gets up to `attempts` attempts.
pub(crate) fn decide(record: Option<&Run>, tick: Tick, attempts: u32) -> Decision {
    let Some(run) = record.filter(|run| run.tick >= tick) else { return Decision::Claim(1) };
    match run.state {
        _ if run.tick > tick => Decision::Ran,
        RunState::Done => Decision::Ran,
        _ if run.attempt < attempts => Decision::Claim(run.attempt + 1),
        RunState::Started => Decision::LastStarted,
        RunState::Failed => Decision::LastFailed,
    }
}

/// How many periods may lie between two ticks before a machine's clock is doubted: 1,000 ticks were missed, and the next one is due.
const MOST_PERIODS: u32 = 1002;

/// How long may lie between two ticks, however long the period is, unless it is longer.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

/// How many periods a note has to stand. Each of the two ticks may be named half a period early or late, so at least two periods are
/// over, in which each other machine asks at least once.
const STANDS: u32 = 3;

/// A look at a clock that may be far ahead of the others: a machine asks for a tick that is much later than the last one.
///
/// Either nobody ran the job for that long, or this clock is wrong. The machine cannot know, so it notes its time in the record and
/// runs nothing. Machines that run the job replace the note with their next tick. If the note still stands after [`STANDS`] periods,
/// nobody else runs the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The tick is not too late, or the note has stood for long enough.
    Cleared,
    /// The time is not noted yet.
    New,
    /// The time is noted.
    Noted,
}

/// Decides whether to doubt a machine that asks for a tick at this time, for a job with this period.
pub(crate) fn doubt(record: Option<&Run>, time: Tick, period: Duration) -> Doubt {
    let too_far = LONGEST.min(period * MOST_PERIODS).max(2 * period);
    let is_too_far = |after: Tick| time.after(after) > too_far;
    let Some(run) = record.filter(|run| is_too_far(run.tick)) else { return Doubt::Cleared };
    match run.doubted {
        Some(noted) if noted > time || is_too_far(noted) => Doubt::New,
        Some(noted) if time.after(noted) < STANDS * period => Doubt::Noted,
        Some(_) => Doubt::Cleared,
        None => Doubt::New,
    }
}

#[cfg(test)]
mod tests {
    use zlock_core::FencingToken;

    use super::Decision::*;
    use super::RunState::*;
    use super::*;

    #[test]
    fn a_clock_that_is_far_ahead_is_doubted_until_its_note_has_stood_for_three_periods() {
        use super::Doubt::*;

        let (hour, day) = (Duration::from_secs(3600), Duration::from_secs(86_400));
        let at = |hours: u64| Tick::from_millis(hours * 3_600_000);
        let run = |noted: Option<u64>| {
            let run = Run::claim(None, at(1000), 1, FencingToken::new(1), "", at(1000));
            noted.map_or(run.clone(), |noted| run.doubts(at(noted)))
        };
        assert_eq!(doubt(None, at(u64::MAX / 10_000_000), hour), Cleared);
        for (noted, time, period, expected) in [
            (None, 1, hour, Cleared),
            (None, 1001, hour, Cleared),
            (None, 1720, hour, Cleared),
            (None, 1721, hour, New),
            (None, 1720, day, Cleared),
            (None, 1721, day, New),
            (None, 1017, hour / 60, New),
            (None, 1721, 20 * day, Cleared),
            (None, 1961, 20 * day, New),
            (Some(1721), 1721, hour, Noted),
            (Some(1721), 1722, hour, Noted),
            (Some(1721), 1723, hour, Noted),
            (Some(1721), 1724, hour, Cleared),
            (Some(1721), 2441, hour, Cleared),
            // Notes of clocks that are further ahead, and of clocks that this one is far ahead of.
            (Some(1722), 1721, hour, New),
            (Some(1721), 2442, hour, New),
        ] {
            let doubts = doubt(Some(&run(noted)), at(time), period);
            assert_eq!(doubts, expected, "{noted:?} {time} {period:?}");
        }
    }

    #[test]
    fn a_tick_runs_once_and_as_often_as_attempts_allow_if_it_does_not_end() {
        let tick = Tick::from_millis;
        assert_eq!(decide(None, tick(7), 1), Claim(1));
        for (of, state, attempt, attempts, decision) in [
            (6, Started, 1, 1, Claim(1)),
            (6, Done, 1, 1, Claim(1)),
            (6, Failed, 3, 3, Claim(1)),
            (7, Done, 1, 3, Ran),
            (7, Started, 1, 1, LastStarted),
            (7, Failed, 1, 1, LastFailed),
            (7, Started, 1, 3, Claim(2)),
            (7, Failed, 2, 3, Claim(3)),
            (7, Started, 3, 3, LastStarted),
            (7, Failed, 4, 3, LastFailed),
            (8, Started, 1, 9, Ran),
            (8, Failed, 1, 9, Ran),
            (8, Done, 1, 9, Ran),
        ] {
            let mut run = Run::claim(None, tick(of), attempt, FencingToken::new(1), "", tick(of));
            run.state = state;
            assert_eq!(
                decide(Some(&run), tick(7), attempts),
                decision,
                "{of} {state} {attempt} of {attempts}"
            );
        }
    }
}
