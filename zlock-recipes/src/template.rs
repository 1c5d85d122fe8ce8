//! The lock template: a closure under a named lock.

use std::error::Error as _;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;
use zlock_core::{Error, ErrorKind, Label, LockPath, Phase, Result};

use crate::client::Client;
use crate::guard::{Guard, Held};
use crate::handle::Handle;
use crate::semaphore::permits;

/// What kind of lock a [`LockTemplate`] takes.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// An [`InterProcessMutex`](crate::InterProcessMutex): alone.
    #[default]
    Mutex,
    /// A [`ReadWriteLock`](crate::ReadWriteLock) for reading: beside other readers.
    Read,
    /// A [`ReadWriteLock`](crate::ReadWriteLock) for writing: alone.
    Write,
    /// Permits of a [`Semaphore`](crate::Semaphore).
    Permits {
        /// How many each closure takes.
        n: u32,
        /// How many there are under each name.
        max: u32,
    },
}

impl LockKind {
    fn label(self) -> Result<Label> {
        match self {
            LockKind::Mutex => Ok(Label::Lock),
            LockKind::Read => Ok(Label::Read),
            LockKind::Write => Ok(Label::Write),
            LockKind::Permits { n, max } => permits(n, max).map_err(invalid),
        }
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "lock template").with_message(message)
}

/// Runs closures under locks that are named below one root.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock_core::Result<()> {
/// # let client = zlock_recipes::Client::new(zlock_mem::MemServer::new().connect());
/// use zlock_recipes::LockTemplate;
///
/// let template = LockTemplate::new(&client, "/app/locks")?;
/// let mut numbers = vec![1];
/// let next = template
///     .execute("create-order", |held| {
///         // borrows from around it; `held` tells the fencing token
///         let numbers = &mut numbers;
///         async move {
///             numbers.push(held.fencing_token().get());
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
    /// What each lock asks for.
    label: Label,
    wait: Duration,
    attempts: u32,
    run_on_after_loss: bool,
}

impl LockTemplate {
    /// A template for locks below `root`, such as `/app/locks`; a trailing slash is fine, and so is `/`.
    /// Waits 2 s twice unless set. Nothing is sent.
    ///
    /// # Errors
    /// `InvalidPath`, with the offending part in the message.
    pub fn new(client: &Client, root: impl AsRef<str>) -> Result<Self> {
        let given = root.as_ref();
        let root = given.strip_suffix('/').unwrap_or(given);
        if given != "/" {
            LockPath::new(root)?;
        }
        Ok(LockTemplate {
            client: client.clone(),
            root: root.into(),
            label: Label::Lock,
            wait: Duration::from_secs(2),
            attempts: 2,
            run_on_after_loss: false,
        })
    }

    /// What kind of lock to take instead of a mutex. Templates of a root that are for reading and for writing
    /// share their names: one reads what the other writes.
    ///
    /// # Errors
    /// `InvalidArgument` for 0 permits or more than there are.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock_core::Result<()> {
    /// # let client = zlock_recipes::Client::new(zlock_mem::MemServer::new().connect());
    /// use zlock_recipes::{LockKind, LockTemplate};
    ///
    /// let template = LockTemplate::new(&client, "/app/prices")?;
    /// let (read, write) = (template.clone().with_kind(LockKind::Read)?, template.with_kind(LockKind::Write)?);
    /// write.execute("tea", |_held| async { /* change it */ }).await?;
    /// read.execute("tea", |_held| async { /* look at it, beside others */ }).await
    /// # }
    /// ```
    pub fn with_kind(mut self, kind: LockKind) -> Result<Self> {
        self.label = kind.label()?;
        Ok(self)
    }

    /// How long to wait, and how many times: `wait * attempts` in all, in one place of the queue. Each
    /// elapsed wait is a tracing event.
    ///
    /// # Errors
    /// `InvalidArgument` for no attempts. No wait means one try.
    pub fn with_wait(mut self, wait: Duration, attempts: u32) -> Result<Self> {
        if attempts == 0 {
            return Err(invalid("attempts is 0, at least 1 is needed".into()));
        }
        (self.wait, self.attempts) = (wait, attempts);
        Ok(self)
    }

