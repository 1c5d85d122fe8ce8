//! Curator's `InterProcessSemaphoreV2`, with several permits at a time and in the order of the queue.

use std::sync::Arc;
use std::time::Duration;

use zlock_core::{Error, ErrorKind, LockPath, Result};

use crate::client::Client;
use crate::guard::Guard;
use crate::locks::handle::LockHandle;
use crate::locks::kind::Permits;
use crate::locks::participants::Participant;
use crate::queue::SHARED_MAX;
use crate::value::Counter;

/// A number of permits that processes share. An acquisition takes some of them, all at once or none. Requests are
/// served in the order in which they were made, so large requests are not starved by smaller ones.
///
/// The permits are returned when the guard is dropped or released, or when the session of a killed process ends. A
/// guard may be moved to another task and released there. A semaphore is not reentrant: an acquisition inside the scope
/// of held permits takes further permits, and waits for itself if there are not enough.
///
/// All clients must use the same maximum for a path; one that may change is a counter
/// ([`Client::semaphore_with_shared_max`]). Curator's semaphore arranges its nodes differently, so the two must
/// not share a path. Do not use a mutex or a read/write lock on a semaphore's path either: it waits for all nodes ahead of
/// it and blocks all nodes behind it, which is safe but useless.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// let workers = client.semaphore("/app/workers", 10)?;
/// let six = workers.acquire(6).await?;
/// assert!(workers.try_acquire(6).await?.is_none());
/// let four = workers.acquire(4).await?;
/// assert_eq!((six.permits(), four.permits()), (Some(6), Some(4)));
/// six.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    /// A request for all permits.
    all: PermitRequest,
    max: u32,
}

/// A request for a number of a [`Semaphore`]'s permits, acquired together. Created by [`Semaphore::permits`].
///
/// [`is_acquired_in_this_process`](LockHandle::is_acquired_in_this_process) is `true` if this client holds any of the
/// semaphore's permits.
pub type PermitRequest = LockHandle<Permits>;

impl Client {
    /// Returns a handle to the semaphore of this path, which has `max` permits. Performs no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPath`], with the offending part in the message; [`ErrorKind::InvalidArgument`] for a
    /// maximum of 0.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let permits = client.semaphore("/app/workers", 10)?.acquire(2).await?;
    /// permits.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn semaphore(&self, path: impl AsRef<str>, max: u32) -> Result<Semaphore> {
        let all = LockHandle::of_kind(self, path, Permits { n: max, max })?;
        if max == 0 {
            return Err(invalid(all.path(), "the maximum is 0 permits; it must be at least 1".into()));
        }
        Ok(Semaphore { all, max })
    }
}

impl Client {
    /// Returns a handle to the semaphore of this path whose maximum is the number of a counter, which may change at any time.
    /// Performs no I/O.
    ///
    /// A raised maximum wakes waiters. A lowered one takes permits from nobody: permits are granted again when enough holders
    /// have released theirs. None are granted by a maximum that was changed before the grant. A counter that does not exist, or is
    /// negative, means no permits. A request for more permits than there are waits until there are as many.
    ///
    /// All clients of the path must use the same counter. One with a maximum of its own is refused, and so is this one if the
    /// head of the queue has one ([`PermitLimitMismatch`](ErrorKind::PermitLimitMismatch)). Curator's `SharedCount` has
    /// the format [`Int`](crate::CounterFormat::Int).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPath`]; [`ErrorKind::InvalidArgument`] if the counter is at the semaphore's path or below it, or if
    /// it is another client's.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let max = client.counter("/app/max-workers")?;
    /// let workers = client.semaphore_with_shared_max("/app/workers", &max)?;
    /// assert!(workers.try_acquire(1).await?.is_none());
    /// max.add(2).await?; // by an operator, say
    /// let permits = workers.acquire(2).await?;
    /// permits.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn semaphore_with_shared_max(&self, path: impl AsRef<str>, max: &Counter) -> Result<Semaphore> {
        let mut all = LockHandle::of_kind(self, path, Permits { n: 1, max: SHARED_MAX })?;
        let value = max.path();
        let below = value.as_str().strip_prefix(all.path().as_str());
        if below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            return Err(invalid(
                all.path(),
                format!("its maximum is at {value}; it must not be at its path or below"),
            ));
        }
        if !max.is_of(self) {
            return Err(invalid(all.path(), format!("its maximum at {value} belongs to another client")));
        }
        all.shared_max = Some(max.clone());
        Ok(Semaphore { all, max: SHARED_MAX })
    }
}

