//! Curator's `InterProcessMultiLock`.
//!
//! A set is acquired in the order of its paths, so that two sets cannot wait for each other.

pub(crate) mod guard;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use zlock_core::{Error, ErrorKind, Label, LockPath, Result};

use crate::guard::Guard;
use crate::locks::dyn_lock::DynLock;
use crate::locks::handle::LockHandle;
use crate::locks::lock::lock;
use crate::locks::multi::guard::{MultiGuard, first_loss};
use crate::locks::participants::Participant;

/// A set of locks that are acquired together, all or none. They may be of any kind, of any client and on any store.
///
/// The locks are acquired one after the other in the order of their paths, whatever the order in which they were given,
/// so that overlapping sets cannot deadlock. The order is the same in every process as long as all use the same chroot
/// or prefix for a store. Locks of different stores with the same path keep the order in which they were given: give it
/// the same way everywhere.
///
/// Cheap to clone.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// use std::time::Duration;
///
/// use zlock::MultiLock;
/// use zlock::locks::DynLock;
///
/// let order = client.mutex("/app/orders/42")?;
/// let prices = client.read_write_lock("/app/prices")?.read();
/// let workers = client.semaphore("/app/workers", 10)?.permits(2)?;
/// let all = MultiLock::new([&order as &dyn DynLock, &prices, &workers])?;
/// let guard = all.acquire_timeout(Duration::from_secs(5)).await?;
/// assert!(guard.is_held() && guard.guards().len() == 3);
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MultiLock {
    /// In the order of acquisition.
    locks: Arc<[LockHandle<Label>]>,
}

/// How long to wait for all of them.
#[derive(Clone, Copy, Debug)]
enum Wait {
    Forever,
    Until(Instant),
    /// Do not wait: a single attempt for each lock.
    Not,
}

