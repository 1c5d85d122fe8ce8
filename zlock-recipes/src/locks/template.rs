//! The lock template: a closure under a named lock.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use zlock_core::{Error, ErrorKind, Label, LockPath, Result};

use crate::client::Client;
use crate::guard::Guard;
use crate::guard::context::LockContext;
use crate::hold::limit;
use crate::locks::handle::{LockHandle, within};
use crate::locks::kind::Kind;
use crate::locks::kind::sealed::Sealed as _;
use crate::locks::semaphore::permits;
use crate::place::cohort::Handoff;

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "lock template").with_message(message)
}

/// Runs closures under locks that are named below one root.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// let template = client.lock_template("/app/locks")?;
/// let mut numbers = vec![1];
/// let next = template
///     .execute("create-order", |lock| {
///         let numbers = &mut numbers; // may borrow from its surroundings
///         async move {
///             numbers.push(lock.fencing_token().number());
///             numbers.len()
///         }
///     })
///     .await?;
/// assert_eq!(next, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LockTemplate {
    client: Client,
    /// Without a trailing slash; empty for the store's root.
    root: String,
    /// The label of each lock.
    label: Label,
    wait: Duration,
    attempts: u32,
    cancel_on_loss: bool,
    handoff: Option<Handoff>,
    max_hold: Option<Duration>,
    /// The name of the locks in measurements.
    metric_name: Arc<str>,
}

impl Client {
    /// Returns a template for locks below `root`, such as `/app/locks`. A trailing slash is allowed, and so is `/` alone.
    /// By default, the template waits for the lock for 2 seconds, twice; see [`with_wait`](LockTemplate::with_wait).
    /// Performs no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPath`], with the offending part in the message.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let template = client.lock_template("/app/locks")?;
    /// template.execute("create-order", |_lock| async { /* alone */ }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_template(&self, root: impl AsRef<str>) -> Result<LockTemplate> {
        let given = root.as_ref();
        let root = given.strip_suffix('/').unwrap_or(given);
        if given != "/" {
            LockPath::new(root)?;
        }
        Ok(LockTemplate {
            client: self.clone(),
            root: root.into(),
            label: Label::Lock,
            wait: Duration::from_secs(2),
            attempts: 2,
            cancel_on_loss: true,
            handoff: None,
            max_hold: None,
            metric_name: if given == "/" { "/" } else { root }.into(),
        })
    }
}

impl LockTemplate {
    /// Acquires the lock of this name, runs the closure inside the lock's [`Scope`](crate::Scope), and releases the lock,
    /// even if the closure panics or this future is dropped. The closure's output, whatever it is, is returned in `Ok`; see
    /// [`execute_fallible`](Self::execute_fallible) for closures that return a `Result`.
    ///
    /// `name` may have several segments (`orders/42`).
    ///
    /// # Errors
    /// - [`InvalidPath`](ErrorKind::InvalidPath) for the name, before anything is sent.
    /// - [`Busy`](ErrorKind::Busy) if all waits ended while the acquisition waited for its turn;
    ///   [`Timeout`](ErrorKind::Timeout) if the waits ended before the acquisition had its place in the queue. The cause
    ///   is the store's last failure, if requests were still failing. If no server answers and the backend's operation
    ///   timeout is shorter than all waits together, the error is [`Unavailable`](ErrorKind::Unavailable), after that
    ///   timeout.
    /// - [`SessionLost`](ErrorKind::SessionLost), [`NodeDeleted`](ErrorKind::NodeDeleted) or [`Closed`](ErrorKind::Closed) if
    ///   the lock is lost while the closure runs. The closure is cancelled at its current await point. If it blocked its
    ///   thread past the loss, it runs to completion, and the error is returned nevertheless, because the lock may have had
    ///   another holder during its last steps.
    /// - Those of [`LockHandle::acquire`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the closure's future and releases the lock in the background.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let template = client.lock_template("/app/locks")?;
    /// let token = template.execute("create-order", |lock| async move { lock.fencing_token() }).await?;
    /// assert!(token.number() > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn execute<F, Fut>(&self, name: &str, closure: F) -> Result<Fut::Output>
    where
        F: FnOnce(LockContext) -> Fut,
        Fut: Future,
    {
        let guard = self.acquire(name).await?;
        let context = guard.context();
        let closure = Box::pin(async move { closure(context).await });
        let output = if self.cancel_on_loss {
            guard.run_boxed(closure).await
        } else {
            Ok(guard.scope_boxed(closure).await)
        };
        guard.release_or_log().await;
        output
    }

