//! The measurements of a client, for the metrics of a service.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use crate::error::ErrorKind;
use crate::nodes::node::FencingToken;
use crate::session::Session;
use crate::signal::Signal;

/// Receives the measurements of one client: its locks, its session and its requests. By default, every method is a no-op.
///
/// A client without an observer measures nothing. The feature `metrics` of `zlock` provides an implementation for the crate
/// `metrics`. Implement the trait for anything else.
///
/// # Calls
/// - Methods are called inline, by the tasks that acquire and release locks and by the task that keeps the session alive.
///   They must not block: an observer that blocks delays heartbeats, so that locks are lost.
/// - Methods may be called on any thread, concurrently, and from destructors. They must not use a runtime.
/// - A panic in a method is caught and logged, and does not affect the lock.
/// - A method may use the client, because none of the client's internal locks is held during a call. An observer must not
///   own the client or one of its locks: the client owns the observer, so neither would ever be dropped.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use zlock::observer::{LockLabels, Observer};
/// use zlock::mem::MemServer;
/// use zlock::{Client, ErrorKind};
///
/// #[derive(Default)]
/// struct Losses(AtomicU64);
///
/// impl Observer for Losses {
///     fn lock_lost(&self, _lock: LockLabels<'_>, _reason: ErrorKind) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// let losses = Arc::new(Losses::default());
/// let backend = MemServer::new().connect();
/// let link = backend.link();
/// let client = Client::new(backend);
/// client.observe(losses.clone())?;
/// let guard = client.mutex("/app/orders")?.acquire().await?;
/// link.expire();
/// guard.lost().await;
/// drop(guard);
/// assert_eq!(losses.0.load(Ordering::Relaxed), 1);
/// # Ok(())
/// # }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Called when an acquisition begins. Entering a held lock again is not an acquisition.
    fn acquisition_started(&self, lock: LockLabels<'_>) {
        let _ = lock;
    }

    /// Called when an acquisition ends, after `waited`. Called once for each
    /// [`acquisition_started`](Self::acquisition_started), even if the future of the acquisition was dropped.
    fn acquisition_ended(&self, lock: LockLabels<'_>, outcome: AcquireOutcome, waited: Duration) {
        let _ = (lock, outcome, waited);
    }

    /// Called when a lock is granted. It is held from now on.
    fn hold_started(&self, lock: LockLabels<'_>) {
        let _ = lock;
    }

    /// Called when a lock is no longer held, after `held`: its last guard was released or dropped, or the lock was lost.
    /// Called once for each [`hold_started`](Self::hold_started).
    fn hold_ended(&self, lock: LockLabels<'_>, held: Duration) {
        let _ = (lock, held);
    }

    /// Called when a held lock is lost, before [`hold_ended`](Self::hold_ended). `reason` is the
    /// [kind](crate::Error::kind) of the loss. With [`HeldTooLong`](ErrorKind::HeldTooLong), the lock is still held, for longer than
    /// its longest hold, and the hold goes on. That is found by a heartbeat, or when the holder checks or releases.
    ///
    /// On backends that use the kit's [`Task`](crate::kit::Task), this is called as soon as the client knows of the loss,
    /// whether or not the holder checks. If several clients share a backend, that applies only to the first one with an
    /// observer. Losses of the others are reported when a holder checks or releases.
    fn lock_lost(&self, lock: LockLabels<'_>, reason: ErrorKind) {
        let _ = (lock, reason);
    }

    /// Called when the epoch or the state of the session changes, and once when observation begins. A state that ends before
    /// the backend's task can report it may be skipped.
    fn session_changed(&self, session: Session) {
        let _ = session;
    }

    /// Called with the time left until the session's deadline, as returned by [`Session::slack`]. `None` while the session is
    /// at rest, and when the client is closed.
    ///
    /// Called when the deadline is extended, with the time that was left right before. Between extensions, called at least
    /// four times before the deadline passes, and at least once a second. The minimum of these values is how close the client
    /// came to losing its locks.
    fn session_slack(&self, slack: Option<Duration>) {
        let _ = slack;
    }

    /// Called when this client is elected, after [`hold_started`](Self::hold_started) with the kind `election`. Each term of an
    /// election has a larger number.
    fn term_started(&self, election: LockLabels<'_>, term: FencingToken) {
        let _ = (election, term);
    }

    /// Called when the store has responded to a request that keeps the session alive, after `duration`. `life` is the time
    /// from now to the new deadline. Not called for a session at rest.
    fn session_renewed(&self, duration: Duration, life: Duration) {
        let _ = (duration, life);
    }

    /// Called when an operation on the store ends. It consists of several requests if one had to be retried.
    ///
    /// `operation` is the name of a method of [`CoordinationBackend`](crate::CoordinationBackend), [`Values`](crate::Values) or
    /// [`Groups`](crate::Groups), with `create` for the one that creates nodes. A store that reads the head of a queue in two
    /// operations reports these.
    fn request_ended(&self, operation: &'static str, duration: Duration, outcome: RequestOutcome) {
        let _ = (operation, duration, outcome);
    }

    /// Called when this client's run of the job with this name has ended. It began `late` after its tick, by the job's clock.
    fn job_ended(&self, name: &str, outcome: JobOutcome, late: Duration) {
        let _ = (name, outcome, late);
    }

    /// Called when this client runs a tick of the job with this name, and no client has run the `ticks` ticks before it.
    fn job_skipped(&self, name: &str, ticks: u64) {
        let _ = (name, ticks);
    }

    /// Called when this client has seen the record of a job with this name. `tick` is the last one whose run has ended without an
    /// error, on any machine. `period` is the job's.
    fn job_last_done(&self, name: &str, tick: SystemTime, period: Duration) {
        let _ = (name, tick, period);
    }

    /// Called when the state of this client's membership in a group with this name changes. `before` is `None` when it has
    /// joined, and `now` is `None` when it leaves.
    fn member_changed(&self, group: &str, before: Option<MemberState>, now: Option<MemberState>) {
        let _ = (group, before, now);
    }
}

