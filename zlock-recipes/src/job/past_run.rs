//! The runs that have ended, as lines of a job's record.

use crate::job::run_state::RunState;
use crate::job::tick::Tick;

/// The number of runs that a record keeps.
const MOST: usize = 10;

/// The number of bytes that they take together.
const MOST_BYTES: usize = 4000;

/// A run that has ended. The record of a job keeps the last ten, or fewer if [`by`](Self::by) is long: see [`Run::history`](super::Run::history).
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastRun {
    /// The tick.
    pub tick: Tick,
    /// How it has ended. [`RunState::Started`] if the process died, or could not record the end.
    pub state: RunState,
    /// The number of the attempt, starting at 1.
    pub attempt: u32,
    /// When it began, by the clock of its process.
    pub began: Tick,
    /// When it ended, by that clock, if that was recorded.
    pub ended: Option<Tick>,
    /// The process that ran it, as in [`Run::by`](super::Run::by).
    pub by: String,
}

impl PastRun {
    /// Adds this run to earlier ones, the latest of which is the first. Leaves out the oldest.
    pub(super) fn before(self, earlier: &[PastRun]) -> Vec<PastRun> {
        let mut bytes = 0;
        let fits = |run: &PastRun| {
            bytes += run.to_line().len();
            bytes <= MOST_BYTES
        };
        std::iter::once(self).chain(earlier.iter().cloned()).take(MOST).take_while(fits).collect()
    }

    pub(super) fn to_line(&self) -> String {
        let PastRun { tick, state, attempt, began, ended, by } = self;
        let ended = ended.map_or_else(|| "-".to_owned(), |ended| ended.to_string());
        format!("{tick} {state} {attempt} {began} {ended} {by}")
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        Some(PastRun {
            tick: words.next()?.parse().ok()?,
            state: RunState::parse(words.next()?)?,
            attempt: words.next()?.parse().ok()?,
            began: words.next()?.parse().ok()?,
            ended: match words.next()? {
                "-" => None,
                ended => Some(ended.parse().ok()?),
            },
            by: words.next().unwrap_or_default().to_owned(),
        })
    }
}
