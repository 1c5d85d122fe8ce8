//! Curator's `InterProcessSemaphoreV2`, with several permits at a time and in the order of the queue.

use std::time::Duration;

use zlock_core::{Error, ErrorKind, Label, LockPath, Result};

use crate::client::Client;
use crate::guard::Guard;
use crate::handle::Handle;
use crate::lock::sealed::Part;
use crate::participants::Participant;

/// A number of permits that processes share: whoever acquires takes some of them, all at once or none, in the
/// order in which they asked. Who asks for many is not overtaken by those who ask for few.
///
/// The permits come back when the guard goes, or when the session of a killed process ends. A guard may be
/// moved to another task and released there. Nothing enters again: an acquire inside the scope of a held permit
/// takes more of them, and waits for itself if there are not enough.
///
/// Everybody must give the same maximum for a path. Curator's semaphore keeps its nodes in another way: the two
/// must not share a path. Nor should other locks: a mutex or a read/write lock on a semaphore's path keeps
/// everybody behind it out and waits for everybody before it, which is safe and of no use.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock_core::Result<()> {
/// # let client = zlock_recipes::Client::new(zlock_mem::MemServer::new().connect());
/// use zlock_recipes::Semaphore;
///
/// let workers = Semaphore::new(&client, "/app/workers", 10)?;
/// let six = workers.acquire(6).await?;
/// assert!(workers.try_acquire(6).await?.is_none());
/// let four = workers.acquire(4).await?;
/// assert_eq!((six.permits(), four.permits()), (Some(6), Some(4)));
/// let _ = six.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    handle: Handle,
    max: u32,
}

impl Semaphore {
    /// The semaphore of this path, with `max` permits in all. Nothing is sent.
    ///
    /// # Errors
    /// `InvalidPath`, with the offending part in the message; `InvalidArgument` for a maximum of 0.
    pub fn new(client: &Client, path: impl AsRef<str>, max: u32) -> Result<Self> {
        let handle = Handle::new(client, path)?;
        let semaphore = Semaphore { handle, max };
        if max == 0 {
            return Err(semaphore.invalid("the maximum is 0 permits, at least 1 is needed".into()));
        }
        Ok(semaphore)
    }

    /// The data of this semaphore's nodes instead of the client's.
    ///
    /// # Errors
    /// `InvalidArgument` above [`MAX_NODE_DATA`](crate::MAX_NODE_DATA), and for `__REVOKE__`, which asks a holder to
    /// let go.
    pub fn with_node_data(self, data: impl Into<Vec<u8>>) -> Result<Self> {
        Ok(Semaphore { handle: self.handle.with_node_data(data)?, max: self.max })
    }

    /// The path of the semaphore.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.handle.path()
    }

    /// How many permits there are in all.
    #[must_use]
    pub fn max(&self) -> u32 {
        self.max
    }

    /// Acquires `n` permits, waiting without a time limit until that many are free for this place in the queue. While
    /// no server answers it fails, as [`InterProcessMutex::acquire`](crate::InterProcessMutex::acquire).
    ///
    /// # Errors
    /// - `InvalidArgument` for 0 permits or more than there are, before anything is sent.
    /// - `Mismatch` when the first who asks for permits gives another maximum at the time.
    /// - `SessionLost`, `NodeRemoved` or `Closed` when the place in the queue was lost.
    /// - `Unavailable` when no server answered within the backend's operation timeout.
    /// - `NotAuthorized`, `Unexpected`.
    ///
    /// # Cancel safety
    /// Dropping the future at any point gives the place in the queue up; no node is left behind.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn acquire(&self, n: u32) -> Result<Guard> {
        self.handle.acquire(self.label(n)?).await
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
    pub async fn acquire_timeout(&self, n: u32, time: Duration) -> Result<Guard> {
        self.handle.acquire_timeout(self.label(n)?, time).await
    }

    /// Acquires `n` permits if they are free and nobody waits; `None` otherwise. If a listing shows that, nothing
    /// is written.
    ///
    /// # Errors
    /// As [`InterProcessMutex::try_acquire`](crate::InterProcessMutex::try_acquire), and those of
    /// [`acquire`](Self::acquire); another maximum is noticed before anything is written.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn try_acquire(&self, n: u32) -> Result<Option<Guard>> {
        self.handle.try_acquire(self.label(n)?).await
    }

    /// `n` of the permits as one lock, for a [`MultiLock`](crate::MultiLock). Nothing is sent.
    ///
    /// # Errors
    /// `InvalidArgument` for 0 permits or more than there are.
    pub fn permits(&self, n: u32) -> Result<Permits> {
        let label = self.label(n)?;
        Ok(Permits(Part { handle: self.handle.clone(), label }))
    }

    /// Whether this client holds any of the permits, anywhere in the process. A local look, no request.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.handle.is_acquired(Label::Permits { weight: 1, max: self.max, granted: true })
    }

    /// Who holds permits and who waits for some, first in line first. As
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
        self.handle.participants().await
    }

    /// Asks all present holders to let their permits go, and returns how many were asked. As
    /// [`InterProcessMutex::request_revocation`](crate::InterProcessMutex::request_revocation).
    ///
    /// # Errors
    /// As there. If some of the holders could not be asked: the first error, after all were tried.
    ///
    /// # Cancel safety
    /// Safe; a request that is under way may still reach a holder.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn request_revocation(&self) -> Result<usize> {
        self.handle.request_revocation().await
    }

    fn label(&self, n: u32) -> Result<Label> {
        permits(n, self.max).map_err(|message| self.invalid(message))
    }

    fn invalid(&self, message: String) -> Error {
        Error::new(ErrorKind::InvalidArgument, "semaphore").with_path(self.path()).with_message(message)
    }
}

/// What `n` of `max` permits ask for; why there cannot be such.
pub(crate) fn permits(n: u32, max: u32) -> Result<Label, String> {
    match n {
        0 => Err(format!("0 of {max} permits, at least 1 is needed")),
        _ if n > max => Err(format!("{n} permits, there are only {max}")),
        _ => Ok(Label::Permits { weight: n, max, granted: false }),
    }
}

/// Some of a [`Semaphore`]'s permits as one lock. Made by [`Semaphore::permits`].
#[derive(Clone, Debug)]
pub struct Permits(Part);

impl Permits {
    /// The path of the semaphore.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.0.handle.path()
    }

    pub(crate) fn part(&self) -> Part {
        self.0.clone()
    }
}