impl MultiLock {
    /// Creates a lock that consists of these locks. Performs no I/O.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if there are none, or two of one client with the same path: the second would wait for
    /// the first.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use zlock::MultiLock;
    /// use zlock::locks::DynLock;
    ///
    /// let order = client.mutex("/app/orders/42")?;
    /// let prices = client.read_write_lock("/app/prices")?.read();
    /// let both = MultiLock::new([&order as &dyn DynLock, &prices])?;
    /// # let _ = both;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(locks: impl IntoIterator<Item = impl DynLock>) -> Result<Self> {
        let mut locks: Vec<_> = locks.into_iter().map(|lock| lock.to_handle()).collect();
        // Stable: equal paths keep their order.
        locks.sort_by(|a, b| a.path().cmp(b.path()));
        let refuse =
            |message: &str| Error::new(ErrorKind::InvalidArgument, "multi-lock").with_message(message);
        if locks.is_empty() {
            return Err(refuse("a set of no locks"));
        }
        for (i, lock) in locks.iter().enumerate() {
            if locks[..i].iter().any(|other| other.is_same_place(lock)) {
                let message = "the path is given twice: the second lock would wait for the first";
                return Err(refuse(message).with_path(lock.path()));
            }
        }
        Ok(MultiLock { locks: locks.into() })
    }

    /// Returns the paths of the locks, in the order in which they are acquired.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let (one, two) = (client.mutex("/app/accounts/1")?, client.mutex("/app/accounts/2")?);
    /// let both = zlock::MultiLock::new([&two, &one])?;
    /// let paths: Vec<_> = both.paths().map(|path| path.as_str()).collect();
    /// assert_eq!(paths, ["/app/accounts/1", "/app/accounts/2"]); // sorted
    /// # Ok(())
    /// # }
    /// ```
    pub fn paths(&self) -> impl Iterator<Item = &LockPath> {
        self.locks.iter().map(LockHandle::path)
    }

    /// Acquires all locks, waiting for the turn of each without a time limit. While no server answers, it fails as
    /// [`LockHandle::acquire`] does. If a lock cannot be acquired, or one of those already held is lost, those that are
    /// held are released in reverse order. A release that fails is logged and continues in the background.
    ///
    /// # Errors
    /// The first error of any of the locks, as from [`LockHandle::acquire`]. Its path names the lock.
    ///
    /// # Cancel safety
    /// Dropping the future at any point gives up the place in the queue and releases the locks that are held; no node is
    /// left behind.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let (one, two) = (client.mutex("/app/accounts/1")?, client.mutex("/app/accounts/2")?);
    /// let both = zlock::MultiLock::new([&two, &one])?;
    /// let guard = both.acquire().await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self) -> Result<MultiGuard> {
        self.acquire_all(Wait::Forever).await
    }

    /// Acquires all locks, waiting for at most `time` in all. A zero duration makes a single attempt, as
    /// [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire), and those of [`LockHandle::acquire_timeout`] with the path of the lock that
    /// was waited for last. If the locks before it used up the time, that lock is not attempted, and the error is
    /// [`Busy`](ErrorKind::Busy).
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use std::time::Duration;
    ///
    /// let (one, two) = (client.mutex("/app/accounts/1")?, client.mutex("/app/accounts/2")?);
    /// let both = zlock::MultiLock::new([&two, &one])?;
    /// let guard = both.acquire_timeout(Duration::from_secs(5)).await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_timeout(&self, time: Duration) -> Result<MultiGuard> {
        let wait = match Instant::now().checked_add(time) {
            _ if time.is_zero() => Wait::Not,
            Some(deadline) => Wait::Until(deadline),
            // A deadline that the clock cannot represent means no time limit.
            None => Wait::Forever,
        };
        self.acquire_all(wait).await
    }

    /// Acquires the locks if all are free. Returns `None` if one is not; then none is held.
    ///
    /// # Errors
    /// Those of [`LockHandle::try_acquire`]. Each lock has its client's response timeout.
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let (one, two) = (client.mutex("/app/accounts/1")?, client.mutex("/app/accounts/2")?);
    /// let both = zlock::MultiLock::new([&two, &one])?;
    /// let held = one.acquire().await?;
    /// assert!(both.try_acquire().await?.is_none()); // and the other is free
    /// held.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>> {
        match self.acquire_all(Wait::Not).await {
            Ok(guard) => Ok(Some(guard)),
            Err(e) if e.kind() == ErrorKind::Busy => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Acquires all locks, runs the future inside the scope of all, and releases them. If one of the locks is lost, the
    /// future is cancelled at its current await point, as by [`MultiGuard::run`].
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire) and of [`MultiGuard::run`]. A release that fails is logged and continues in
    /// the background.
    ///
    /// # Cancel safety
    /// Dropping the future drops `future` and releases the locks in the background.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let (one, two) = (client.mutex("/app/accounts/1")?, client.mutex("/app/accounts/2")?);
    /// let both = zlock::MultiLock::new([&two, &one])?;
    /// let moved = both.run(async { 100 }).await?;
    /// # assert_eq!(moved, 100);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output> {
        let future = Box::pin(future);
        let guard = self.acquire().await?;
        let output = guard.run_boxed(future).await;
        for guard in guard.into_guards().into_iter().rev() {
            guard.release_or_log().await;
        }
        output
    }

    /// Returns the participants of all the locks, as from [`LockHandle::participants`], in the order of the locks'
    /// paths.
    ///
    /// # Errors
    /// The first error of any of the locks.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// # use zlock::MultiLock;
    /// # let both = MultiLock::new([client.mutex("/app/a")?, client.mutex("/app/b")?])?;
    /// let guard = both.acquire().await?;
    /// assert_eq!(both.participants().await?.len(), 2); // one holder of each lock
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        let mut participants = Vec::new();
        for lock in self.locks.iter() {
            participants.append(&mut lock.participants().await?);
        }
        Ok(participants)
    }

    /// Returns `true` if all the locks are held by their clients, anywhere in the process. Performs no I/O.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// # use zlock::MultiLock;
    /// # let both = MultiLock::new([client.mutex("/app/a")?, client.mutex("/app/b")?])?;
    /// let guard = both.acquire().await?;
    /// assert!(both.is_acquired_in_this_process());
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.locks.iter().all(LockHandle::is_acquired_in_this_process)
    }

    /// Asks the current holders of all the locks to release them, as [`LockHandle::request_revocation`]. Returns how many
    /// were asked.
    ///
    /// # Errors
    /// The first error of [`LockHandle::request_revocation`], after all holders were tried.
    ///
    /// # Cancel safety
    /// Safe; a request in flight may still reach a holder.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// # use zlock::MultiLock;
    /// # let both = MultiLock::new([client.mutex("/app/a")?, client.mutex("/app/b")?])?;
    /// let guard = both.acquire().await?;
    /// assert_eq!(both.request_revocation().await?, 2); // elsewhere
    /// guard.revocation_requested().await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn request_revocation(&self) -> Result<usize> {
        let (mut asked, mut first_error) = (0, None);
        for lock in self.locks.iter() {
            match lock.request_revocation().await {
                Ok(holders) => asked += holders,
                Err(e) => {
                    first_error.get_or_insert(e);
                }
            }
        }
        first_error.map_or(Ok(asked), Err)
    }

    async fn acquire_all(&self, wait: Wait) -> Result<MultiGuard> {
        let mut guards = Vec::with_capacity(self.locks.len());
        match self.acquire_each(wait, &mut guards).await {
            Ok(()) => Ok(MultiGuard::new(guards)),
            Err(e) => {
                roll_back(guards, wait).await;
                Err(e)
            }
        }
    }

    async fn acquire_each(&self, wait: Wait, guards: &mut Vec<Guard>) -> Result<()> {
        for lock in self.locks.iter() {
            let guard = tokio::select! {
                biased;
                loss = first_loss(guards) => Err(loss),
                acquired = acquire_one(lock, wait) => acquired,
            };
            guards.push(guard?);
        }
        // A lock may have been lost at the very moment when the last one was granted.
        match guards.iter().find(|guard| !guard.is_held()) {
            Some(lost) => Err(lost.lost().await),
            None => Ok(()),
        }
    }
}

lock!([] MultiLock, MultiGuard);

async fn acquire_one(lock: &LockHandle<Label>, wait: Wait) -> Result<Guard> {
    let busy = || Error::new(ErrorKind::Busy, "acquire").with_path(lock.path());
    match wait {
        Wait::Forever => lock.acquire().await,
        Wait::Not => lock.try_acquire().await?.ok_or_else(busy),
        Wait::Until(deadline) => match deadline.saturating_duration_since(Instant::now()) {
            // The caller asked for a time limit, not for a single attempt; the locks before this one have used it up.
            Duration::ZERO => Err(busy()),
            left => lock.acquire_timeout(left).await,
        },
    }
}

/// Releases in reverse order, for as long as there is time; the rest continues in the background.
async fn roll_back(mut guards: Vec<Guard>, wait: Wait) {
    let release = async {
        while let Some(guard) = guards.pop() {
            guard.release_or_log().await;
        }
    };
    match wait {
        Wait::Until(deadline) if deadline <= Instant::now() => {}
        Wait::Until(deadline) => drop(timeout_at(deadline, release).await),
        Wait::Forever | Wait::Not => release.await,
    }
}