    /// Does the same as [`execute`](Self::execute), for a closure that returns a `Result`. Errors of the closure and of the
    /// lock are returned alike: an error of the lock is converted into the closure's error type.
    ///
    /// # Errors
    /// The closure's error, or that of [`execute`](Self::execute).
    ///
    /// # Cancel safety
    /// As [`execute`](Self::execute).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = zlock::connect("mem://").await?;
    /// let template = client.lock_template("/app/locks")?;
    /// let number: u32 = template
    ///     .execute_fallible("create-order", |_lock| async {
    ///         let number = "42".parse()?;
    ///         Ok::<_, Box<dyn std::error::Error>>(number)
    ///     })
    ///     .await?;
    /// assert_eq!(number, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn execute_fallible<F, Fut, T, E>(&self, name: &str, closure: F) -> Result<T, E>
    where
        F: FnOnce(LockContext) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.execute(name, closure).await?
    }

    /// Sets how long to wait, and how many times: `wait * attempts` in all. The place in the queue is kept meanwhile. Each
    /// elapsed wait is logged. Defaults to 2 seconds, twice. A zero duration makes a single attempt.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for 0 attempts.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use std::time::Duration;
    ///
    /// // Waits for 15 seconds in all, and logs after 5 and 10.
    /// let template = client.lock_template("/app/locks")?.with_wait(Duration::from_secs(5), 3)?;
    /// # let _ = template;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_wait(mut self, wait: Duration, attempts: u32) -> Result<Self> {
        if attempts == 0 {
            return Err(invalid("the number of attempts is 0; it must be at least 1".into()));
        }
        (self.wait, self.attempts) = (wait, attempts);
        Ok(self)
    }

    /// Sets the kind of lock to acquire. Defaults to [`Mutex`](crate::kind::Mutex). Templates with the same root, one for
    /// reading and one for writing, share their names: one reads what the other writes.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for 0 permits, for more permits than the maximum, for the label of a
    /// candidate, and for any kind but a mutex if the template has a hand-off.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use zlock::locks::{Read, Write};
    ///
    /// let template = client.lock_template("/app/prices")?;
    /// let (read, write) = (template.clone().with_kind(Read)?, template.with_kind(Write)?);
    /// write.execute("tea", |_lock| async { /* change it */ }).await?;
    /// read.execute("tea", |_lock| async { /* look at it, beside others */ }).await
    /// # }
    /// ```
    pub fn with_kind(mut self, kind: impl Kind) -> Result<Self> {
        self.label = match kind.label() {
            Label::Permits { weight, max, .. } => permits(weight, max).map_err(invalid)?.label(),
            Label::Candidate => return Err(invalid("candidates are those of an election".into())),
            label => label,
        };
        self.check_handoff()
    }

    /// Sets whether the closure is cancelled when the lock is lost. Defaults to `true`. If `false`, the closure runs to
    /// completion, its output is returned in `Ok`, and it must check its [`LockContext`] itself.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let template = client.lock_template("/app/locks")?.cancel_on_loss(false);
    /// let done = template
    ///     .execute("report", |lock| async move {
    ///         let mut pages = 0;
    ///         while pages < 10 && lock.is_held() {
    ///             pages += 1;
    ///         }
    ///         pages
    ///     })
    ///     .await?;
    /// assert_eq!(done, 10);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn cancel_on_loss(mut self, cancel: bool) -> Self {
        self.cancel_on_loss = cancel;
        self
    }

    /// Passes the lock on inside the client, as [`InterProcessMutex::with_handoff`](crate::InterProcessMutex::with_handoff).
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the template's kind is not [`Mutex`](crate::kind::Mutex).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use std::time::Duration;
    ///
    /// use zlock::Handoff;
    ///
    /// let handoff = Handoff::within(Duration::from_millis(10));
    /// let template = client.lock_template("/app/locks")?.with_handoff(handoff)?;
    /// template.execute("create-order", |_lock| async { /* alone */ }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_handoff(mut self, handoff: Handoff) -> Result<Self> {
        self.handoff = Some(handoff);
        self.check_handoff()
    }

    /// Limits how long a closure holds its lock, as [`LockHandle::max_hold`](crate::LockHandle::max_hold) does. A closure whose
    /// time is over is cancelled. With [`cancel_on_loss(false)`](Self::cancel_on_loss), its [`LockContext`] says so, and the
    /// call returns what the closure returns.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if the time is zero.
    pub fn max_hold(mut self, time: Duration) -> Result<Self> {
        self.max_hold = Some(limit::check(time, &self.root)?);
        Ok(self)
    }

    /// Sets the name of the template's locks in measurements, as
    /// [`LockHandle::with_metric_name`](crate::LockHandle::with_metric_name). Defaults to the template's root.
    #[must_use]
    pub fn with_metric_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.metric_name = name.into();
        self
    }

    /// Returns the path of the lock that [`execute`](Self::execute) acquires for this name, to create a lock handle on it.
    ///
    /// # Errors
    /// [`InvalidPath`](ErrorKind::InvalidPath), with the offending part in the message.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let template = client.lock_template("/app/locks")?;
    /// assert_eq!(template.path("orders/42")?.as_str(), "/app/locks/orders/42");
    /// # Ok(())
    /// # }
    /// ```
    pub fn path(&self, name: &str) -> Result<LockPath> {
        LockPath::new(format!("{}/{name}", self.root))
    }

    fn check_handoff(self) -> Result<Self> {
        if self.handoff.is_some() && self.label != Label::Lock {
            return Err(invalid(format!(
                "a hand-off needs a mutex, and the template's kind is {:?}",
                self.label
            )));
        }
        Ok(self)
    }

    /// Acquires the lock of this name within `wait * attempts`, and logs each elapsed wait.
    pub(crate) async fn acquire(&self, name: &str) -> Result<Guard> {
        let mut lock = LockHandle::of_kind(&self.client, self.path(name)?, self.label)?;
        (lock.handoff, lock.max_hold) = (self.handoff, self.max_hold);
        lock.metric_name = Some(self.metric_name.clone());
        let elapsed = |attempt| tracing::info!(path = %lock.path(), attempt, wait = ?self.wait, "still waiting for the lock");
        let whole = self.wait.saturating_mul(self.attempts);
        let mut acquire = pin!(lock.enter(within(whole), |guard| Some(guard)));
        let mut attempt = 1;
        let acquired = loop {
            if attempt == self.attempts || self.wait.is_zero() {
                break acquire.await;
            }
            match timeout(self.wait, &mut acquire).await {
                Ok(acquired) => break acquired,
                Err(_) => elapsed(attempt),
            }
            attempt += 1;
        };
        acquired.inspect_err(|e| {
            if e.kind() == ErrorKind::Busy {
                elapsed(attempt);
            }
        })
    }
}
