//! A loop that runs a job at each tick of a schedule.

use std::collections::VecDeque;
use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use tokio::time::sleep;
use zlock_core::kit::FailureLog;
use zlock_core::{ErrorKind, Result, Retry, RetryPolicy};

use crate::guard::Guard;
use crate::job::job_run::JobRun;
use crate::job::missed::{LOOK, due};
use crate::job::outcome::{JobContext, Outcome};
use crate::job::record::RunState;
use crate::job::recurring::{Claimed, RecurringJob, Wanted};
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
    /// It reads the record once at the beginning, and sends no request between the ticks. At a tick it does what
    /// [`run`](Self::run) does, but waits for a run in progress. If that run fails or its process
    /// dies, and [`attempts`](Self::attempts) are left, it runs the same tick again; otherwise it goes on with the next tick. After an attempt
    /// that has failed, all machines pause, for half a second to a second at first, and for up to 30 seconds later. Ticks that were
    /// missed are run as [`missed`](Self::missed) says. A tick for which the loop had to wait until the next one was due counts as missed.
    ///
    /// An error of the closure is logged. A panic is logged, too, and counts as an error: it ends neither this loop nor, with
    /// further attempts, those of other machines. While the store cannot be reached, the loop keeps trying, until the next tick is due.
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
        let mut ticks = Ticks::new(self, schedule).await?;
        while let Some(run) = ticks.next().await? {
            let context = JobContext::new(run.context(), run.tick(), run.attempt());
            let work = caught(Box::pin(async { job(context, run.tick()).await }));
            let worked = run.run_boxed(Box::pin(work)).await;
            ticks.end(run, worked.map(settled)).await?;
        }
        Ok(())
    }

    /// Returns the tick after which the first ones are due.
    async fn first(&self) -> Result<Tick> {
        let (mut pauses, mut log) = (PAUSES.start(), FailureLog::default());
        loop {
            match self.last().await {
                Ok(None) => return Ok(Tick::at(self.clock.now())),
                Ok(Some(run)) if run.state == RunState::Done || run.attempt >= self.attempts => {
                    return Ok(run.tick);
                }
                // It may be run again.
                Ok(Some(run)) => return Ok(run.tick.before()),
                Err(error) if error.is_retryable() => {
                    if log.is_due(&error) {
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
            () = client.shutdown.begun() => Err(self.error(ErrorKind::ShuttingDown)),
            () = client.shutdown.closed() => Err(self.error(ErrorKind::Closed)),
            () = sleep(time) => match closed(client.session.current()) {
                Some(status) => Err(self.error(lost_kind(status))),
                None => Ok(()),
            },
        }
    }
}

/// The runs of a job that this process claims, one after another, as a schedule says. The caller does the work of each.
#[derive(Debug)]
pub(crate) struct Ticks<S> {
    job: RecurringJob,
    schedule: S,
    /// The time up to which all ticks have been looked at.
    after: Tick,
    /// The next tick, for which this process waits.
    awaited: Option<Tick>,
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
    /// The number of failed attempts after which this process has paused.
    paused: u32,
}

impl<S: Schedule> Ticks<S> {
    pub(crate) async fn new(job: &RecurringJob, schedule: S) -> Result<Self> {
        let job = job.with_period_of(&schedule)?;
        let after = job.first().await?;
        // What was missed is due at once.
        let due = VecDeque::new();
        let mut ticks = Ticks {
            job,
            schedule,
            after,
            awaited: None,
            due,
            current: None,
            pauses: PAUSES.start(),
            log: FailureLog::default(),
        };
        ticks.look(None);
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
                let until = self.schedule.next(tick.max(self.now()));
                (self.current, self.pauses) = (Some(Current { tick, until, paused: 0 }), PAUSES.start());
            } else {
                // One that is not later would be awaited again and again, without a pause.
                let next = self.schedule.next(self.after).filter(|next| *next > self.after);
                let Some(next) = next else { return Ok(None) };
                self.sleep_until(next).await?;
                self.awaited = Some(next);
                self.look(None);
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
            Ok(Ok(())) => self.current = None,
            Ok(Err(_)) if attempt < self.job.attempts => self.pause_after(attempt).await?,
            Ok(Err(_)) => {
                if attempt > 1 {
                    tracing::warn!(%path, %tick, attempt, "a job is not run again");
                }
                self.current = None;
            }
            Err(error) if error.is_retryable() => {
                tracing::warn!(%path, %tick, %error, "a job was cancelled, or its end could not be recorded");
                self.pause().await?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Finds what is due by now. A tick that another process has run meanwhile is not missed.
    fn look(&mut self, run_elsewhere: Option<Tick>) {
        // If the clock was set back, the record keeps ticks from running again.
        let now = self.job.clock.now();
        let after = self.after.min(Tick::at(now));
        let due = due(&self.schedule, after, now, self.awaited, (self.job.missed, self.job.deadline));
        let is_run = run_elsewhere.is_some_and(|tick| !due.ticks.contains(&tick));
        let skipped = due.skipped.saturating_sub(usize::from(is_run));
        if skipped > 0 {
            let skipped = u64::try_from(skipped).unwrap_or(u64::MAX);
            tracing::warn!(path = %self.job.path(), skipped, "ticks of a job were missed");
            self.job.reports.report(|observer, name| observer.job_skipped(name, skipped));
        }
        (self.due, self.after) = (due.ticks.into(), Tick::at(now));
    }

    /// Claims the tick, unless it has run or has no attempts left.
    async fn claim(&mut self, current: Current) -> Result<Option<JobRun>> {
        let (tick, path) = (current.tick, self.job.path().clone());
        let mut claimed = self.try_claim(current, None).await;
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
                self.log = FailureLog::default();
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
                tracing::warn!(%path, %tick, %last, "a job is not run, since this machine's clock may be far ahead");
            }
            Ok(Err(_)) => {}
            Err(error) if error.is_retryable() => {
                if self.log.is_due(&error) {
                    tracing::warn!(%path, %tick, %error, "a job could not be run");
                }
                self.pause().await?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        self.current = None;
        Ok(None)
    }

    async fn try_claim(&self, current: Current, guard: Option<Guard>) -> Result<Claimed> {
        let Current { tick, paused, .. } = current;
        // The ticks are found by the clock, which may be ahead even if this one is not.
        let (next, time) = (self.schedule.next(tick), tick.max(self.now()));
        self.job.claim(Wanted { tick, next, time, paused }, guard).await
    }

    /// Waits for the lock, and claims the tick. Returns `None` if it is not to be run any more, since the next one is due by now.
    async fn claim_later(&mut self, current: Current) -> Result<Option<Claimed>> {
        let tick = current.tick;
        let guard = self.job.lock.acquire().await?;
        (self.after, self.awaited) = (tick.before(), Some(tick));
        self.look(Some(tick));
        if self.due.front() == Some(&tick) {
            self.due.pop_front();
            // The wait may have taken longer than until the tick after it.
            let current = Current { until: self.schedule.next(tick.max(self.now())), ..current };
            self.current = Some(current);
            return self.try_claim(current, Some(guard)).await.map(Some);
        }
        guard.release_or_log().await;
        Ok(None)
    }

    fn now(&self) -> Tick {
        Tick::at(self.job.clock.now())
    }

    /// Waits after a failed attempt at the current tick.
    async fn pause_after(&mut self, attempt: u32) -> Result<()> {
        if let Some(current) = &mut self.current {
            current.paused = attempt;
        }
        self.pause().await
    }

    /// Waits before the next attempt at the current tick, and gives it up if another one has become due.
    async fn pause(&mut self) -> Result<()> {
        let pause = self.pauses.next_delay().unwrap_or_default();
        self.job.sleep(pause).await?;
        let now = self.now();
        self.current.take_if(|current| current.until.is_some_and(|until| until <= now));
        Ok(())
    }

    /// Sleeps until the clock shows this tick, or an earlier tick has become the next one, since the clock was set back.
    async fn sleep_until(&self, next: Tick) -> Result<()> {
        loop {
            let now = self.job.clock.now();
            let Ok(left) = next.time().duration_since(now) else { return Ok(()) };
            if left.is_zero() || self.schedule.next(Tick::at(now)).is_none_or(|earlier| earlier < next) {
                return Ok(());
            }
            self.job.sleep(left.min(LOOK)).await?;
        }
    }
}
