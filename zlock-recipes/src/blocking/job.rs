//! The blocking version of jobs that run once per tick.

use std::convert::Infallible;
use std::fmt::Display;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use zlock_core::{FencingToken, LockPath, Result};

use super::client::Client;
use super::driver::{Driver, Mine, held};
use super::guard::still_entered;
use crate::job::{self, Clock, Missed, Outcome, Run, Schedule, Tick, Ticks, settled};

impl Client {
    /// Returns a handle to the job at `path`, as [`zlock::Client::recurring_job`](crate::Client::recurring_job) does.
    ///
    /// # Errors
    /// Those of [`zlock::Client::recurring_job`](crate::Client::recurring_job).
    ///
    /// # Examples
    /// See [`RecurringJob`].
    pub fn recurring_job(&self, path: impl AsRef<str>) -> Result<RecurringJob> {
        let job = self.as_async().recurring_job(path)?;
        Ok(RecurringJob { job, driver: self.driver().clone() })
    }
}

/// A job that one machine of a fleet runs at each tick. The blocking version of
/// [`zlock::job::RecurringJob`](crate::job::RecurringJob), which has the guarantees. Cheap to clone.
///
/// Closures cannot be cancelled. They should call [`JobRun::check`] between their steps, which returns an error once the job's lock
/// is lost. Another process may run the tick again from then on, if attempts are left.
///
/// # Examples
/// ```
/// # fn main() -> zlock::Result<()> {
/// use std::convert::Infallible;
///
/// use zlock::job::Outcome;
///
/// let client = zlock::blocking::connect("mem://")?;
/// let job = client.recurring_job("/jobs/report")?.attempts(3);
/// let tick = "2025-11-24T21:00:00Z".parse()?;
/// let outcome = job.run(tick, |run| Ok::<_, Infallible>(run.fencing_token()))?;
/// assert!(matches!(outcome, Outcome::Ran(Ok(_))));
/// assert!(matches!(job.run(tick, |_| Ok::<_, Infallible>(()))?, Outcome::AlreadyRan(_)));
/// # client.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RecurringJob {
    job: job::RecurringJob,
    driver: Driver,
}

/// Settings.
impl RecurringJob {
    fn map(self, change: impl FnOnce(job::RecurringJob) -> job::RecurringJob) -> Self {
        RecurringJob { job: change(self.job), driver: self.driver }
    }

    /// Sets how often a tick is run, as [`attempts`](crate::job::RecurringJob::attempts) of the async version does.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> Self {
        self.map(|job| job.attempts(attempts))
    }

    /// Sets which missed ticks are run, as [`missed`](crate::job::RecurringJob::missed) of the async version does.
    #[must_use]
    pub fn missed(self, missed: Missed) -> Self {
        self.map(|job| job.missed(missed))
    }

    /// Sets how late a missed tick may begin, as [`starting_deadline`](crate::job::RecurringJob::starting_deadline) of the async
    /// version does.
    #[must_use]
    pub fn starting_deadline(self, deadline: Duration) -> Self {
        self.map(|job| job.starting_deadline(deadline))
    }

    /// Sets the longest time between two ticks, as [`period`](crate::job::RecurringJob::period) of the async version does.
    #[must_use]
    pub fn period(self, period: Duration) -> Self {
        self.map(|job| job.period(period))
    }

    /// Limits how long a run takes. A thread is not cancelled: [`JobRun::check`] says that the time is over. A run that ends later
    /// counts as a failed attempt.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if the time is zero.
    pub fn max_hold(self, time: Duration) -> Result<Self> {
        Ok(RecurringJob { job: self.job.max_hold(time)?, driver: self.driver })
    }

    /// Sets the clock, as [`clock`](crate::job::RecurringJob::clock) of the async version does.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        self.map(|job| job.clock(clock))
    }

    /// Sets the name in metrics, as [`with_metric_name`](crate::job::RecurringJob::with_metric_name) of the async version does.
    #[must_use]
    pub fn with_metric_name(self, name: impl Into<Arc<str>>) -> Self {
        self.map(|job| job.with_metric_name(name))
    }
}

