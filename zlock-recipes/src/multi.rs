//! Curator's `InterProcessMultiLock`.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use zlock_core::{Error, ErrorKind, LockPath, Phase, Result};

use crate::guard::{Guard, Release};
use crate::lock::Lock;
use crate::lock::sealed::Part;
use crate::multi_guard::{MultiGuard, first_loss};

/// Several locks held together: all or none. Any mix of locks, also of different clients and stores.
///
/// The locks are acquired one after the other in the order of their paths, whatever the order in which they
/// were given, so that two sets that overlap never wait for each other in a circle. That order is the same in
/// every process as long as all see a path under the same name (one chroot or prefix a store). Locks of different
/// stores with the same path keep the order in which they were given: give it the same way everywhere.
///
/// Cheap to clone.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock_core::Result<()> {
/// # let client = zlock_recipes::Client::new(zlock_mem::MemServer::new().connect());
/// use std::time::Duration;
///
/// use zlock_recipes::{InterProcessMutex, Lock, MultiLock, ReadWriteLock, Semaphore};
///
/// let order = InterProcessMutex::new(&client, "/app/orders/42")?;
/// let prices = ReadWriteLock::new(&client, "/app/prices")?.read();
/// let workers = Semaphore::new(&client, "/app/workers", 10)?.permits(2)?;
/// let all = MultiLock::new([&order as &dyn Lock, &prices, &workers])?;
/// let guard = all.acquire_timeout(Duration::from_secs(5)).await?;
/// assert!(guard.is_held() && guard.guards().len() == 3);
/// let _ = guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MultiLock {
    /// In the order in which they are acquired.
    parts: Arc<[Part]>,
}

/// How long to wait for all of them.
#[derive(Clone, Copy, Debug)]
enum Wait {
    Forever,
    Until(Instant),
    /// One look at each.
    Not,
}

impl MultiLock {
    /// A lock made of these. Nothing is sent.
    ///
    /// # Errors
    /// `InvalidArgument` if there are none, or two of one client with the same path: the second would wait for
    /// the first.
    pub fn new(locks: impl IntoIterator<Item = impl Lock>) -> Result<Self> {
        let mut parts: Vec<_> = locks.into_iter().map(|lock| lock.part()).collect();
        // Stable: equal paths keep their order.
        parts.sort_by(|a, b| a.handle.path().cmp(b.handle.path()));
        let refuse =
            |message: &str| Error::new(ErrorKind::InvalidArgument, "multi-lock").with_message(message);
        if parts.is_empty() {
            return Err(refuse("a set of no locks"));
        }
        for (i, part) in parts.iter().enumerate() {
            if parts[..i].iter().any(|other| other.handle.is_same(&part.handle)) {
                let message = "the path is there twice: the second lock would wait for the first";
                return Err(refuse(message).with_path(part.handle.path()));
            }
        }
        Ok(MultiLock { parts: parts.into() })
    }

    /// The paths of the locks, in the order in which they are acquired.
    pub fn paths(&self) -> impl Iterator<Item = &LockPath> {
        self.parts.iter().map(|part| part.handle.path())
    }

