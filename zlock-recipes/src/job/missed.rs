//! What happens with ticks that nobody ran at their time.

use std::time::{Duration, SystemTime};

use crate::job::schedule::Schedule;
use crate::job::tick::Tick;

/// How long the loop sleeps at most before it looks at the clock again, which may have been set.
pub(super) const LOOK: Duration = Duration::from_secs(60);

/// The same while the clock may be wrong: then it is likely to be set soon.
pub(super) const LOOK_AT_WRONG: Duration = Duration::from_secs(5);

/// Which of the ticks that were missed are run afterwards by [`RecurringJob::every`](super::RecurringJob::every).
///
/// A tick is missed if no process was there to run it, or if the job was still running, so that the next tick was due as well.
/// A job without a record has missed nothing. The machine that runs a tick reports those before it that no machine ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Missed {
    /// The last one, whatever their number.
    #[default]
    Latest,
    /// None.
    Skip,
    /// The last `n`, in order.
    All(u32),
}

impl Missed {
    pub(super) fn most(self) -> usize {
        match self {
            Missed::Latest => 1,
            Missed::Skip => 0,
            Missed::All(n) => usize::try_from(n).unwrap_or(usize::MAX),
        }
    }
}

/// Returns the ticks after `after` to run now, oldest first. The process may have waited since `after`.
pub(crate) fn due(
    schedule: &dyn Schedule,
    after: Tick,
    now: SystemTime,
    has_waited: bool,
    (missed, deadline): (Missed, Option<Duration>),
) -> Vec<Tick> {
    let mut due = schedule.due(after, Tick::at(now));
    // The process looks at its clock so rarely that this much is no sleep of the machine.
    let (most, grace) =
        if has_waited && due.len() == 1 { (1, LOOK) } else { (missed.most(), Duration::ZERO) };
    due.drain(..due.len().saturating_sub(most));
    due.retain(|tick| deadline.is_none_or(|deadline| tick.late(now) <= deadline.max(grace)));
    due
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::schedule::Interval;

    fn tick(seconds: u64) -> Tick {
        Tick::from_millis(seconds * 1000)
    }

    #[test]
    fn missed_ticks_are_run_as_the_policy_says() {
        let interval = Interval::new(Duration::from_secs(60)).unwrap();
        let now: SystemTime = tick(1000 * 60 + 5).time();
        let of = |after: u64, has_waited, missed, deadline: Option<u64>| {
            let deadline = deadline.map(Duration::from_secs);
            due(&interval, tick(after * 60), now, has_waited, (missed, deadline))
        };
        let minutes = |ticks: &[u64]| ticks.iter().map(|n| tick(n * 60)).collect::<Vec<_>>();
        assert_eq!(of(0, false, Missed::Latest, None), minutes(&[1000]));
        assert_eq!(of(0, false, Missed::Skip, None), minutes(&[]));
        assert_eq!(of(0, false, Missed::All(3), None), minutes(&[998, 999, 1000]));
        assert_eq!(of(997, false, Missed::All(u32::MAX), None), minutes(&[998, 999, 1000]));
        // A starting deadline.
        assert_eq!(of(0, false, Missed::All(3), Some(65)), minutes(&[999, 1000]));
        assert_eq!(of(0, false, Missed::Latest, Some(4)), minutes(&[]));
        // One that was waited for is not missed, unless the next one is due as well.
        assert_eq!(of(999, false, Missed::Skip, None), minutes(&[]));
        assert_eq!(of(999, true, Missed::Skip, Some(1)), minutes(&[1000]));
        assert_eq!(of(998, true, Missed::Skip, None), minutes(&[]));
        assert_eq!(of(998, true, Missed::Latest, None), minutes(&[1000]));
        assert_eq!(of(1000, true, Missed::Latest, None), minutes(&[]));
    }

    /// The machine slept when the tick was due.
    #[test]
    fn a_tick_that_was_waited_for_may_be_too_late_as_well() {
        let hourly = Interval::new(Duration::from_secs(3600)).unwrap();
        for (late, deadline, runs) in [(59, 10, true), (61, 10, false), (119, 120, true), (121, 120, false)] {
            let policy = (Missed::Skip, Some(Duration::from_secs(deadline)));
            let due = due(&hourly, tick(0), tick(3600 + late).time(), true, policy);
            assert_eq!(due, if runs { vec![tick(3600)] } else { vec![] }, "{late} {deadline}");
        }
    }
}