/// The labels of a lock in a measurement. They never include the path, because the number of paths is not bounded.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockLabels<'a> {
    /// `mutex`, `read`, `write`, `semaphore` or `election`.
    pub kind: &'static str,
    /// The name set by `with_metric_name`, or the root of the lock's template. Empty if there is neither.
    pub name: &'a str,
}

impl<'a> LockLabels<'a> {
    /// Creates the labels from their fields.
    #[must_use]
    pub const fn new(kind: &'static str, name: &'a str) -> Self {
        LockLabels { kind, name }
    }
}

/// The outcome of an acquisition.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AcquireOutcome {
    /// The lock was granted.
    Granted,
    /// The time limit passed while the acquisition waited for its turn in the queue, or a single attempt found the
    /// lock taken.
    Busy,
    /// The time limit passed before the acquisition had a place in the queue.
    Timeout,
    /// The future of the acquisition was dropped.
    Cancelled,
    /// The acquisition failed with another error.
    Error,
}

impl AcquireOutcome {
    /// Returns the outcome in lower case, for the label of a metric.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            AcquireOutcome::Granted => "granted",
            AcquireOutcome::Busy => "busy",
            AcquireOutcome::Timeout => "timeout",
            AcquireOutcome::Cancelled => "cancelled",
            AcquireOutcome::Error => "error",
        }
    }
}

/// The outcome of a run of a job.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobOutcome {
    /// It ended, and the record says so.
    Done,
    /// It ended with an error.
    Failed,
    /// The lock was lost, so that the run was cancelled, or the record may not say that it ended.
    Lost,
}

impl JobOutcome {
    /// Returns the outcome in lower case, for the label of a metric.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            JobOutcome::Done => "done",
            JobOutcome::Failed => "failed",
            JobOutcome::Lost => "lost",
        }
    }
}

/// The state of a membership in a group.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// Others see the member.
    Registered,
    /// Others do not see it: it is about to be registered again, or its membership has ended.
    Missing,
}

impl MemberState {
    /// Returns the state in lower case, for the label of a metric.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            MemberState::Registered => "registered",
            MemberState::Missing => "missing",
        }
    }
}

/// The outcome of an operation on the store.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestOutcome {
    /// The store responded.
    Answered,
    /// The operation ended with an error of this kind.
    Failed(ErrorKind),
    /// The operation's future was dropped, because the caller was cancelled or timed out.
    Cancelled,
}

/// Holds a session's observer, which is set at most once.
#[derive(Default)]
pub(crate) struct Slot {
    observer: OnceLock<Arc<dyn Observer>>,
    set: Signal,
}

impl Slot {
    /// Sets the observer unless there is one. Returns `true` if it was set.
    pub(crate) fn set(&self, observer: Arc<dyn Observer>) -> bool {
        let is_first = self.observer.set(observer).is_ok();
        self.set.notify();
        is_first
    }

    pub(crate) fn get(&self) -> Option<&Arc<dyn Observer>> {
        self.observer.get()
    }

    /// Waits until there is an observer.
    pub(crate) async fn wait(&self) -> Arc<dyn Observer> {
        self.set.until(|| self.get().cloned()).await
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slot").field(&self.observer.get().is_some()).finish()
    }
}
