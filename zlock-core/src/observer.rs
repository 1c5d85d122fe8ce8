//! What a client measures about itself, for the metrics of a service.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::error::ErrorKind;
use crate::session::Session;

/// Receives the measurements of one client: its locks, its session and its requests. Every method does nothing by default.
///
/// A client without an observer measures nothing. The feature `metrics` of the crate `zlock` has an implementation for the
/// crate `metrics`; implement the trait for anything else.
///
/// # Calls
/// - The methods are called inline, by the tasks that acquire and release locks and by the task that keeps the session alive.
///   They must not block: an observer that blocks delays heartbeats, and locks are lost.
/// - They may be called on any thread, at the same time, and by destructors. A method must not use a runtime.
/// - A panic in a method is caught and logged. It changes nothing for the lock.
/// - No lock of the client is held during a call, so a method may use the client. An observer must not own the client or one
///   of its locks: the client owns the observer, and neither would ever be dropped.
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
    /// An acquisition began. Entering a held lock again is not an acquisition.
    fn acquisition_started(&self, lock: LockLabels<'_>) {
        let _ = lock;
    }

    /// An acquisition ended after this time. Called once for each [`acquisition_started`](Self::acquisition_started), also if
    /// the future of the acquisition was dropped.
    fn acquisition_ended(&self, lock: LockLabels<'_>, outcome: Outcome, waited: Duration) {
        let _ = (lock, outcome, waited);
    }

    /// A lock was granted, and is held from now on.
    fn hold_started(&self, lock: LockLabels<'_>) {
        let _ = lock;
    }

    /// A lock is no longer held: its last guard was released or dropped, or the lock was lost. Called once for each
    /// [`hold_started`](Self::hold_started).
    fn hold_ended(&self, lock: LockLabels<'_>, held: Duration) {
        let _ = (lock, held);
    }

    /// A held lock was lost, for the reason that [`Error::kind`](crate::Error::kind) has for it. Called before
    /// [`hold_ended`](Self::hold_ended).
    ///
    /// Called as soon as the client knows of the loss, whether or not the holder looks, on backends whose
    /// [`Task`](crate::kit::Task) is that of the kit. If clients share a backend, this holds for the first one that is observed;
    /// losses of the others are reported when a holder looks or releases.
    fn lock_lost(&self, lock: LockLabels<'_>, reason: ErrorKind) {
        let _ = (lock, reason);
    }

    /// The epoch or the state of the session changed. Also called once when observing begins. A state that was over before
    /// the backend's task could look may be skipped.
    fn session_changed(&self, session: Session) {
        let _ = session;
    }

    /// The time that is left until the session's deadline, as [`Session::slack`]. `None` while the session is at rest,
    /// and when the client is closed.
    ///
    /// Called when the deadline is moved on, with what was left right before that. While nothing moves it, called at least
    /// four times before it passes, and once a second. So the least of these values says how close the client came to
    /// losing its locks.
    fn session_slack(&self, slack: Option<Duration>) {
        let _ = slack;
    }

    /// The store answered a request that keeps the session alive, after `duration`. `life` is the time from now to the new
    /// deadline. Not called for a session at rest.
    fn session_renewed(&self, duration: Duration, life: Duration) {
        let _ = (duration, life);
    }

    /// An operation on the store ended. It may consist of several requests, if one of them had to be repeated.
    ///
    /// `operation` is the name of a method of [`CoordinationBackend`](crate::CoordinationBackend). `create` stands for both
    /// of its creates.
    fn request_ended(&self, operation: &'static str, duration: Duration, outcome: RequestOutcome) {
        let _ = (operation, duration, outcome);
    }
}

/// What is known of a lock in a measurement: never its path, of which there may be any number.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockLabels<'a> {
    /// `mutex`, `read`, `write` or `semaphore`.
    pub kind: &'static str,
    /// The name that the user gave the lock by `with_metric_name`, or the root of its template. Empty if it has neither.
    pub name: &'a str,
}

impl<'a> LockLabels<'a> {
    /// Creates the labels. The fields say what the arguments are.
    #[must_use]
    pub const fn new(kind: &'static str, name: &'a str) -> Self {
        LockLabels { kind, name }
    }
}

/// The outcome of an acquisition.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The lock was granted.
    Granted,
    /// Another client held the lock for all of the time, or was ahead when a single attempt was made.
    Busy,
    /// The time was over before the acquisition had its place in the queue.
    Timeout,
    /// The future of the acquisition was dropped.
    Cancelled,
    /// Another error.
    Error,
}

impl Outcome {
    /// Returns the outcome in lower case, as a label of a metric.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Granted => "granted",
            Outcome::Busy => "busy",
            Outcome::Timeout => "timeout",
            Outcome::Cancelled => "cancelled",
            Outcome::Error => "error",
        }
    }
}

/// The outcome of an operation on the store.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestOutcome {
    /// The store answered.
    Answered,
    /// The operation ended with an error of this kind.
    Failed(ErrorKind),
    /// Nobody waited for the answer any more: the caller was cancelled, or its time was over.
    Cancelled,
}

/// The place of a session's observer, which is set at most once.
#[derive(Default)]
pub(crate) struct Slot {
    observer: OnceLock<Arc<dyn Observer>>,
    set: Notify,
}

impl Slot {
    /// Sets the observer, unless there is one.
    pub(crate) fn set(&self, observer: Arc<dyn Observer>) -> bool {
        let is_first = self.observer.set(observer).is_ok();
        self.set.notify_waiters();
        is_first
    }

    pub(crate) fn get(&self) -> Option<&Arc<dyn Observer>> {
        self.observer.get()
    }

    /// Waits until there is an observer.
    pub(crate) async fn wait(&self) -> Arc<dyn Observer> {
        loop {
            let set = self.set.notified();
            if let Some(observer) = self.get() {
                return observer.clone();
            }
            set.await;
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slot").field(&self.observer.get().is_some()).finish()
    }
}