    /// Acquires all locks, waiting for the turn of each without a time limit. While no server answers it fails, as
    /// [`InterProcessMutex::acquire`](crate::InterProcessMutex::acquire). When one cannot be had, or one that is held
    /// already is lost, those that are held are released in reverse order; a release that fails is logged and goes on
    /// in the background.
    ///
    /// # Errors
    /// The first error of any of the locks, as [`InterProcessMutex::acquire`](crate::InterProcessMutex::acquire);
    /// its path says which.
    ///
    /// # Cancel safety
    /// Dropping the future at any point gives the place in the queue up and releases what is held; no node is
    /// left behind.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn acquire(&self) -> Result<MultiGuard> {
        self.acquire_all(Wait::Forever).await
    }

    /// Acquires all locks, waiting for at most `time` in all. A zero duration makes a single attempt, as
    /// [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// `Timeout` with what the time was spent on, the path of the lock that was waited for last, and what its store
    /// failed with as its source; and those of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn acquire_timeout(&self, time: Duration) -> Result<MultiGuard> {
        let wait = match Instant::now().checked_add(time) {
            _ if time.is_zero() => Wait::Not,
            Some(deadline) => Wait::Until(deadline),
            // A time that the clock cannot tell is for ever.
            None => Wait::Forever,
        };
        self.acquire_all(wait).await
    }

    /// Acquires the locks if all are free; `None` if one is not, and then none is held.
    ///
    /// # Errors
    /// As [`InterProcessMutex::try_acquire`](crate::InterProcessMutex::try_acquire), for each of the locks within its
    /// client's operation timeout.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>> {
        match self.acquire_all(Wait::Not).await {
            Ok(guard) => Ok(Some(guard)),
            Err(e) if e.kind() == ErrorKind::Timeout(Phase::Waiting) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether all the locks are held by their clients, anywhere in the process. A local look, no request.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.parts.iter().all(|part| part.handle.is_acquired(part.label))
    }

    /// Asks the present holders of all the locks to let go, and returns how many were asked. As
    /// [`InterProcessMutex::request_revocation`](crate::InterProcessMutex::request_revocation).
    ///
    /// # Errors
    /// As there: the first error, after all were tried.
    ///
    /// # Cancel safety
    /// Safe; a request that is under way may still reach a holder.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn request_revocation(&self) -> Result<usize> {
        let (mut asked, mut first_error) = (0, None);
        for part in self.parts.iter() {
            match part.handle.request_revocation().await {
                Ok(holders) => asked += holders,
                Err(e) => {
                    first_error.get_or_insert(e);
                }
            }
        }
        first_error.map_or(Ok(asked), Err)
    }

    async fn acquire_all(&self, wait: Wait) -> Result<MultiGuard> {
        let mut guards = Vec::with_capacity(self.parts.len());
        match self.acquire_each(wait, &mut guards).await {
            Ok(()) => Ok(MultiGuard::new(guards)),
            Err(e) => {
                roll_back(guards, wait).await;
                Err(e)
            }
        }
    }

    async fn acquire_each(&self, wait: Wait, guards: &mut Vec<Guard>) -> Result<()> {
        for part in self.parts.iter() {
            let guard = tokio::select! {
                biased;
                loss = first_loss(guards) => Err(loss),
                acquired = acquire_one(part, wait) => acquired,
            };
            guards.push(guard?);
        }
        // One may have been lost in the very moment in which the last was granted.
        match guards.iter().find(|guard| !guard.is_held()) {
            Some(lost) => Err(lost.lost().await),
            None => Ok(()),
        }
    }
}

async fn acquire_one(Part { handle, label }: &Part, wait: Wait) -> Result<Guard> {
    let left = match wait {
        Wait::Forever => return handle.acquire(*label).await,
        Wait::Not => Duration::ZERO,
        Wait::Until(deadline) => match deadline.saturating_duration_since(Instant::now()) {
            // No time was asked for one look; this is time that the locks before have used up.
            Duration::ZERO => {
                let timeout = Error::new(ErrorKind::Timeout(Phase::Waiting), "acquire");
                return Err(timeout.with_path(handle.path()));
            }
            left => left,
        },
    };
    handle.acquire_timeout(*label, left).await
}

/// Releases in reverse order, for as long as there is time; the rest goes on in the background.
async fn roll_back(mut guards: Vec<Guard>, wait: Wait) {
    let release = async {
        while let Some(guard) = guards.pop() {
            let path = guard.path().clone();
            match guard.release().await {
                Ok(Release::Pending) => tracing::warn!(%path, "could not be rolled back yet"),
                Ok(release) => tracing::trace!(%path, ?release, "rolled back"),
                Err(e) => tracing::warn!(%path, error = %e, "could not be rolled back yet"),
            }
        }
    };
    match wait {
        Wait::Until(deadline) if deadline <= Instant::now() => {}
        Wait::Until(deadline) => drop(timeout_at(deadline, release).await),
        Wait::Forever | Wait::Not => release.await,
    }
}
