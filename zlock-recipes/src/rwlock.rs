//! Curator's `InterProcessReadWriteLock`.

use std::time::Duration;

use zlock_core::{Label, LockPath, Result};

use crate::client::Client;
use crate::guard::Guard;
use crate::handle::Handle;
use crate::lock::sealed::Part;
use crate::participants::Participant;
use crate::write_guard::WriteGuard;

/// A lock that many processes may hold for reading, or one for writing. First come, first served: a reader
/// behind a waiting writer waits, too, so that neither kind starves.
///
/// Names are those of Curator's `InterProcessReadWriteLock`, so processes using either exclude each other. A
/// mutex on the same path counts as a writer that is never entered again; use one kind of lock a path.
///
/// # Entering again
/// Inside the [`Scope`](crate::Scope) of a write lock, writing and reading enter again. Inside that of a read
/// lock reading enters again, also while a writer waits; writing is refused at once with
/// [`UpgradeRefused`](zlock_core::ErrorKind::UpgradeRefused), since it would wait for itself.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock_core::Result<()> {
/// # let client = zlock_recipes::Client::new(zlock_mem::MemServer::new().connect());
/// use zlock_recipes::ReadWriteLock;
///
/// let lock = ReadWriteLock::new(&client, "/app/prices")?;
/// let (one, two) = (lock.read().acquire().await?, lock.read().acquire().await?);
/// assert!(lock.write().try_acquire().await?.is_none());
/// let _ = (one.release().await?, two.release().await?);
/// let guard = lock.write().acquire().await?;
/// // alone; hand guard.fencing_token() to the storage
/// let _ = guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReadWriteLock(Handle);

impl ReadWriteLock {
    /// The read/write lock of this path. Nothing is sent.
    ///
    /// # Errors
    /// `InvalidPath`, with the offending part in the message.
    pub fn new(client: &Client, path: impl AsRef<str>) -> Result<Self> {
        Handle::new(client, path).map(ReadWriteLock)
    }

    /// The data of the nodes of its readers and writers instead of the client's.
    ///
    /// # Errors
    /// `InvalidArgument` above [`MAX_NODE_DATA`](crate::MAX_NODE_DATA), and for `__REVOKE__`, which asks a holder to
    /// let go.
    pub fn with_node_data(self, data: impl Into<Vec<u8>>) -> Result<Self> {
        self.0.with_node_data(data).map(ReadWriteLock)
    }

    /// The path of the lock.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.0.path()
    }

    /// The lock as readers take it.
    #[must_use]
    pub fn read(&self) -> ReadLock {
        ReadLock(self.0.clone())
    }

    /// The lock as writers take it.
    #[must_use]
    pub fn write(&self) -> WriteLock {
        WriteLock(self.0.clone())
    }

    /// Readers and writers that hold the lock or wait for it, first in line first. As
    /// [`InterProcessMutex::participants`](crate::InterProcessMutex::participants).
    ///
    /// # Errors
    /// `Unavailable`, `NotAuthorized`, `Closed`, `Unexpected`.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        self.0.participants().await
    }

    /// Asks the present holders to let the lock go, the writer or all readers, and returns how many were asked.
    /// As [`InterProcessMutex::request_revocation`](crate::InterProcessMutex::request_revocation).
    ///
    /// # Errors
    /// As there. If some of several holders could not be asked: the first error, after all were tried.
    ///
    /// # Cancel safety
    /// Safe; a request that is under way may still reach a holder.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn request_revocation(&self) -> Result<usize> {
        self.0.request_revocation().await
    }
}

/// A [`ReadWriteLock`] as readers take it: beside other readers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReadLock(Handle);

impl ReadLock {
    /// The data of this reader's nodes instead of the client's.
    ///
    /// # Errors
    /// `InvalidArgument` above [`MAX_NODE_DATA`](crate::MAX_NODE_DATA), and for `__REVOKE__`, which asks a holder to
    /// let go.
    pub fn with_node_data(self, data: impl Into<Vec<u8>>) -> Result<Self> {
        self.0.with_node_data(data).map(ReadLock)
    }

