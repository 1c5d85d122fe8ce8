//! A loop that runs a job at each tick of a schedule.

use std::collections::VecDeque;
use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use tokio::time::sleep;
use tracing::Instrument as _;
use zlock_core::kit::FailureLog;
use zlock_core::{ErrorKind, Result, Retry, RetryPolicy};

use crate::guard::Guard;
use crate::job::job_run::JobRun;
use crate::job::missed::{LOOK, LOOK_AT_WRONG, Missed, due};
use crate::job::outcome::{JobContext, Outcome};
use crate::job::recurring::{Claimed, RecurringJob, Wanted};
use crate::job::run_state::RunState;
use crate::job::schedule::Schedule;
use crate::job::tick::Tick;
use crate::panics::caught;
use crate::place::granted::{closed, lost_kind};

/// The pauses before further attempts at the same tick.
const PAUSES: RetryPolicy =
    RetryPolicy::bounded_exponential(Duration::from_millis(500), Duration::from_secs(30), u32::MAX);

impl RecurringJob {
    /// Runs the closure at each tick of the schedule, on one of the machines that call this. Returns when the schedule has no
    /// more ticks.
    ///
    /// It reads the record at the beginning, and sends no request between the ticks. As long as the job has no record, or this machine's
    /// clock is behind the last tick, it reads the record at each tick. At a tick it does what
    /// [`run`](Self::run) does, but waits for a run in progress. If that run fails or its process
    /// dies, and [`attempts`](Self::attempts) are left, it runs the same tick again; otherwise it goes on with the next tick. After an attempt
    /// that has failed, all machines pause, for half a second to a second at first, and for up to 30 seconds later. Ticks that were
    /// missed are run as [`missed`](Self::missed) says. A tick for which the loop had to wait until the next one was due counts as missed.
    ///
    /// The ticks follow from what was decided last, by the record or by this loop. A clock that is wrong for a while, in either
    /// direction, leaves out none. A tick that this loop has run is not run again with the same attempt, even if the record is deleted.
    ///
    /// An error of the closure is logged. A panic is logged, too, and counts as an error: it ends neither this loop nor, with
    /// further attempts, those of other machines. While the store cannot be reached, the loop keeps trying, until the next tick is due.
    /// The end of the loop is logged with its reason.
    ///
    /// # Errors
    /// Errors that trying again does not change, such as [`NotAuthorized`](zlock_core::ErrorKind::NotAuthorized), and
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) for a value that is not the record of a job or a
    /// [`period`](Self::period) out of range. When the client [shuts down](crate::Client::shutdown) or is closed,
    /// [`ShuttingDown`](zlock_core::ErrorKind::ShuttingDown) or [`Closed`](zlock_core::ErrorKind::Closed): at once between two
    /// runs, otherwise at the end of the current run.
    ///
    /// # Cancel safety
    /// As for [`run`](Self::run).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    ///
    /// use zlock::job::Interval;
    ///
    /// let hourly = Interval::new(Duration::from_secs(3600))?;
    /// let job = client.recurring_job("/jobs/report")?.attempts(3);
    /// job.every(hourly, async |ctx, tick| {
    ///     println!("the report of {tick}, attempt {}", ctx.attempt());
    ///     Ok::<_, Infallible>(())
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn every<E, F, W>(&self, schedule: impl Schedule, mut job: F) -> Result<()>
    where
        E: Display,
        F: FnMut(JobContext, Tick) -> W,
        W: Future<Output = std::result::Result<(), E>>,
    {
        let looped = async {
            let mut ticks = Ticks::new(self, schedule).await?;
            while let Some(run) = ticks.next().await? {
                let context = JobContext::new(run.context(), run.tick(), run.attempt());
                let work = caught(Box::pin(async { job(context, run.tick()).await }));
                let worked = run.run_boxed(Box::pin(work.instrument(run.span()))).await;
                ticks.end(run, worked.map(settled)).await?;
            }
            Ok(())
        };
        self.log_end(looped.await)
    }

    /// Logs why the loop ends, and returns that.
    pub(crate) fn log_end(&self, ended: Result<()>) -> Result<()> {
        let reason: &dyn Display = match &ended {
            Ok(()) => &"the schedule has no more ticks",
            Err(error) => error,
        };
        tracing::info!(path = %self.path(), %reason, "a job is not run any more by this loop");
        ended
    }

    /// Reads the tick that was decided last. `None` for a job without a record.
    async fn decided(&self) -> Result<Option<Tick>> {
        let (mut pauses, mut log) = (PAUSES.start(), FailureLog::default());
        loop {
            match self.last().await {
                Ok(None) => return Ok(None),
                Ok(Some(run)) if run.state == RunState::Done || run.attempt >= self.attempts => {
                    return Ok(Some(run.tick));
                }
                // It may be run again.
                Ok(Some(run)) => return Ok(Some(run.tick.before())),
                Err(error) if error.is_retryable() => {
                    if log.record(&error) {
                        tracing::warn!(path = %self.path(), %error, "the record of a job cannot be read yet");
                    }
                    self.sleep(pauses.next_delay().unwrap_or_default()).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sleeps, unless the client shuts down or is closed.
    async fn sleep(&self, time: Duration) -> Result<()> {
        let client = self.reports.client.inner();
        tokio::select! {
            biased;
            () = client.shutdown.begun.raised() => Err(self.error(ErrorKind::ShuttingDown)),
            () = client.shutdown.closed.raised() => Err(self.error(ErrorKind::Closed)),
            () = sleep(time) => match closed(client.session.current()) {
                Some(status) => Err(self.error(lost_kind(status))),
                None => Ok(()),
            },
        }
    }
}

/// The runs of a job that this process claims, one after another, as a schedule says. The caller does the work of each.
///
/// What was decided last leads, and the clock only proposes the ticks after it, up to now.
#[derive(Debug)]
pub(crate) struct Ticks<S> {
    job: RecurringJob,
    schedule: S,
    /// The last tick that is decided: it was run or given up, on this machine or another, or left out on this one. Clocks that are
    /// behind it prove it wrong, so the record is read again.
    after: Tick,
    /// The last tick that this process has run. It does so once, whatever the record says.
    ran: Option<Tick>,
    /// The job had no record when that was read last.
    is_new: bool,
    /// The clock was behind, or several ticks were due at once, and the store has not confirmed a tick since. So the clock may be wrong.
    is_doubtful: bool,
    due: VecDeque<Tick>,
    current: Option<Current>,
    /// The pauses before further attempts at that tick.
    pauses: Retry,
    /// Of the attempts since the last claim.
    log: FailureLog,
}

/// Returns the error of work that has failed or panicked.
pub(crate) fn settled<E: Display>(
    worked: std::thread::Result<std::result::Result<(), E>>,
) -> std::result::Result<(), String> {
    match worked {
        Ok(worked) => worked.map_err(|error| error.to_string()),
        // The panic's message was printed by the hook of the program.
        Err(_) => Err("it panicked".to_owned()),
    }
}

/// A tick that is to be run until one attempt ends without an error.
#[derive(Clone, Copy, Debug)]
struct Current {
    tick: Tick,
    /// The tick with which attempts at this one end: the first one that was not due yet when they began.
    until: Option<Tick>,
    /// The number of attempts, here or elsewhere, after which this process has paused.
    over: u32,
}

impl<S: Schedule> Ticks<S> {
    pub(crate) async fn new(job: &RecurringJob, schedule: S) -> Result<Self> {
        let job = job.with_period_of(&schedule)?;
        let mut ticks = Ticks {
            job,
            schedule,
            after: Tick::from_millis(u64::MAX),
            ran: None,
            is_new: true,
            is_doubtful: false,
            due: VecDeque::new(),
            current: None,
            pauses: PAUSES.start(),
            log: FailureLog::default(),
        };
        // What was missed is due at once.
        ticks.look(None).await?;
        Ok(ticks)
    }

    /// Waits for the next tick that this process is to run, and claims it. Returns `None` at the end of the schedule.
    pub(crate) async fn next(&mut self) -> Result<Option<JobRun>> {
        loop {
            if let Some(current) = self.current {
                if let Some(run) = self.claim(current).await? {
                    return Ok(Some(run));
                }
            } else if let Some(tick) = self.due.pop_front() {
                let until = self.next_after(tick.max(self.now()));
                (self.current, self.pauses) = (Some(Current { tick, until, over: 0 }), PAUSES.start());
            } else {
                let Some(next) = self.next_after(self.after.min(self.now())) else { return Ok(None) };
                self.wait(next).await?;
            }
        }
    }

    /// Ends a run as its work has ended, or was cancelled because the lock was lost.
    pub(crate) async fn end(
        &mut self,
        run: JobRun,
        worked: Result<std::result::Result<(), String>>,
    ) -> Result<()> {
        let (path, tick, attempt) = (self.job.path().clone(), run.tick(), run.attempt());
        if let Ok(Err(error)) = &worked {
            tracing::warn!(%path, %tick, %error, "a job has failed");
        }
        match run.end_as(worked).await {
            Ok(Ok(())) => {
                self.pass(tick);
                return Ok(());
            }
            Ok(Err(_)) => {}
            Err(error) if error.is_retryable() || error.kind() == ErrorKind::HeldTooLong => {
                tracing::warn!(%path, %tick, %error, "a job was cancelled, or its end could not be recorded");
            }
            Err(error) => return Err(error),
        }
        if attempt < self.job.attempts {
            return self.pause_after(attempt).await;
        }
        if attempt > 1 {
            tracing::warn!(%path, %tick, attempt, "a job is not run again");
        }
        self.pass(tick);
        Ok(())
    }

    /// Waits until a tick is due by the clock, or until an earlier one is the next, since the clock was set back. Then finds what is
    /// due.
    async fn wait(&mut self, next: Tick) -> Result<()> {
        loop {
            let now = self.job.clock.now();
            let left = next.time().duration_since(now).unwrap_or_default();
            if left.is_zero() || self.next_after(Tick::at(now)).is_none_or(|earlier| earlier < next) {
                return self.look(Some(next)).await;
            }
            let look = if self.is_doubtful { LOOK_AT_WRONG } else { LOOK };
            self.job.sleep(left.min(look)).await?;
        }
    }

    /// Finds what is due by now. Reads the record first if the job had none, and if the clock may be wrong or other machines may have
    /// run the job meanwhile. Without a record, only the tick that was awaited can be due.
    async fn look(&mut self, awaited: Option<Tick>) -> Result<()> {
        let second = self.next_after(self.after).and_then(|first| self.next_after(first));
        let (now, are_several) = (self.now(), second.is_some_and(|second| second <= self.now()));
        if now < self.after || are_several {
            self.is_doubtful = true;
        }
        if self.is_doubtful || self.is_new {
            let known = if now < self.after { self.ran } else { Some(self.after) };
            let decided = self.job.decided().await?;
            let begin = awaited.map_or(now, |tick| tick.before().min(now));
            (self.is_new, self.after) = (decided.is_none(), decided.max(known).unwrap_or(begin));
        }
        self.propose(awaited.is_some());
        Ok(())
    }

    /// Finds what is due by now, after what was decided.
    fn propose(&mut self, has_waited: bool) {
        let now = self.job.clock.now();
        let missed = if self.is_new { Missed::Skip } else { self.job.missed };
        self.due = due(&self.schedule, self.after, now, has_waited, (missed, self.job.deadline)).into();
        // The others are left out.
        self.after = self.due.front().map_or(Tick::at(now), |first| first.before()).max(self.after);
    }

    /// Claims the tick, unless it has run or has no attempts left.
    async fn claim(&mut self, current: Current) -> Result<Option<JobRun>> {
        let (tick, path) = (current.tick, self.job.path().clone());
        let mut claimed = self.try_claim(current, None).await;
        // Any outcome is that of a record.
        self.is_new &= claimed.is_err();
        let waits = match &claimed {
            Ok(Err(Outcome::Running(run))) => run.tick < tick || run.attempt < self.job.attempts,
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::Busy,
        };
        if waits {
            let Some(later) = self.claim_later(current).await.transpose() else {
                self.current = None;
                return Ok(None);
            };
            claimed = later;
        }
        match claimed {
            Ok(Ok(run)) => {
                self.ran = Some(tick);
                self.log = FailureLog::default();
                self.report_skipped(&run);
                return Ok(Some(run));
            }
            // That of another machine. If all that wait for it went on at once, the attempts would be used up in a moment.
            Ok(Err(Outcome::GaveUp(run)))
                if run.state == RunState::Failed && run.attempt < self.job.attempts =>
            {
                self.pause_after(run.attempt).await?;
                return Ok(None);
            }
            Ok(Err(Outcome::GaveUp(run))) => {
                tracing::warn!(%path, %tick, attempt = run.attempt, state = %run.state, "a job is not run again");
            }
            Ok(Err(Outcome::Doubted(run))) => {
                let last = run.tick;
                tracing::warn!(%path, %tick, %last, "a job is not run yet: nobody ran it for so long, or this machine's clock is ahead");
                return self.wait_in_doubt(tick).await.map(|()| None);
            }
            Ok(Err(_)) => {}
            Err(error) if error.is_retryable() || error.kind() == ErrorKind::HeldTooLong => {
                if self.log.record(&error) {
                    tracing::warn!(%path, %tick, %error, "a job could not be run");
                }
                self.pause().await?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        self.pass(tick);
        Ok(None)
    }

    /// Waits for the next tick by a clock that is doubted. Nothing is decided, so if the clock is set back, what is due by then is run.
    async fn wait_in_doubt(&mut self, tick: Tick) -> Result<()> {
        (self.current, self.due, self.is_doubtful) = (None, VecDeque::new(), true);
        let next = self.next_after(self.now());
        if next.is_none() || self.job.missed.most() == 0 {
            self.after = self.after.max(tick);
        }
        match next {
            Some(next) => self.wait(next).await,
            None => Ok(()),
        }
    }

    /// Reports the ticks between the last one that was run and this one. Each of them is left out by all machines from now on, and is
    /// between two runs only once.
    fn report_skipped(&self, run: &JobRun) {
        let between = |last: Tick| self.schedule.due(last, run.tick().before()).len();
        let skipped = u64::try_from(run.before.map_or(0, between)).unwrap_or(u64::MAX);
        if skipped > 0 {
            tracing::warn!(path = %self.job.path(), skipped, "ticks of a job were missed");
            self.job.reports.report(|observer, name| observer.job_skipped(name, skipped));
        }
    }

    async fn try_claim(&self, current: Current, guard: Option<Guard>) -> Result<Claimed> {
        let Current { tick, over, .. } = current;
        // The ticks are found by the clock, which may be ahead even if this one is not.
        let (next, time) = (self.next_after(tick), tick.max(self.now()));
        let wanted = Wanted { tick, next, time, schedule: Some(&self.schedule), over: Some(over) };
        self.job.claim(wanted, guard).await
    }

    /// Waits for the lock, and claims the tick. Returns `None` if it is not to be run any more, since the next one is due by now.
    async fn claim_later(&mut self, current: Current) -> Result<Option<Claimed>> {
        let tick = current.tick;
        let guard = self.job.lock.acquire().await?;
        self.after = tick.before();
        self.propose(true);
        if self.due.front() == Some(&tick) {
            self.due.pop_front();
            // The wait may have taken longer than until the tick after it.
            let current = Current { until: self.next_after(tick.max(self.now())), ..current };
            self.current = Some(current);
            return self.try_claim(current, Some(guard)).await.map(Some);
        }
        guard.release_or_log().await;
        Ok(None)
    }

    fn now(&self) -> Tick {
        Tick::at(self.job.clock.now())
    }

    /// Returns the first tick of the schedule that is later. One that is not would be awaited again and again, without a pause.
    fn next_after(&self, tick: Tick) -> Option<Tick> {
        self.schedule.next(tick).filter(|next| *next > tick)
    }

    /// Goes on with the ticks after this one.
    fn pass(&mut self, tick: Tick) {
        (self.current, self.after, self.is_doubtful) = (None, self.after.max(tick), false);
    }

    /// Waits after an attempt at the current tick.
    async fn pause_after(&mut self, attempt: u32) -> Result<()> {
        if let Some(current) = &mut self.current {
            current.over = current.over.max(attempt);
        }
        self.pause().await
    }

    /// Waits before the next attempt at the current tick, and gives it up if another one has become due.
    async fn pause(&mut self) -> Result<()> {
        let pause = self.pauses.next_delay().unwrap_or_default();
        self.job.sleep(pause).await?;
        let now = self.now();
        if let Some(Current { tick, until: Some(until), .. }) = self.current
            && until <= now
        {
            self.pass(tick);
        }
        Ok(())
    }
}