impl RecurringJob {
    /// Returns the path of the job, which is that of its lock.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.job.path()
    }

    /// Reads the record, as [`last`](crate::job::RecurringJob::last) of the async version does.
    ///
    /// # Errors
    /// Those of the async version, and [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// assert_eq!(client.recurring_job("/jobs/report")?.last()?, None);
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn last(&self) -> Result<Option<Run>> {
        self.driver.run("job", self.job.last())
    }

    /// Runs the closure for this tick, unless the tick has run, is running, or has no attempts left, as
    /// [`run`](crate::job::RecurringJob::run) of the async version does.
    ///
    /// # Errors
    /// Those of the async version, and [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused). If the lock was lost during the
    /// work, the call returns the loss after the closure has returned.
    ///
    /// # Examples
    /// See [`RecurringJob`].
    pub fn run<T, E>(
        &self,
        tick: Tick,
        job: impl FnOnce(&JobRun) -> std::result::Result<T, E>,
    ) -> Result<Outcome<std::result::Result<T, E>>> {
        match self.begin(tick)? {
            Ok(run) => {
                let worked = run.run.span().in_scope(|| job(&run));
                let worked = run.check().map(|()| worked);
                Ok(Outcome::Ran(self.driver.run("job", run.into_async().end_as(worked))?))
            }
            Err(not_run) => Ok(not_run.of()),
        }
    }

    /// Claims this tick for a caller that does the work without a closure, as [`begin`](crate::job::RecurringJob::begin) of the
    /// async version does.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let job = client.recurring_job("/jobs/report")?;
    /// if let Ok(run) = job.begin("2025-11-24T21:00:00Z".parse()?)? {
    ///     println!("attempt {} with the token {}", run.attempt(), run.fencing_token());
    ///     run.done()?;
    /// }
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin(&self, tick: Tick) -> Result<std::result::Result<JobRun, Outcome<Infallible>>> {
        let claimed = self.driver.run("job", held("job")?.scope(self.job.begin(tick)));
        let claimed = claimed.map_err(still_entered)?;
        Ok(claimed.map(|run| JobRun::new(run, &self.driver)))
    }

    /// Runs the closure at each tick of the schedule, on one of the machines that call this, as
    /// [`every`](crate::job::RecurringJob::every) of the async version does. The calling thread waits between the ticks. Returns when
    /// the schedule has no more ticks, or with an error when the client is closed.
    ///
    /// # Errors
    /// Those of the async version, and [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// ```no_run
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    ///
    /// use zlock::job::Interval;
    ///
    /// let hourly = Interval::new(Duration::from_secs(3600))?;
    /// client.recurring_job("/jobs/report")?.every(hourly, |run| {
    ///     println!("the report of {}", run.tick());
    ///     Ok::<_, Infallible>(())
    /// })
    /// # }
    /// ```
    pub fn every<E: Display>(
        &self,
        schedule: impl Schedule,
        mut job: impl FnMut(&JobRun) -> std::result::Result<(), E>,
    ) -> Result<()> {
        let looped = || {
            let mut ticks = self.driver.run("job", Ticks::new(&self.job, schedule))?;
            while let Some(run) = self.driver.run("job", held("job")?.scope(ticks.next()))? {
                let run = JobRun::new(run, &self.driver);
                let worked =
                    settled(run.run.span().in_scope(|| catch_unwind(AssertUnwindSafe(|| job(&run)))));
                let worked = run.check().map(|()| worked);
                self.driver.run("job", ticks.end(run.into_async(), worked))?;
            }
            Ok(())
        };
        self.job.log_end(looped())
    }
}

/// A run that has been claimed, which stays on its thread. The blocking version of [`zlock::job::JobRun`](crate::job::JobRun).
///
/// Dropping it releases the lock, and leaves the record as if the process had died.
#[derive(Debug)]
#[must_use = "a run that is dropped counts as one whose process died"]
pub struct JobRun {
    run: job::JobRun,
    driver: Driver,
    /// Lets the thread enter the lock again.
    _mine: Mine,
    /// Makes this type `Sync` but not `Send`, as guards are.
    stays: PhantomData<MutexGuard<'static, ()>>,
}

impl JobRun {
    fn new(run: job::JobRun, driver: &Driver) -> Self {
        let _mine = Mine::new(&*run);
        JobRun { run, driver: driver.clone(), _mine, stays: PhantomData }
    }

    fn into_async(self) -> job::JobRun {
        self.run
    }

    /// Returns the tick that the run is for.
    #[must_use]
    pub fn tick(&self) -> Tick {
        self.run.tick()
    }

    /// Returns the number of the attempt, starting at 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.run.attempt()
    }

    /// Returns the async guard of the job's lock, for calls that need the lock, such as
    /// [`write_under`](crate::SharedValue::write_under).
    pub fn guard(&self) -> &crate::Guard {
        &self.run
    }

    /// Returns the token to pass to the storage that the job writes to, as
    /// [`zlock::LockContext::fencing_token`](crate::LockContext::fencing_token) does.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.run.fencing_token()
    }

    /// Returns an error if the job's lock is lost, as [`BlockingGuard::check`](super::BlockingGuard::check) does. Performs no I/O.
    ///
    /// # Errors
    /// Those of [`BlockingGuard::check`](super::BlockingGuard::check).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let job = client.recurring_job("/jobs/report")?;
    /// let _outcome = job.run("2025-11-24T21:00:00Z".parse()?, |run| {
    ///     for _step in 0..3 {
    ///         run.check()?; // an error if the lock is lost
    ///     }
    ///     Ok::<_, zlock::Error>(())
    /// })?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self) -> Result<()> {
        self.run.check()
    }

    /// Writes that the run has ended, and releases the lock, as [`done`](crate::job::JobRun::done) of the async version does.
    ///
    /// # Errors
    /// Those of the async version, and [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// See [`RecurringJob::begin`].
    pub fn done(self) -> Result<()> {
        let JobRun { run, driver, .. } = self;
        driver.run("job", run.done())
    }

    /// Writes that the run has failed, and releases the lock, as [`failed`](crate::job::JobRun::failed) of the async version does.
    ///
    /// # Errors
    /// Those of [`done`](Self::done).
    ///
    /// # Examples
    /// See [`RecurringJob::begin`].
    pub fn failed(self) -> Result<()> {
        let JobRun { run, driver, .. } = self;
        driver.run("job", run.failed())
    }
}