    /// The path of the lock.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.0.path()
    }

    /// Acquires the lock for reading, waiting without a time limit until no writer that came earlier holds or waits.
    /// Enters again at once inside the scope of a read or write lock of this path. While no server answers it fails,
    /// as [`InterProcessMutex::acquire`](crate::InterProcessMutex::acquire).
    ///
    /// # Errors
    /// As [`InterProcessMutex::acquire`](crate::InterProcessMutex::acquire).
    ///
    /// # Cancel safety
    /// Dropping the future at any point gives the place in the queue up; no node is left behind.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn acquire(&self) -> Result<Guard> {
        self.0.acquire(Label::Read).await
    }

    /// As [`acquire`](Self::acquire), waiting for at most `time`; that covers everything: connecting, retries and the
    /// wait for its turn. A zero duration makes a single attempt, as [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// `Timeout` with what the time was spent on, and what the store failed with as its source; and those of
    /// [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn acquire_timeout(&self, time: Duration) -> Result<Guard> {
        self.0.acquire_timeout(Label::Read, time).await
    }

    /// Acquires the lock for reading if no writer holds it or stands in line; `None` otherwise. If a listing shows
    /// that, nothing is written.
    ///
    /// # Errors
    /// As [`InterProcessMutex::try_acquire`](crate::InterProcessMutex::try_acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.0.try_acquire(Label::Read).await
    }

    /// Whether this client holds the lock for reading, anywhere in the process: by itself, inside a write lock,
    /// or after a downgrade. A local look, no request.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.0.is_acquired(Label::Read)
    }

    /// As [`ReadWriteLock::participants`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        self.0.participants().await
    }

    /// As [`ReadWriteLock::request_revocation`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn request_revocation(&self) -> Result<usize> {
        self.0.request_revocation().await
    }

    pub(crate) fn part(&self) -> Part {
        Part { handle: self.0.clone(), label: Label::Read }
    }
}

/// A [`ReadWriteLock`] as writers take it: alone. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WriteLock(Handle);

impl WriteLock {
    /// The data of this writer's nodes instead of the client's.
    ///
    /// # Errors
    /// `InvalidArgument` above [`MAX_NODE_DATA`](crate::MAX_NODE_DATA), and for `__REVOKE__`, which asks a holder to
    /// let go.
    pub fn with_node_data(self, data: impl Into<Vec<u8>>) -> Result<Self> {
        self.0.with_node_data(data).map(WriteLock)
    }

    /// The path of the lock.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.0.path()
    }

    /// Acquires the lock for writing, waiting without a time limit until everybody who came earlier is gone. Enters
    /// again at once inside the scope of a write lock of this path. While no server answers it fails, as
    /// [`InterProcessMutex::acquire`](crate::InterProcessMutex::acquire).
    ///
    /// # Errors
    /// - `UpgradeRefused` inside the scope of a read lock of this path, also of one that was a write lock.
    ///   Nothing was sent.
    /// - Those of [`InterProcessMutex::acquire`](crate::InterProcessMutex::acquire).
    ///
    /// # Cancel safety
    /// Dropping the future at any point gives the place in the queue up; no node is left behind.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn acquire(&self) -> Result<WriteGuard> {
        self.0.acquire(Label::Write).await.map(WriteGuard::new)
    }

    /// As [`acquire`](Self::acquire), waiting for at most `time`; that covers everything: connecting, retries and the
    /// wait for its turn. A zero duration makes a single attempt, as [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// `Timeout` with what the time was spent on, and what the store failed with as its source; and those of
    /// [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn acquire_timeout(&self, time: Duration) -> Result<WriteGuard> {
        self.0.acquire_timeout(Label::Write, time).await.map(WriteGuard::new)
    }

    /// Acquires the lock for writing if nobody holds it or stands in line; `None` otherwise. If a listing shows that,
    /// nothing is written.
    ///
    /// # Errors
    /// As [`InterProcessMutex::try_acquire`](crate::InterProcessMutex::try_acquire), and `UpgradeRefused` as
    /// [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn try_acquire(&self) -> Result<Option<WriteGuard>> {
        Ok(self.0.try_acquire(Label::Write).await?.map(WriteGuard::new))
    }

    /// Whether this client holds the lock for writing, anywhere in the process. A local look, no request.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.0.is_acquired(Label::Write)
    }

    /// As [`ReadWriteLock::participants`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        self.0.participants().await
    }

    /// As [`ReadWriteLock::request_revocation`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn request_revocation(&self) -> Result<usize> {
        self.0.request_revocation().await
    }

    pub(crate) fn part(&self) -> Part {
        Part { handle: self.0.clone(), label: Label::Write }
    }
}
