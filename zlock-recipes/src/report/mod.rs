//! The reports of a client's locks to its observer.
//!
//! An acquisition is reported by its lock handle, a hold by itself. What an observer panics with is caught here.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use zlock_core::observer::{AcquireOutcome, LockLabels, Observer, RequestOutcome};
use zlock_core::{ErrorKind, FencingToken, Label, Result, Session};

/// The observer of a client, which is set at most once.
pub(crate) type Observing = Arc<OnceLock<Arc<Reports>>>;

/// The observer of a client. Every report goes through this type, which catches panics of the user's code.
pub(crate) struct Reports {
    observer: Arc<dyn Observer>,
    held: Weak<dyn HeldLocks>,
}

/// The locks that a client holds.
pub(crate) trait HeldLocks: Send + Sync {
    /// Checks each held lock, and reports its loss.
    fn look(&self);
}

impl Reports {
    pub(crate) fn new(observer: Arc<dyn Observer>, held: Weak<dyn HeldLocks>) -> Self {
        Reports { observer, held }
    }

    /// Makes a report.
    pub(crate) fn to(&self, report: impl FnOnce(&dyn Observer)) {
        if catch_unwind(AssertUnwindSafe(|| report(&*self.observer))).is_err() {
            tracing::error!("an observer panicked; the lock is not affected");
        }
    }

    /// Checks every held lock, so that a loss is reported even if its holder does not check.
    fn report_losses(&self) {
        if let Some(held) = self.held.upgrade() {
            held.look();
        }
    }
}

/// What the backend reports. The client makes its own reports by [`Reports::to`].
impl Observer for Reports {
    fn session_changed(&self, session: Session) {
        self.to(|observer| observer.session_changed(session));
        if !session.is_live() {
            self.report_losses();
        }
    }

    fn session_slack(&self, slack: Option<Duration>) {
        self.to(|observer| observer.session_slack(slack));
        // Heartbeats find deleted nodes. A session at rest owns none.
        if slack.is_some() {
            self.report_losses();
        }
    }

    fn session_renewed(&self, duration: Duration, life: Duration) {
        self.to(|observer| observer.session_renewed(duration, life));
    }

    fn request_ended(&self, operation: &'static str, duration: Duration, outcome: RequestOutcome) {
        self.to(|observer| observer.request_ended(operation, duration, outcome));
    }
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reports").finish_non_exhaustive()
    }
}

/// Returns `false` in a destructor that runs after the runtime's thread-local clock is gone.
fn has_clock() -> bool {
    !Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
}

/// Returns the time since `began`, or zero without a clock.
pub(crate) fn since(began: Instant) -> Duration {
    if has_clock() { began.elapsed() } else { Duration::ZERO }
}

/// Returns the kind of lock, as a label of a metric.
pub(crate) fn kind(label: Label) -> &'static str {
    match label {
        Label::Candidate => "election",
        Label::Read => "read",
        Label::Write => "write",
        Label::Permits { .. } => "semaphore",
        _ => "mutex",
    }
}

/// The report of an acquisition.
pub(crate) struct Wait<'a> {
    reports: &'a Reports,
    lock: LockLabels<'a>,
    began: Instant,
    outcome: AcquireOutcome,
}

impl<'a> Wait<'a> {
    pub(crate) fn begin(reports: &'a Reports, lock: LockLabels<'a>) -> Self {
        reports.to(|observer| observer.acquisition_started(lock));
        // `Cancelled` unless `end` is called.
        Wait { reports, lock, began: Instant::now(), outcome: AcquireOutcome::Cancelled }
    }

    /// Sets the outcome of the acquisition, if it is reported.
    pub(crate) fn end(wait: Option<Self>, outcome: AcquireOutcome) {
        if let Some(mut wait) = wait {
            wait.outcome = outcome;
        }
    }
}

/// Returns the outcome of an acquisition. `is_granted` classifies a success.
pub(crate) fn outcome<T>(result: &Result<T>, is_granted: impl FnOnce(&T) -> bool) -> AcquireOutcome {
    match result {
        Ok(output) if is_granted(output) => AcquireOutcome::Granted,
        Ok(_) => AcquireOutcome::Busy,
        Err(error) => match error.kind() {
            ErrorKind::Busy => AcquireOutcome::Busy,
            ErrorKind::Timeout(_) => AcquireOutcome::Timeout,
            _ => AcquireOutcome::Error,
        },
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.reports.to(|observer| observer.acquisition_ended(self.lock, self.outcome, since(self.began)));
    }
}

/// The report of a hold.
#[derive(Debug)]
pub(crate) struct HoldReport {
    reports: Arc<Reports>,
    kind: &'static str,
    name: Option<Arc<str>>,
    began: Instant,
    /// `true` once it was reported that the lock is held for too long.
    is_overdue: AtomicBool,
    ended: AtomicBool,
}

impl HoldReport {
    pub(crate) fn begin(
        reports: &Arc<Reports>,
        label: Label,
        name: Option<&Arc<str>>,
        token: FencingToken,
    ) -> Self {
        let report = HoldReport {
            reports: reports.clone(),
            kind: kind(label),
            name: name.cloned(),
            began: Instant::now(),
            is_overdue: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        };
        report.reports.to(|observer| observer.hold_started(report.lock()));
        if label == Label::Candidate {
            report.reports.to(|observer| observer.term_started(report.lock(), token));
        }
        report
    }

    fn lock(&self) -> LockLabels<'_> {
        LockLabels::new(self.kind, self.name.as_deref().unwrap_or_default())
    }

    /// Reports the loss of the lock, unless the hold has ended before.
    pub(crate) fn lost(&self, reason: ErrorKind) {
        if !self.ended.swap(true, Ordering::Relaxed) {
            self.reports.to(|observer| observer.lock_lost(self.lock(), reason));
            self.reports.to(|observer| observer.hold_ended(self.lock(), since(self.began)));
        }
    }

    /// Reports that the lock is held for too long. The hold goes on.
    pub(crate) fn overdue(&self) {
        // A context may look at a lock that was released in time.
        if !self.ended.load(Ordering::Relaxed) && !self.is_overdue.swap(true, Ordering::Relaxed) {
            self.reports.to(|observer| observer.lock_lost(self.lock(), ErrorKind::HeldTooLong));
        }
    }

    /// Reports the end of the hold, after the last guard. `look` reports a loss that was not noticed before.
    pub(crate) fn end(&self, look: impl FnOnce()) {
        if has_clock() {
            look();
        }
        if !self.ended.swap(true, Ordering::Relaxed) {
            self.reports.to(|observer| observer.hold_ended(self.lock(), since(self.began)));
        }
    }
}
