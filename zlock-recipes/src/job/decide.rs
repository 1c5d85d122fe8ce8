//! The decisions about a tick, from the record alone.

use std::time::Duration;

use crate::job::record::Run;
use crate::job::run_state::RunState;
use crate::job::tick::Tick;

/// What the record of a job says of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It may run as this attempt. If the record says that a run has started, its holder must be gone.
    Claim(u32),
    /// It has run, or a later one has begun.
    Ran,
    /// Its last attempt so far has failed, and the caller has to pause before the next one.
    Pause,
    /// Its last attempt has begun, and is running if its holder is not gone.
    LastStarted,
    /// Its last attempt has failed.
    LastFailed,
}

/// Decides about `tick`, which gets up to `attempts` attempts. A loop has paused after the first `over` of them, whatever the record
/// says by now. `None` for a caller that does not pause.
pub(crate) fn decide(record: Option<&Run>, tick: Tick, attempts: u32, over: Option<u32>) -> Decision {
    let record = record.filter(|run| run.tick >= tick);
    let Some(run) = record else { return Decision::Claim(over.unwrap_or(0).saturating_add(1)) };
    match run.state {
        _ if run.tick > tick => Decision::Ran,
        RunState::Done => Decision::Ran,
        RunState::Failed if run.attempt < attempts && over.is_some_and(|over| run.attempt > over) => {
            Decision::Pause
        }
        _ if run.attempt < attempts => Decision::Claim(run.attempt + 1),
        RunState::Started => Decision::LastStarted,
        RunState::Failed => Decision::LastFailed,
    }
}

/// How many periods may lie between two ticks before a machine's clock is doubted: 1,000 ticks were missed, and the next one is due.
const MOST_PERIODS: u32 = 1002;

const DAY: Duration = Duration::from_secs(86_400);

/// How long may always lie between two ticks: a job that runs each minute of working hours pauses over a long weekend.
const SHORTEST: Duration = Duration::from_secs(4 * 86_400);

/// How long may lie between two ticks, however long the period is, unless it is longer.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

/// How long may lie between two ticks of a job whose period is not known: a quarter of a year, and some days.
const UNKNOWN: Duration = Duration::from_secs(100 * 86_400);

/// How many periods the first note has to stand. Each of the two ticks may be named half a period early or late, so at least two
/// periods are over, in which each other machine asks at least once.
const STANDS: u32 = 3;

/// How many periods more each further note has to stand. Meanwhile a machine with an earlier clock has run the job, if there is one.
const STANDS_MORE: u32 = 4;

/// How many periods later than the note has to stand its machine asks again, at the latest.
const ASKS_AGAIN: u32 = 2;

/// The most notes that are kept.
const MOST_NOTES: u32 = 4;

/// A look at a clock that may be far ahead of the others: a machine asks for a tick that is much later than the last one.
///
/// Either nobody ran the job for that long, or this clock is wrong. The machine cannot know, so it notes its time in the record and
/// runs nothing. Machines that run the job replace all notes with their next tick. If the note still stands after [`STANDS`]
/// periods, nobody else runs the job.
///
/// Several clocks may be far ahead of the record and of each other. Each has a note of its own, so that none removes the other's,
/// and the earliest one runs the job first. It is the one that is least likely to be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The tick is not too late, or the note has stood for long enough.
    Cleared,
    /// The time is not noted yet: these are to be the notes.
    New(Vec<Tick>),
    /// The time is noted.
    Noted,
}

/// Decides whether to doubt a machine that asks for a tick at this time, for a job with this period, if it is known.
pub(crate) fn doubt(record: Option<&Run>, time: Tick, period: Option<Duration>) -> Doubt {
    let usual = |period: Duration| LONGEST.min(period.saturating_mul(MOST_PERIODS).max(SHORTEST));
    let too_far = period.map_or(UNKNOWN, |period| usual(period).max(period.saturating_mul(2)));
    let Some(run) = record.filter(|run| time.after(run.tick) > too_far) else { return Doubt::Cleared };
    let earlier = run.doubted.iter().filter(|noted| **noted <= time);
    let number = u32::try_from(earlier.clone().count()).unwrap_or(MOST_NOTES).min(MOST_NOTES);
    // The latest of them may be this clock's. It is another clock's, or was left before a long pause, if it is much earlier.
    if let Some(noted) = earlier.max() {
        let periods = |n: u32| period.unwrap_or(DAY).saturating_mul(n);
        let (stood, stands) = (time.after(*noted), STANDS + STANDS_MORE * (number - 1));
        if stood < periods(stands) {
            return Doubt::Noted;
        }
        // So many clocks are not wrong: this machine asks so rarely.
        if stood <= too_far.max(periods(stands + ASKS_AGAIN)) || number == MOST_NOTES {
            return Doubt::Cleared;
        }
    }
    let is_other = |noted: &Tick| *noted <= time || noted.after(time) > too_far;
    let mut notes: Vec<_> =
        run.doubted.iter().copied().filter(is_other).take(MOST_NOTES as usize - 1).collect();
    notes.push(time);
    notes.sort_unstable();
    Doubt::New(notes)
}

#[cfg(test)]
mod tests {
    use zlock_core::FencingToken;

    use super::Decision::*;
    use super::RunState::*;
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(hours: u64) -> Tick {
        Tick::from_millis(hours * 3_600_000)
    }

    /// A run at hour 1000, with notes.
    fn doubted(notes: &[u64]) -> Run {
        let run = Run::claim(None, at(1000), 1, FencingToken::new(1), "", at(1000));
        run.doubts(notes.iter().copied().map(at).collect())
    }

    fn new(notes: &[u64]) -> Doubt {
        Doubt::New(notes.iter().copied().map(at).collect())
    }

