//! A job that runs once per tick.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::Instrument as _;
use zlock_core::{Consistency, Error, ErrorKind, FencingToken, LockPath, Result, Value};

use crate::client::Client;
use crate::guard::Guard;
use crate::job::clock::{Clock, SystemClock};
use crate::job::decide::{Decision, Doubt, decide, doubt};
use crate::job::job_run::JobRun;
use crate::job::missed::Missed;
use crate::job::outcome::{JobContext, Outcome};
use crate::job::record::Run;
use crate::job::reports::JobReports;
use crate::job::run_state::RunState;
use crate::job::schedule::{Schedule, longest_gap};
use crate::job::tick::{Tick, check_period};
use crate::locks::mutex::InterProcessMutex;
use crate::value::{CompareAndSet, SharedValue};

/// How long a run first waits for a lock whose holder has not claimed a tick yet.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The period of a job for which none is set.
const PERIOD: Duration = Duration::from_secs(86_400);

impl Client {
    /// Returns a handle to the job at `path`, which is that of its lock. Its record is beside it, at the path with `.job`
    /// appended. Performs no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPath`]; [`ErrorKind::InvalidArgument`] if the client's backend has no values.
    ///
    /// # Examples
    /// See [`RecurringJob`].
    pub fn recurring_job(&self, path: impl AsRef<str>) -> Result<RecurringJob> {
        let lock = self.mutex(path)?;
        let record = self.shared_value(format!("{}.job", lock.path()))?;
        Ok(RecurringJob {
            record,
            lock,
            attempts: 1,
            missed: Missed::Latest,
            deadline: None,
            period: None,
            clock: Arc::new(SystemClock),
            reports: JobReports { client: self.clone(), name: "".into() },
        })
    }
}

/// A job that one machine of a fleet runs at each tick. Created by [`Client::recurring_job`]. Cheap to clone.
///
/// A lock keeps two machines from working at the same time. It does not keep the second, whose clock is a little behind, from
/// starting after the first has finished. So the last tick is in a record beside the lock. A machine reads it, takes the
/// lock, and claims the tick by a write that is refused if the record has changed, or if the lock is lost. When the job has
/// ended, one transaction says so in the record and releases the lock.
///
/// A tick is named by the caller or by a [`Schedule`](super::Schedule). A wrong clock makes a tick early or late, and never
/// twice.
///
/// # Guarantees
/// | | `attempts(1)`, the default: at most once | more: at least once, as long as attempts are left |
/// |---|---|---|
/// | The process dies before the claim. | Another call runs the tick. | Another call runs the tick. |
/// | It dies during the work. | The tick is not run again; the next call reports it. | The next call runs it again, with a larger fencing token. |
/// | It dies after the work, before the record says so. | As during the work. | As during the work: the work is done twice. |
/// | The lock is lost during the work. | The closure is cancelled, before another process can begin. | The same, and the next call runs the tick again. |
/// | The closure returns an error. | The tick is not run again. | The next call runs it again. |
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// use std::convert::Infallible;
///
/// use zlock::job::{Outcome, Tick};
///
/// let job = client.recurring_job("/jobs/report")?.attempts(3);
/// let tick: Tick = "2025-11-24T21:00:00Z".parse()?;
/// for _machine in 0..2 {
///     match job.run(tick, async |_ctx| Ok::<_, Infallible>("the report")).await? {
///         Outcome::Ran(result) => println!("made {}", result.unwrap()),
///         Outcome::AlreadyRan(run) => println!("{} has made it", run.by),
///         other => println!("{other:?}"),
///     }
/// }
/// assert_eq!(job.last().await?.unwrap().tick, tick);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RecurringJob {
    record: SharedValue,
    pub(super) lock: InterProcessMutex,
    pub(super) attempts: u32,
    pub(super) missed: Missed,
    pub(super) deadline: Option<Duration>,
    period: Option<Duration>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) reports: JobReports,
}

/// A run that was claimed, or why there is none.
pub(super) type Claimed = std::result::Result<JobRun, Outcome<Infallible>>;

/// A tick that a process wants to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) tick: Tick,
    /// The tick after it, if that is known.
    pub(super) next: Option<Tick>,
    /// The time that may be doubted: that of the tick, or that of the clock by which it was found.
    pub(super) time: Tick,
    /// The schedule that the tick is from.
    pub(super) schedule: Option<&'a dyn Schedule>,
    /// The number of attempts after which a loop has paused. After a further one that has failed, the tick is not claimed, and the
    /// outcome is [`GaveUp`](Outcome::GaveUp) although attempts are left. `None` for a caller that does not pause.
    pub(super) over: Option<u32>,
}