impl Semaphore {
    /// Acquires `n` permits, waiting without a time limit until that many are free for this place in the queue. The
    /// same as [`permits(n)?.acquire()`](LockHandle::acquire).
    ///
    /// # Errors
    /// As [`permits`](Self::permits), before anything is sent, and [`LockHandle::acquire`].
    ///
    /// # Cancel safety
    /// Dropping the future at any point gives up the place in the queue; no node is left behind.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let workers = client.semaphore("/app/workers", 10)?;
    /// let guard = workers.acquire(3).await?;
    /// guard.release().await?; // returns all three
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self, n: u32) -> Result<Guard> {
        self.permits(n)?.acquire().await
    }

    /// Acquires `n` permits, waiting for at most `time`. The same as
    /// [`permits(n)?.acquire_timeout(time)`](LockHandle::acquire_timeout).
    ///
    /// # Errors
    /// As [`permits`](Self::permits), before anything is sent, and [`LockHandle::acquire_timeout`].
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
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
    /// let workers = client.semaphore("/app/workers", 10)?;
    /// let guard = workers.acquire_timeout(3, Duration::from_secs(2)).await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_timeout(&self, n: u32, time: Duration) -> Result<Guard> {
        self.permits(n)?.acquire_timeout(time).await
    }

    /// Acquires `n` permits if they are free and there is no waiter. Returns `None` otherwise. The same as
    /// [`permits(n)?.try_acquire()`](LockHandle::try_acquire).
    ///
    /// # Errors
    /// As [`permits`](Self::permits) and [`LockHandle::try_acquire`]. A different maximum is detected before anything
    /// is written.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let workers = client.semaphore("/app/workers", 10)?;
    /// let six = workers.acquire(6).await?;
    /// assert!(workers.try_acquire(6).await?.is_none());
    /// six.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(&self, n: u32) -> Result<Option<Guard>> {
        self.permits(n)?.try_acquire().await
    }

    /// Returns a handle that acquires `n` permits. Performs no I/O.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for 0 permits or more than the maximum, unless that is shared.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let workers = client.semaphore("/app/workers", 10)?;
    /// let three = workers.permits(3)?; // a lock handle
    /// let guard = three.acquire().await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn permits(&self, n: u32) -> Result<PermitRequest> {
        let permits = match self.all.shared_max {
            Some(_) if n > 0 => Ok(Permits { n, max: SHARED_MAX }),
            _ => permits(n, self.max),
        };
        let permits = permits.map_err(|message| invalid(self.path(), message))?;
        Ok(self.all.with_kind(permits))
    }

    /// Returns how many permits the semaphore has. If its maximum is shared, this is the number that the counter's handle has
    /// last seen, and 0 if it has not seen any.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let workers = client.semaphore("/app/workers", 10)?;
    /// assert_eq!(workers.max_permits(), 10);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn max_permits(&self) -> u32 {
        match self.all.shared_max.as_ref().map(Counter::last_seen) {
            None => self.max,
            Some(known) => known.map_or(0, |known| known.number.clamp(0, u32::MAX.into()) as u32),
        }
    }

    /// Returns `true` if this client holds any of the permits, anywhere in the process. Performs no I/O.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let workers = client.semaphore("/app/workers", 10)?;
    /// let guard = workers.acquire(3).await?;
    /// assert!(workers.is_acquired_in_this_process());
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.all.is_acquired_in_this_process()
    }

    /// Returns the clients that hold permits or wait for some, head of the queue first.
    ///
    /// # Errors
    /// As [`LockHandle::participants`].
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
    /// let workers = client.semaphore("/app/workers", 10)?;
    /// let guard = workers.acquire(3).await?;
    /// assert_eq!(workers.participants().await?.len(), 1); // one node for all three
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        self.all.participants().await
    }

    /// Asks all current holders to release their permits. Returns how many were asked.
    ///
    /// # Errors
    /// As [`LockHandle::request_revocation`].
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
    /// let workers = client.semaphore("/app/workers", 10)?;
    /// let guard = workers.acquire(3).await?;
    /// assert_eq!(workers.request_revocation().await?, 1); // elsewhere
    /// guard.revocation_requested().await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn request_revocation(&self) -> Result<usize> {
        self.all.request_revocation().await
    }

    /// Returns the path of the semaphore.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.all.path()
    }

    /// Sets the data of the nodes that this semaphore creates, instead of the client's node data.
    ///
    /// # Errors
    /// As [`LockHandle::with_node_data`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let workers = client.semaphore("/app/workers", 10)?.with_node_data("import job 7")?;
    /// # let _ = workers;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_node_data(self, data: impl Into<Vec<u8>>) -> Result<Self> {
        Ok(Semaphore { all: self.all.with_node_data(data)?, max: self.max })
    }

    /// Limits how long permits are held, as [`LockHandle::max_hold`](crate::LockHandle::max_hold).
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if the time is zero.
    pub fn max_hold(self, time: Duration) -> Result<Self> {
        Ok(Semaphore { all: self.all.max_hold(time)?, max: self.max })
    }

    /// Sets the name of the lock in measurements, as [`LockHandle::with_metric_name`](crate::LockHandle::with_metric_name).
    #[must_use]
    pub fn with_metric_name(self, name: impl Into<Arc<str>>) -> Self {
        Semaphore { all: self.all.with_metric_name(name), max: self.max }
    }
}

fn invalid(path: &LockPath, message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, "semaphore").with_path(path).with_message(message)
}

/// Returns a request for `n` of `max` permits, or the reason why there is none.
pub(crate) fn permits(n: u32, max: u32) -> Result<Permits, String> {
    match n {
        0 => Err(format!("0 of {max} permits; it must be at least 1")),
        _ if n > max => Err(format!("{n} permits, more than the maximum of {max}")),
        _ => Ok(Permits { n, max }),
    }
}
