//! Curator's `InterProcessReadWriteLock`.

use std::sync::Arc;
use std::time::Duration;

use zlock_core::{LockPath, Result};

use crate::client::Client;
use crate::locks::handle::LockHandle;
use crate::locks::kind::{Read, Write};
use crate::locks::participants::Participant;

/// A lock that either many processes hold for reading, or one process holds for writing. It is first come, first served: a
/// reader behind a waiting writer waits as well, so neither side starves.
///
/// Nodes have the names of Curator's `InterProcessReadWriteLock`, so processes that use either exclude each other. A mutex
/// on the same path counts as a writer that is never entered again. Use one kind of lock for a path.
///
/// # Entering again
/// Inside the [`Scope`](crate::Scope) of a write lock, both sides can be acquired again. Inside that of a read lock, the
/// read lock can be, even while a writer waits. The write lock is refused at once with
/// [`UpgradeRefused`](zlock_core::ErrorKind::UpgradeRefused), because it would wait for itself.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// let lock = client.read_write_lock("/app/prices")?;
/// let (one, two) = (lock.read().acquire().await?, lock.read().acquire().await?);
/// assert!(lock.write().try_acquire().await?.is_none());
/// one.release().await?;
/// two.release().await?;
/// let guard = lock.write().acquire().await?;
/// // alone; hand guard.fencing_token() to the storage
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReadWriteLock(ReadLock);

/// The reading side of a [`ReadWriteLock`], shared with other readers.
///
/// [`is_acquired_in_this_process`](LockHandle::is_acquired_in_this_process) is also `true` inside a write lock and after a
/// downgrade.
pub type ReadLock = LockHandle<Read>;

/// The writing side of a [`ReadWriteLock`], exclusive. Its guard can be [downgraded](crate::WriteGuard::downgrade).
pub type WriteLock = LockHandle<Write>;

impl Client {
    /// Returns a handle to the read/write lock of this path. Performs no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPath`](zlock_core::ErrorKind::InvalidPath), with the offending part in the message.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let prices = client.read_write_lock("/app/prices")?;
    /// prices.read().acquire().await?.release().await?;
    /// prices.write().acquire().await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_write_lock(&self, path: impl AsRef<str>) -> Result<ReadWriteLock> {
        LockHandle::of_kind(self, path, Read).map(ReadWriteLock)
    }
}

impl ReadWriteLock {
    /// Returns the reading side of the lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let prices = client.read_write_lock("/app/prices")?;
    /// let (one, two) = (prices.read().acquire().await?, prices.read().acquire().await?); // together
    /// # one.release().await?;
    /// # two.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn read(&self) -> ReadLock {
        self.0.clone()
    }

    /// Returns the writing side of the lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let prices = client.read_write_lock("/app/prices")?;
    /// let guard = prices.write().acquire().await?; // alone
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn write(&self) -> WriteLock {
        self.0.with_kind(Write)
    }

    /// Returns the readers and writers that hold the lock or wait for it, head of the queue first.
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
    /// let prices = client.read_write_lock("/app/prices")?;
    /// let guard = prices.read().acquire().await?;
    /// assert_eq!(prices.participants().await?.len(), 1);
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        self.0.participants().await
    }

    /// Asks the current holders, the writer or all readers, to release the lock. Returns how many were asked.
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
    /// let prices = client.read_write_lock("/app/prices")?;
    /// let reading = prices.read().acquire().await?;
    /// assert_eq!(prices.request_revocation().await?, 1); // elsewhere
    /// reading.revocation_requested().await?;
    /// reading.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn request_revocation(&self) -> Result<usize> {
        self.0.request_revocation().await
    }

    /// Returns the path of the lock.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.0.path()
    }

    /// Replaces the client's node data for nodes that this lock's readers and writers create.
    ///
    /// # Errors
    /// As [`LockHandle::with_node_data`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let prices = client.read_write_lock("/app/prices")?.with_node_data("import job 7")?;
    /// # let _ = prices;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_node_data(self, data: impl Into<Vec<u8>>) -> Result<Self> {
        self.0.with_node_data(data).map(ReadWriteLock)
    }

    /// Limits how long each reader and each writer holds the lock, as [`LockHandle::max_hold`](crate::LockHandle::max_hold).
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if the time is zero.
    pub fn max_hold(self, time: Duration) -> Result<Self> {
        self.0.max_hold(time).map(ReadWriteLock)
    }

    /// Sets the name of the lock in measurements, as [`LockHandle::with_metric_name`](crate::LockHandle::with_metric_name).
    #[must_use]
    pub fn with_metric_name(self, name: impl Into<Arc<str>>) -> Self {
        ReadWriteLock(self.0.with_metric_name(name))
    }
}
