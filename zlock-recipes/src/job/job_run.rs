//! A claimed tick.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tracing::Span;
use zlock_core::observer::JobOutcome;
use zlock_core::{ErrorKind, Result, Version};

use crate::guard::Guard;
use crate::job::clock::Clock;
use crate::job::record::Run;
use crate::job::reports::JobReports;
use crate::job::run_state::RunState;
use crate::job::tick::Tick;
use crate::value::SharedValue;

/// A run that has been claimed: the job's lock is held, and the record says that the run has started. Returned by
/// [`RecurringJob::begin`](super::RecurringJob::begin). Derefs to the lock's [`Guard`].
///
/// Dropping it releases the lock, and leaves the record as if the process had died.
#[derive(Debug)]
#[must_use = "a run that is dropped counts as one whose process died"]
pub struct JobRun {
    pub(super) guard: Guard,
    pub(super) run: Run,
    /// The tick that the record had before.
    pub(super) before: Option<Tick>,
    pub(super) version: Version,
    pub(super) late: Duration,
    pub(super) record: SharedValue,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) period: Duration,
    pub(super) reports: JobReports,
}

impl JobRun {
    /// Returns the span in which a closure does the work, inside that of the hold.
    pub(crate) fn span(&self) -> Span {
        tracing::debug_span!(parent: &self.guard.hold().span(), "job", tick = %self.run.tick, attempt = self.run.attempt)
    }

    /// Returns the tick that the run is for.
    #[must_use]
    pub fn tick(&self) -> Tick {
        self.run.tick
    }

    /// Returns the number of the attempt, starting at 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.run.attempt
    }

    /// Writes that the run has ended, and releases the lock in the same transaction. While no server answers, tries again for as long
    /// as the session lives. On PostgreSQL, end a transaction with the run's `postgres_fence` first.
    ///
    /// # Errors
    /// The loss of the lock; [`Error::is_lock_lost`](zlock_core::Error::is_lock_lost) is `true`. The record is that of a later
    /// attempt, or says that this one has started. Those of [`SharedValue::compare_and_set`](crate::SharedValue::compare_and_set).
    /// If the error is ambiguous, the record may say that the run has ended. [`Unavailable`](zlock_core::ErrorKind::Unavailable)
    /// if the store answers but refuses the write in two operations, as while a transaction fences the lock.
    ///
    /// # Cancel safety
    /// If the future is dropped, the record may still be written, and the lock is released in the background.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`RecurringJob::begin`](super::RecurringJob::begin).
    pub async fn done(self) -> Result<()> {
        self.end(RunState::Done, JobOutcome::Done).await
    }

    /// Writes that the run has failed, and releases the lock in the same transaction. Another attempt follows if any is left.
    ///
    /// # Errors
    /// Those of [`done`](Self::done).
    ///
    /// # Cancel safety
    /// As for [`done`](Self::done).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`RecurringJob::begin`](super::RecurringJob::begin).
    pub async fn failed(self) -> Result<()> {
        self.end(RunState::Failed, JobOutcome::Failed).await
    }

    /// Ends the run as its work has ended, or was cancelled because the lock was lost.
    pub(crate) async fn end_as<T, E>(
        self,
        worked: Result<std::result::Result<T, E>>,
    ) -> Result<std::result::Result<T, E>> {
        match worked {
            Ok(Ok(output)) => self.done().await.map(|()| Ok(output)),
            Ok(Err(error)) => self.failed().await.map(|()| Err(error)),
            // The lock is still held, so the end can be recorded.
            Err(error) if error.kind() == ErrorKind::HeldTooLong => self.failed().await.and(Err(error)),
            Err(loss) => {
                self.reports.report(|observer, name| observer.job_ended(name, JobOutcome::Lost, self.late));
                Err(loss)
            }
        }
    }

    async fn end(self, state: RunState, outcome: JobOutcome) -> Result<()> {
        let JobRun { guard, run, version, late, record, clock, period, reports, .. } = self;
        let ended = run.ended(state, Tick::at(clock.now()));
        let (values, path) = (record.values(), record.path());
        let written = guard.release_with_write(values, path, version, ended.to_data().as_bytes()).await;
        let outcome = if written.is_ok() { outcome } else { JobOutcome::Lost };
        reports.report(|observer, name| observer.job_ended(name, outcome, late));
        if written.is_ok() {
            reports.saw(Some(&ended), period);
        }
        written
    }
}

impl Deref for JobRun {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}