    /// Lets the closure run to its end when the lock is lost meanwhile; its output then comes back in `Ok`
    /// and the closure must look after itself through its [`Held`]. Off unless set.
    #[must_use]
    pub fn with_run_on_after_loss(mut self, run_on: bool) -> Self {
        self.run_on_after_loss = run_on;
        self
    }

    /// Acquires the lock of this name, runs the closure inside the lock's [`Scope`](crate::Scope), and
    /// releases the lock: also when the closure panics, or this future is dropped. The closure's output,
    /// whatever it is, comes back in `Ok`.
    ///
    /// `name` may have several segments (`orders/42`).
    ///
    /// # Errors
    /// - `InvalidPath` for the name, before anything is sent.
    /// - `Busy` with the lock's path when all waits are over and somebody else holds it; `Timeout` when not
    ///   even the queue was reached in that time, with what the store failed with as its source. If no server answers
    ///   and the backend's operation timeout is shorter than all waits together, `Unavailable` after that.
    /// - `SessionLost`, `NodeRemoved` or `Closed` when the lock is lost while the closure runs: the closure
    ///   is cancelled at its present await point. A closure that blocked its thread past the loss runs to its
    ///   end and gets the same error: its last steps may not have been alone.
    /// - those of [`InterProcessMutex::acquire`](crate::InterProcessMutex::acquire), of
    ///   [`WriteLock::acquire`](crate::WriteLock::acquire) or of
    ///   [`Semaphore::acquire`](crate::Semaphore::acquire), by the kind of lock.
    ///
    /// # Cancel safety
    /// Dropping the future drops the closure's and releases the lock in the background.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn execute<F, Fut>(&self, name: &str, closure: F) -> Result<Fut::Output>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future,
    {
        let lock = Handle::new(&self.client, self.path(name)?)?;
        let guard = self.acquire(&lock).await?;
        let held = guard.held();
        let output = guard.scope(self.run(&guard, async { closure(held).await })).await;
        match guard.release().await {
            Ok(release) => tracing::trace!(path = %lock.path(), ?release, "left"),
            Err(e) => tracing::warn!(path = %lock.path(), error = %e, "the lock could not be released yet"),
        }
        output
    }

    /// The path of the lock that [`execute`](Self::execute) takes for this name: to make the lock itself of, and
    /// ask who takes part in it.
    ///
    /// # Errors
    /// `InvalidPath`, with the offending part in the message.
    pub fn path(&self, name: &str) -> Result<LockPath> {
        LockPath::new(format!("{}/{name}", self.root))
    }

    async fn run<T>(&self, guard: &Guard, closure: impl Future<Output = T>) -> Result<T> {
        if self.run_on_after_loss {
            return Ok(closure.await);
        }
        let output = tokio::select! {
            biased;
            loss = guard.lost() => return Err(loss),
            output = closure => output,
        };
        // A closure that blocked its thread past the deadline ends in the same poll.
        if guard.is_held() { Ok(output) } else { Err(guard.lost().await) }
    }

    async fn acquire(&self, lock: &Handle) -> Result<Guard> {
        let elapsed = |attempt| tracing::info!(path = %lock.path(), attempt, wait = ?self.wait, "still waiting for the lock");
        let whole = self.wait.saturating_mul(self.attempts);
        let mut acquire = pin!(lock.acquire_timeout(self.label, whole));
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
        acquired.map_err(|e| {
            if e.kind() != ErrorKind::Timeout(Phase::Waiting) {
                return e;
            }
            elapsed(attempt);
            let busy = Error::new(ErrorKind::Busy, "execute").with_path(lock.path());
            // Something kept it from looking whether it is its turn.
            if e.source().is_some() { busy.with_source(e) } else { busy }
        })
    }
}