    #[test]
    fn a_clock_that_is_far_ahead_is_doubted_until_its_note_has_stood_for_three_periods() {
        use super::Doubt::*;

        let day = 24 * HOUR;
        assert_eq!(doubt(None, at(u64::MAX / 10_000_000), Some(HOUR)), Cleared);
        for (time, period, is_doubted) in [
            (1, HOUR, false),
            (1001, HOUR, false),
            (1720, HOUR, false),
            (1721, HOUR, true),
            (1720, day, false),
            (1721, day, true),
            (1096, HOUR / 60, false),
            (1097, HOUR / 60, true),
            (1721, 20 * day, false),
            (1961, 20 * day, true),
            (1_000_000_000, Duration::MAX, false),
        ] {
            let expected = if is_doubted { new(&[time]) } else { Cleared };
            assert_eq!(doubt(Some(&doubted(&[])), at(time), Some(period)), expected, "{time} {period:?}");
        }
        for (days, expected) in [(92, Cleared), (100, Cleared), (101, new(&[1000 + 101 * 24]))] {
            assert_eq!(doubt(Some(&doubted(&[])), at(1000 + days * 24), None), expected, "{days}");
        }
        for (time, expected) in
            [(1721, Noted), (1722, Noted), (1723, Noted), (1724, Cleared), (2441, Cleared)]
        {
            assert_eq!(doubt(Some(&doubted(&[1721])), at(time), Some(HOUR)), expected, "{time}");
        }
    }

    /// A machine is alone after a pause, and asks once in so many days.
    #[test]
    fn a_machine_that_is_alone_runs_the_job_again_whatever_the_period() {
        let day = 24 * HOUR;
        let asks = |period: Option<u32>, every: u32| {
            let period = period.map(|days| days * day);
            let (mut run, mut time) = (doubted(&[]), at(1000 + 24 * 1_000));
            for asked in 0..100 {
                match doubt(Some(&run), time, period) {
                    Doubt::Cleared => return asked,
                    Doubt::New(notes) => run = run.doubts(notes),
                    Doubt::Noted => {}
                }
                time = Tick::at(time.time() + every * day);
            }
            panic!("{period:?}: never again");
        };
        for days in [1, 7, 9, 10, 11, 14, 31, 91, 365] {
            assert_eq!(asks(Some(days), days), 3, "each {days} days");
            assert_eq!(asks(Some(days), 3 * days), 1, "each {days} days");
            // However rarely it asks, and whether it says the period or not.
            for days_apart in [10 * days, 100 * days] {
                assert!(asks(Some(days), days_apart) < 8, "each {days} days, {days_apart} days apart");
                assert!(asks(None, days_apart) < 8, "{days_apart} days apart");
            }
        }
    }

    /// Notes of clocks that are further ahead, and of clocks that this one is far ahead of.
    #[test]
    fn clocks_that_are_far_apart_have_notes_of_their_own() {
        use super::Doubt::*;

        for (notes, time, expected) in [
            (&[1722][..], 1721, new(&[1721])),
            (&[9000], 1721, new(&[1721, 9000])),
            (&[1721], 2442, new(&[1721, 2442])),
            (&[1721, 9000], 9001, Noted),
            (&[1721, 9000], 9006, Noted),
            (&[1721, 9000], 9007, Cleared),
            (&[1721, 9000], 1723, Noted),
            (&[1721, 9000], 1724, Cleared),
            (&[1721, 9001], 9000, new(&[1721, 9000])),
            (&[2000, 4000, 8000, 9000], 7000, new(&[2000, 4000, 7000, 8000])),
            (&[2000, 4000, 6000, 8000], 8014, Noted),
            (&[2000, 4000, 6000, 8000], 8015, Cleared),
            (&[2000, 4000, 6000, 8000], 9999, Cleared),
            (&[2000, 4000, 6000, 8000], 5000, new(&[2000, 4000, 5000, 6000])),
        ] {
            assert_eq!(doubt(Some(&doubted(notes)), at(time), Some(HOUR)), expected, "{notes:?} {time}");
        }
    }

    #[test]
    fn a_tick_runs_once_and_as_often_as_attempts_allow_if_it_does_not_end() {
        let tick = Tick::from_millis;
        assert_eq!(decide(None, tick(7), 1, None), Claim(1));
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
                decide(Some(&run), tick(7), attempts, None),
                decision,
                "{of} {state} {attempt} of {attempts}"
            );
        }
    }

    #[test]
    fn a_failed_attempt_is_followed_by_a_pause() {
        let tick = Tick::from_millis;
        for (of, state, attempt, paused, decision) in [
            (6, Failed, 1, 0, Claim(1)),
            (7, Started, 1, 0, Claim(2)),
            (7, Failed, 1, 0, Pause),
            (7, Failed, 1, 1, Claim(2)),
            (7, Failed, 2, 1, Pause),
            (7, Failed, 3, 2, LastFailed),
            (7, Done, 1, 0, Ran),
        ] {
            let mut run = Run::claim(None, tick(of), attempt, FencingToken::new(1), "", tick(of));
            run.state = state;
            assert_eq!(
                decide(Some(&run), tick(7), 3, Some(paused)),
                decision,
                "{of} {state} {attempt} {paused}"
            );
        }
    }

    /// The record was deleted, or replaced by an earlier one.
    #[test]
    fn a_loop_goes_on_with_the_attempt_after_its_own() {
        let tick = Tick::from_millis;
        let earlier = Run::claim(None, tick(6), 1, FencingToken::new(1), "", tick(6));
        for record in [None, Some(&earlier)] {
            for (over, attempt) in [(None, 1), (Some(0), 1), (Some(2), 3)] {
                assert_eq!(decide(record, tick(7), 9, over), Claim(attempt), "{over:?}");
            }
        }
    }
}
