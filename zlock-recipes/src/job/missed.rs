//! What happens with ticks that nobody ran at their time.

use std::time::{Duration, SystemTime};

use crate::job::schedule::Schedule;
use crate::job::tick::Tick;

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
    if let ([only], Some(awaited)) = (all.as_slice(), awaited)
        && *only == awaited
    {
        return Due { ticks: all, skipped: 0 };
    }
    let in_time = |tick: &Tick| deadline.is_none_or(|deadline| tick.late(now) <= deadline);
    let skipped = all.len() - all.len().min(missed.most());
    let ticks: Vec<_> = all.iter().skip(skipped).copied().filter(in_time).collect();
    Due { skipped: all.len() - ticks.len(), ticks }
}
