//! A loop that runs a job at each tick of a schedule.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use tokio::time::sleep;
use zlock_core::Result;

use crate::job::missed::due;
use crate::job::outcome::{JobContext, Outcome};
use crate::job::record::RunState;
use crate::job::recurring::{Patience, RecurringJob};
use crate::job::schedule::Schedule;
use crate::job::tick::Tick;

/// How long the loop sleeps at most before it looks at the clock again, which may have been set.
const LOOK: Duration = Duration::from_secs(60);

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl RecurringJob {
    /// Runs the closure at each tick of the schedule, on one of the machines that call this. Returns when the schedule has no
    /// more ticks.
    ///
    /// It reads the record once at the beginning, and sends no request between the ticks. At a tick it does what
    /// [`run`](Self::run) does, but waits for a run that is under way, so that it can run what that leaves: the tick, if its
    /// process dies and [`attempts`](Self::attempts) are left, or the next one. Ticks that were missed are run as
    /// [`missed`](Self::missed) says.
    ///
    /// An error of the closure is logged. While the store cannot be reached, the loop keeps trying, until the next tick is due.
    ///
    /// # Errors
    /// Errors that trying again does not change, such as [`Closed`](zlock_core::ErrorKind::Closed),
    /// [`ShuttingDown`](zlock_core::ErrorKind::ShuttingDown), [`NotAuthorized`](zlock_core::ErrorKind::NotAuthorized), and
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) for a value that is not the record of a job.
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
        let (mut after, mut awaited) = (self.first(&schedule).await?, None);
        loop {
            // If the clock was set back, the record keeps ticks from running again.
            let now = self.clock.now();
            let due = due(&schedule, after.min(Tick::at(now)), now, awaited, (self.missed, self.deadline));
            if due.skipped > 0 {
                let skipped = u64::try_from(due.skipped).unwrap_or(u64::MAX);
                tracing::warn!(path = %self.path(), skipped, "ticks of a job were missed");
                self.reports.report(|observer, name| observer.job_skipped(name, skipped));
            }
            for tick in due.ticks {
                self.run_until_settled(&schedule, tick, &mut job).await?;
            }
            after = Tick::at(now);
            let Some(next) = schedule.next(after) else { return Ok(()) };
            self.sleep_until(&schedule, next).await;
            awaited = Some(next);
        }
    }

    /// Returns the tick after which the first ones are due.
    async fn first(&self, schedule: &impl Schedule) -> Result<Tick> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.last().await {
                Ok(None) => return Ok(Tick::at(self.clock.now())),
                Ok(Some(run)) if run.state == RunState::Done || run.attempt >= self.attempts => {
                    return Ok(run.tick);
                }
                // It may be run again.
                Ok(Some(run)) => return Ok(Tick::from_millis(run.tick.millis().saturating_sub(1))),
                Err(error) if error.is_retryable() => {
                    tracing::warn!(path = %self.path(), %error, ?schedule, "the record of a job cannot be read yet");
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs the tick until it has run, has no attempts left, or the next one is due.
    async fn run_until_settled<E, F, W>(
        &self,
        schedule: &impl Schedule,
        tick: Tick,
        job: &mut F,
    ) -> Result<()>
    where
        E: Display,
        F: FnMut(JobContext, Tick) -> W,
        W: Future<Output = std::result::Result<(), E>>,
    {
        let (path, mut pause) = (self.path(), FIRST_PAUSE);
        loop {
            match self.run_due(tick, Patience::Wait, |context| job(context, tick)).await {
                Ok(Outcome::Ran(Err(error))) => {
                    tracing::warn!(%path, %tick, %error, "a job has failed");
                    if self.attempts == 1 {
                        return Ok(());
                    }
                }
                Ok(Outcome::GaveUp(run)) => {
                    tracing::warn!(%path, %tick, attempt = run.attempt, state = %run.state, "a job is not run again");
                    return Ok(());
                }
                Ok(_) => return Ok(()),
                Err(error) if error.is_retryable() => {
                    tracing::warn!(%path, %tick, %error, "a job could not be run, or was cancelled");
                }
                Err(error) => return Err(error),
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            if schedule.next(tick).is_some_and(|next| next <= Tick::at(self.clock.now())) {
                return Ok(());
            }
        }
    }

    /// Sleeps until the clock shows this tick, or an earlier tick has become the next one, since the clock was set back.
    async fn sleep_until(&self, schedule: &impl Schedule, next: Tick) {
        loop {
            let now = self.clock.now();
            let Ok(left) = next.time().duration_since(now) else { return };
            if left.is_zero() || schedule.next(Tick::at(now)).is_none_or(|earlier| earlier < next) {
                return;
            }
            sleep(left.min(LOOK)).await;
        }
    }
}
