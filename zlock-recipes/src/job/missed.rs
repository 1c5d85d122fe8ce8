//! What happens with ticks that nobody ran at their time.

use std::time::{Duration, SystemTime};

use crate::job::schedule::Schedule;
use crate::job::tick::Tick;

/// How long the loop sleeps at most before it looks at the clock again, which may have been set.
pub(super) const LOOK: Duration = Duration::from_secs(60);

/// Which of the ticks that were missed are run afterwards by [`RecurringJob::every`](super::RecurringJob::every).
///
/// A tick is missed if no process was there to run it, or if the job was still running, so that the next tick was due as well.
/// A job without a record has missed nothing.
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
    fn most(self) -> usize {
        match self {
            Missed::Latest => 1,
            Missed::Skip => 0,
            Missed::All(n) => usize::try_from(n).unwrap_or(usize::MAX),
        }
    }
}

/// The ticks to run now, oldest first, and the number of those that are skipped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) ticks: Vec<Tick>,
    pub(crate) skipped: usize,
}

/// Returns the ticks after `after` that are due, of which the process waited for `awaited`. At most `MOST` are counted.
pub(crate) fn due(
    schedule: &dyn Schedule,
    after: Tick,
    now: SystemTime,
    awaited: Option<Tick>,
    (missed, deadline): (Missed, Option<Duration>),
) -> Due {
    let all = schedule.due(after, Tick::at(now));
    let is_awaited = all.len() == 1 && all.first() == awaited.as_ref();
    // The process looks at its clock so rarely that this much is no sleep of the machine.
    let (most, grace) = if is_awaited { (1, LOOK) } else { (missed.most(), Duration::ZERO) };
    let in_time = |tick: &Tick| deadline.is_none_or(|deadline| tick.late(now) <= deadline.max(grace));
    let skipped = all.len() - all.len().min(most);
    let ticks: Vec<_> = all.iter().skip(skipped).copied().filter(in_time).collect();
    Due { skipped: all.len() - ticks.len(), ticks }
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
        let of = |after: u64, awaited: Option<u64>, missed, deadline: Option<u64>| {
            let (awaited, deadline) = (awaited.map(tick), deadline.map(Duration::from_secs));
            due(&interval, tick(after * 60), now, awaited, (missed, deadline))
        };
        let minutes =
            |ticks: &[u64], skipped| Due { ticks: ticks.iter().map(|n| tick(n * 60)).collect(), skipped };
        assert_eq!(of(0, None, Missed::Latest, None), minutes(&[1000], 999));
        assert_eq!(of(0, None, Missed::Skip, None), minutes(&[], 1000));
        assert_eq!(of(0, None, Missed::All(3), None), minutes(&[998, 999, 1000], 997));
        assert_eq!(of(997, None, Missed::All(u32::MAX), None), minutes(&[998, 999, 1000], 0));
        // A starting deadline.
        assert_eq!(of(0, None, Missed::All(3), Some(65)), minutes(&[999, 1000], 998));
        assert_eq!(of(0, None, Missed::Latest, Some(4)), minutes(&[], 1000));
        // One that was waited for is not missed, unless the next one is due as well.
        assert_eq!(of(999, Some(1000 * 60), Missed::Skip, Some(1)), minutes(&[1000], 0));
        assert_eq!(of(998, Some(999 * 60), Missed::Skip, None), minutes(&[], 2));
        assert_eq!(of(998, Some(999 * 60), Missed::Latest, None), minutes(&[1000], 1));
        assert_eq!(of(1000, None, Missed::Latest, None), minutes(&[], 0));
    }

    /// The machine slept when the tick was due.
    #[test]
    fn a_tick_that_was_waited_for_may_be_too_late_as_well() {
        let hourly = Interval::new(Duration::from_secs(3600)).unwrap();
        for (late, deadline, runs) in [(59, 10, true), (61, 10, false), (119, 120, true), (121, 120, false)] {
            let policy = (Missed::Skip, Some(Duration::from_secs(deadline)));
            let due = due(&hourly, tick(0), tick(3600 + late).time(), Some(tick(3600)), policy);
            let ticks = if runs { vec![tick(3600)] } else { vec![] };
            assert_eq!(due, Due { ticks, skipped: usize::from(!runs) }, "{late} {deadline}");
        }
    }
}