impl Wanted<'_> {
    /// Returns `true` if this is the only tick that was due since the last one, however long that is.
    fn is_next_after(&self, last: Tick) -> bool {
        let is_next = self.schedule.is_some_and(|schedule| schedule.next(last) == Some(self.tick));
        is_next && self.next.is_none_or(|next| next > self.time)
    }
}

/// Settings.
impl RecurringJob {
    /// Sets how often a tick is run until one attempt ends without an error. Defaults to 1: at most once. With more, a tick
    /// whose process died, or whose closure failed, is run again: at least once, unless all attempts are used up. 0 counts as 1.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Sets which of the ticks that were missed [`every`](Self::every) runs. Defaults to [`Missed::Latest`].
    #[must_use]
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// Sets how late [`every`](Self::every) may begin a tick. Those that are later are skipped. A tick for which the loop has waited
    /// may always be a minute late, since the loop looks at the clock that often. Defaults to no limit.
    #[must_use]
    pub fn starting_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the longest time between two ticks of the job, from a millisecond to 366 days. Defaults to that of the schedule in
    /// [`every`](Self::every); other calls do not know it then. Another value is refused by the calls that use it.
    ///
    /// The record keeps the latest tick, so one that is a year ahead would end the job for a year. Two things are refused:
    ///
    /// - a tick that is further ahead of this machine's clock than this (or than a day, if it is not known), with
    ///   [`InvalidArgument`](ErrorKind::InvalidArgument);
    /// - a tick that is too much later than the last one that was run, with [`Outcome::Doubted`]. The limit is about 1,000 periods,
    ///   but at least four days and at most 30 days; if the period is longer than 15 days, it is two periods, and if it is not known,
    ///   100 days. In [`every`](Self::every), the next tick of the schedule after the last one that was run is never too late.
    ///
    /// Either nobody ran the job for so long, or this machine's clock is ahead. The call notes its time in the record. If others run
    /// the job, their next tick removes the note. If the note still stands after three periods (three days, if the period is not
    /// known), nobody does, and the next call runs its tick. If several clocks are far apart, each has a note, and the later ones have
    /// to stand for longer.
    #[must_use]
    pub fn period(mut self, period: Duration) -> Self {
        self.period = Some(period);
        self
    }

    /// Limits how long a run takes, as [`LockHandle::max_hold`](crate::LockHandle::max_hold) does. A run that is cancelled by it counts
    /// as a failed attempt, which is recorded. [`run`](Self::run) then returns [`HeldTooLong`](ErrorKind::HeldTooLong).
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the time is zero.
    pub fn max_hold(mut self, time: Duration) -> Result<Self> {
        self.lock = self.lock.max_hold(time)?;
        Ok(self)
    }

    /// Sets the clock, for tests. Defaults to the machine's, which tokio's paused time does not move.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the name of the job in the measurements of the client's [`Observer`](zlock_core::observer::Observer). Defaults to no name, with which nothing is
    /// measured. Use names from a small fixed set.
    #[must_use]
    pub fn with_metric_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.reports.name = name.into();
        self.lock = self.lock.with_metric_name(self.reports.name.clone());
        self
    }

    /// Returns the path of the job, which is that of its lock.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.lock.path()
    }

    /// Returns the path of the record: that of the job, and `.job`.
    #[must_use]
    pub fn record_path(&self) -> &LockPath {
        self.record.path()
    }
}

impl RecurringJob {
    /// Reads the record: the last run, whatever its state. `None` before the first one.
    ///
    /// # Errors
    /// Those of [`SharedValue::get`]; [`InvalidArgument`](ErrorKind::InvalidArgument) if the value is not the record of a job,
    /// or of a later format.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`RecurringJob`].
    pub async fn last(&self) -> Result<Option<Run>> {
        let value = self.record.get().await?;
        self.parse(value.as_ref())
    }

    /// Runs the closure for this tick, unless the tick has run, is running, or has no attempts left. Does not wait for a run that
    /// is under way.
    ///
    /// The closure runs inside the lock's [scope](Guard::scope). It is cancelled at its current await point if the lock is lost.
    /// If it returns an error, the run has failed.
    ///
    /// A call that finds the tick done costs one request. One that finds it running looks at the lock's queue, too. The call that
    /// runs the job costs 4 requests on etcd. On ZooKeeper it costs 5, and 2 more for the first write of a session.
    ///
    /// # Errors
    /// - [`InvalidArgument`](ErrorKind::InvalidArgument) for a tick that is more than a [`period`](Self::period) ahead of this
    ///   machine's clock, for a period out of range, and for a value that is not the record of a job.
    /// - The loss of the lock, for which [`Error::is_lock_lost`] is `true`. The closure was cancelled, or ended when the lock was
    ///   lost already. The record says that the run has started.
    /// - Those of [`acquire`](crate::LockHandle::acquire) and [`SharedValue::compare_and_set`]. If the error is
    ///   [ambiguous](Error::is_ambiguous), the record may say that the run has ended, or it has started.
    /// - [`Busy`](ErrorKind::Busy) if another program holds the lock for the client's response timeout without claiming a tick.
    ///
    /// # Cancel safety
    /// If the future is dropped during the work, the run counts as one whose process died.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`RecurringJob`].
    pub async fn run<T, E, F, W>(&self, tick: Tick, job: F) -> Result<Outcome<std::result::Result<T, E>>>
    where
        F: FnOnce(JobContext) -> W,
        W: Future<Output = std::result::Result<T, E>>,
    {
        let run = match self.begin(tick).await? {
            Ok(run) => run,
            Err(not_run) => return Ok(not_run.of()),
        };
        let context = JobContext::new(run.context(), tick, run.attempt());
        let worked = run.run_boxed(Box::pin(async { job(context).await }.instrument(run.span()))).await;
        Ok(Outcome::Ran(run.end_as(worked).await?))
    }

