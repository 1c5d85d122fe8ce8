//! What the locks of a client report to its observer.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use zlock_core::observer::{LockLabels, Observer, Outcome, RequestOutcome};
use zlock_core::{ErrorKind, Label, Result, Session};

/// The observer of a client, which is set at most once.
pub(crate) type Observing = Arc<OnceLock<Arc<Reports>>>;

/// The observer of a client. What it reports goes through here, so that a panic of the user's code ends here, wherever the
/// report comes from.
pub(crate) struct Reports {
    observer: Arc<dyn Observer>,
    held: Weak<dyn HeldLocks>,
}

/// The locks that a client holds.
pub(crate) trait HeldLocks: Send + Sync {
    /// Looks at each of them, which reports its loss.
    fn look(&self);
}

impl Reports {
    pub(crate) fn new(observer: Arc<dyn Observer>, held: Weak<dyn HeldLocks>) -> Self {
        Reports { observer, held }
    }

    fn to(&self, report: impl FnOnce(&dyn Observer)) {
        if catch_unwind(AssertUnwindSafe(|| report(&*self.observer))).is_err() {
            tracing::error!("an observer panicked; the lock is not affected");
        }
    }

    /// Looks at every held lock, so that a loss is reported also if its holder does not look.
    fn report_losses(&self) {
        if let Some(held) = self.held.upgrade() {
            held.look();
        }
    }
}

impl Observer for Reports {
    fn acquisition_started(&self, lock: LockLabels<'_>) {
        self.to(|observer| observer.acquisition_started(lock));
    }

    fn acquisition_ended(&self, lock: LockLabels<'_>, outcome: Outcome, waited: Duration) {
        self.to(|observer| observer.acquisition_ended(lock, outcome, waited));
    }

    fn hold_started(&self, lock: LockLabels<'_>) {
        self.to(|observer| observer.hold_started(lock));
    }

    fn hold_ended(&self, lock: LockLabels<'_>, held: Duration) {
        self.to(|observer| observer.hold_ended(lock, held));
    }

    fn lock_lost(&self, lock: LockLabels<'_>, reason: ErrorKind) {
        self.to(|observer| observer.lock_lost(lock, reason));
    }

    fn session_changed(&self, session: Session) {
        self.to(|observer| observer.session_changed(session));
        if !session.is_live() {
            self.report_losses();
        }
    }

    fn session_slack(&self, slack: Option<Duration>) {
        self.to(|observer| observer.session_slack(slack));
        // A node that somebody deleted is found by a heartbeat. At rest there is none.
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

/// The clock is a thread local of the runtime: a destructor may run when it is gone.
fn has_clock() -> bool {
    !Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
}

/// How long ago that was; zero where there is no clock.
pub(crate) fn since(began: Instant) -> Duration {
    if has_clock() { began.elapsed() } else { Duration::ZERO }
}

/// The kind of lock in a measurement.
pub(crate) fn kind(label: Label) -> &'static str {
    match label {
        Label::Read => "read",
        Label::Write => "write",
        Label::Permits { .. } => "semaphore",
        _ => "mutex",
    }
}

/// An acquisition that is reported.
pub(crate) struct Wait<'a> {
    reports: &'a Reports,
    lock: LockLabels<'a>,
    began: Instant,
    outcome: Outcome,
}

impl<'a> Wait<'a> {
    pub(crate) fn begin(reports: &'a Reports, lock: LockLabels<'a>) -> Self {
        reports.acquisition_started(lock);
        // Unless somebody says how it ends.
        Wait { reports, lock, began: Instant::now(), outcome: Outcome::Cancelled }
    }

    /// The acquisition has ended, if it is reported. `is_granted` is asked of a success.
    pub(crate) fn end<T>(wait: Option<Self>, result: &Result<T>, is_granted: impl FnOnce(&T) -> bool) {
        let Some(mut wait) = wait else { return };
        wait.outcome = match result {
            Ok(output) if is_granted(output) => Outcome::Granted,
            Ok(_) => Outcome::Busy,
            Err(error) => match error.kind() {
                ErrorKind::Busy => Outcome::Busy,
                ErrorKind::Timeout(_) => Outcome::Timeout,
                _ => Outcome::Error,
            },
        };
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.reports.acquisition_ended(self.lock, self.outcome, since(self.began));
    }
}

/// A hold that is reported.
#[derive(Debug)]
pub(crate) struct HoldReport {
    reports: Arc<Reports>,
    kind: &'static str,
    name: Option<Arc<str>>,
    began: Instant,
    ended: AtomicBool,
}

impl HoldReport {
    pub(crate) fn begin(reports: &Arc<Reports>, label: Label, name: Option<&Arc<str>>) -> Self {
        let (kind, name, ended) = (kind(label), name.cloned(), AtomicBool::new(false));
        let report = HoldReport { reports: reports.clone(), kind, name, began: Instant::now(), ended };
        report.reports.hold_started(report.lock());
        report
    }

    fn lock(&self) -> LockLabels<'_> {
        LockLabels::new(self.kind, self.name.as_deref().unwrap_or_default())
    }

    /// The lock was lost, if it has not ended before.
    pub(crate) fn lost(&self, reason: ErrorKind) {
        if !self.ended.swap(true, Ordering::Relaxed) {
            self.reports.lock_lost(self.lock(), reason);
            self.reports.hold_ended(self.lock(), since(self.began));
        }
    }

    /// The last guard is gone. `look` reports a loss that nobody has noticed yet.
    pub(crate) fn end(&self, look: impl FnOnce()) {
        if has_clock() {
            look();
        }
        if !self.ended.swap(true, Ordering::Relaxed) {
            self.reports.hold_ended(self.lock(), since(self.began));
        }
    }
}