    /// Claims this tick for a caller that does the work without a closure, as [`run`](Self::run) does before it calls its closure.
    /// Returns the outcome if the tick is not to be run now.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As for [`run`](Self::run).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let job = client.recurring_job("/jobs/report")?;
    /// let tick = "2025-11-24T21:00:00Z".parse()?;
    /// if let Ok(run) = job.begin(tick).await? {
    ///     println!("attempt {} with the token {}", run.attempt(), run.fencing_token());
    ///     run.done().await?;
    /// }
    /// assert!(job.begin(tick).await?.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn begin(&self, tick: Tick) -> Result<std::result::Result<JobRun, Outcome<Infallible>>> {
        self.check(tick)?;
        let next = self.period.map(|period| Tick::at(tick.time() + period));
        self.claim(Wanted { tick, next, time: tick, schedule: None, over: None }, None).await
    }

    fn period_or_day(&self) -> Duration {
        self.period.unwrap_or(PERIOD)
    }

    /// Sets the period if none is set, to that of the schedule.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if one is set that cannot be.
    pub(super) fn with_period_of(&self, schedule: &dyn Schedule) -> Result<Self> {
        let longest = longest_gap(schedule, Tick::at(self.clock.now()));
        let period = self.checked_period()?.or(longest);
        Ok(RecurringJob { period, ..self.clone() })
    }

    /// Refuses a period that is too short or too long.
    fn checked_period(&self) -> Result<Option<Duration>> {
        let checked = self.period.map(check_period).transpose();
        checked.map_err(|error| error.with_path(self.path()))?;
        Ok(self.period)
    }

    /// Refuses a tick that is too far ahead.
    fn check(&self, tick: Tick) -> Result<()> {
        self.checked_period()?;
        let now = self.clock.now();
        if now.checked_add(self.period_or_day()).is_none_or(|latest| tick <= Tick::at(latest)) {
            return Ok(());
        }
        let (now, period) = (Tick::at(now), self.period_or_day());
        let message =
            format!("the tick {tick} is more than a period of {period:?} ahead of this clock, {now}");
        Err(self.error(ErrorKind::InvalidArgument).with_message(message))
    }

    /// Claims the tick, or returns why not. Acquires the lock for that, unless the caller has it.
    pub(super) async fn claim(&self, wanted: Wanted<'_>, guard: Option<Guard>) -> Result<Claimed> {
        let seen = self.record.values().value(self.record_path(), Consistency::Seen).await?;
        let (guard, seen) = match guard {
            Some(guard) => (guard, seen),
            None => match self.enter(wanted, seen).await? {
                Ok(entered) => entered,
                Err(outcome) => return Ok(Err(outcome)),
            },
        };
        self.claim_under(guard, wanted, seen).await
    }

    /// Acquires the lock if the record says that the tick may be claimed. Returns it with the record as it was seen before.
    async fn enter(
        &self,
        wanted: Wanted<'_>,
        mut seen: Option<Value>,
    ) -> Result<std::result::Result<(Guard, Option<Value>), Outcome<Infallible>>> {
        let (mut is_free, mut wait) = (false, FIRST_WAIT);
        // `None` if that is never.
        let give_up_at = Instant::now().checked_add(self.reports.client.inner().response_timeout);
        loop {
            let record = self.parse(seen.as_ref())?;
            let doubt = self.doubt(record.as_ref(), wanted);
            match (self.decide(record.as_ref(), wanted), record) {
                (_, Some(run)) if doubt == Doubt::Noted => return Ok(Err(Outcome::Doubted(run))),
                (Decision::Claim(_), Some(run))
                    if run.state == RunState::Started && self.is_held().await? =>
                {
                    return Ok(Err(Outcome::Running(run)));
                }
                (Decision::Claim(_), _) => match self.lock.acquire_timeout(wait).await {
                    Ok(guard) => return Ok(Ok((guard, seen))),
                    Err(error) if is_too_early(&error) && give_up_at.is_none_or(|at| Instant::now() < at) => {
                        // By now, the holder has claimed a tick.
                        seen = self.record.get().await?;
                        wait *= 2;
                    }
                    Err(error) => return Err(error),
                },
                (Decision::Ran, Some(run)) => return Ok(Err(Outcome::AlreadyRan(run))),
                (Decision::LastFailed | Decision::Pause, Some(run)) => return Ok(Err(Outcome::GaveUp(run))),
                (_, Some(run)) if is_free => return Ok(Err(Outcome::GaveUp(run))),
                (_, Some(run)) if self.is_held().await? => return Ok(Err(Outcome::Running(run))),
                _ => {
                    // It may have ended since it was read.
                    (seen, is_free) = (self.record.get().await?, true);
                }
            }
        }
    }

    /// Claims the tick under the lock, which is released if the tick is not to be run now.
    async fn claim_under(
        &self,
        guard: Guard,
        wanted: Wanted<'_>,
        mut seen: Option<Value>,
    ) -> Result<Claimed> {
        let (tick, token) = (wanted.tick, guard.fencing_token());
        let outcome = loop {
            let record = self.parse(seen.as_ref())?;
            let doubt = self.doubt(record.as_ref(), wanted);
            let before = record.as_ref().map(|run| run.tick);
            let written = match (self.decide(record.as_ref(), wanted), doubt, record.as_ref()) {
                (_, Doubt::Noted, Some(run)) => break Outcome::Doubted(run.clone()),
                // It runs under this very hold, which was entered again.
                (_, _, Some(run)) if run.state == RunState::Started && run.fencing_token == token => {
                    break Outcome::Running(run.clone());
                }
                (_, Doubt::New(notes), Some(run)) => run.doubts(notes),
                (Decision::Claim(attempt), _, run) => self.started(run, wanted, attempt, token),
                (Decision::Ran, _, Some(run)) => break Outcome::AlreadyRan(run.clone()),
                (_, _, Some(run)) => break Outcome::GaveUp(run.clone()),
                (_, _, None) => return Err(self.error(ErrorKind::Unexpected)),
            };
            let expected = seen.as_ref().map(|value| value.version);
            match self.record.compare_and_set_held(&guard, expected, written.to_data()).await? {
                CompareAndSet::Conflict(now) => seen = now,
                CompareAndSet::Written(version) if written.tick == tick => {
                    let (clock, record) = (self.clock.clone(), self.record.clone());
                    let (late, period) = (tick.late(clock.now()), self.period_or_day());
                    let reports = self.reports.clone();
                    return Ok(Ok(JobRun {
                        guard,
                        run: written,
                        before,
                        version,
                        late,
                        record,
                        clock,
                        period,
                        reports,
                    }));
                }
                CompareAndSet::Written(_) => break Outcome::Doubted(written),
            }
        };
        guard.release_or_log().await;
        Ok(Err(outcome))
    }

    /// Returns the record of an attempt that begins.
    fn started(&self, before: Option<&Run>, wanted: Wanted<'_>, attempt: u32, token: FencingToken) -> Run {
        let by = String::from_utf8_lossy(&self.reports.client.inner().node_data).into_owned();
        let now = Tick::at(self.clock.now());
        let mut run = Run::claim(before, wanted.tick, attempt, token, &by, now);
        (run.next, run.period) = (wanted.next, self.period);
        run
    }

    fn decide(&self, record: Option<&Run>, wanted: Wanted<'_>) -> Decision {
        decide(record, wanted.tick, self.attempts, wanted.over)
    }

    /// Decides whether to doubt this machine's clock. A tick that is not later than the last one does no harm, and the next one of the
    /// schedule leaves none out.
    fn doubt(&self, record: Option<&Run>, wanted: Wanted<'_>) -> Doubt {
        let record = record.filter(|run| wanted.tick > run.tick && !wanted.is_next_after(run.tick));
        doubt(record, wanted.time, self.period)
    }

    /// Returns `true` if the lock's queue has any node: a holder, or another process that is about to claim the tick.
    async fn is_held(&self) -> Result<bool> {
        let backend = self.reports.client.inner().backend();
        Ok(!backend.children(self.lock.path(), None).await?.is_empty())
    }

    fn parse(&self, value: Option<&Value>) -> Result<Option<Run>> {
        let run = value.map(|value| Run::parse(&value.data, self.record_path())).transpose()?.flatten();
        self.reports.saw(run.as_ref(), self.period_or_day());
        Ok(run)
    }

    pub(super) fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, "job").with_path(self.path())
    }
}

/// Returns `true` for an acquisition that may succeed if it is given more time.
fn is_too_early(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Busy | ErrorKind::Timeout(_))
}
