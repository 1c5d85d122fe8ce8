//! Curator's `InterProcessMutex`.

use std::time::Duration;

use zlock_core::{Label, LockPath, Result};

use crate::client::Client;
use crate::guard::Guard;
use crate::handle::Handle;
use crate::lock::sealed::Part;
use crate::participants::Participant;

/// A mutex between processes: whoever holds the path holds it alone, on the whole store. First come, first
/// served.
///
/// The recipe is ZooKeeper's lock: a sequential node tied to the session, and a watch on the node right
/// before it, so that one release wakes one waiter. Names are those of Curator's `InterProcessMutex`, so
/// processes using either exclude each other.
///
/// Code that runs inside the held lock's [`Scope`](crate::Scope) enters it again; see there. Cheap to clone;
/// instances on one path and client are the same lock.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock_core::Result<()> {
/// # let client = zlock_recipes::Client::new(zlock_mem::MemServer::new().connect());
/// use zlock_recipes::InterProcessMutex;
///
/// let mutex = InterProcessMutex::new(&client, "/app/orders/42")?;
/// let guard = mutex.acquire().await?;
/// // alone; hand guard.fencing_token() to the storage
/// let _ = guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct InterProcessMutex(Handle);

impl InterProcessMutex {
    /// The mutex of this path. Nothing is sent.
    ///
    /// # Errors
    /// `InvalidPath`, with the offending part in the message.
    pub fn new(client: &Client, path: impl AsRef<str>) -> Result<Self> {
        Handle::new(client, path).map(InterProcessMutex)
    }

    /// The data of this mutex's nodes instead of the client's.
    ///
    /// # Errors
    /// `InvalidArgument` above [`MAX_NODE_DATA`](crate::MAX_NODE_DATA), and for `__REVOKE__`, which asks a holder to
    /// let go.
    pub fn with_node_data(self, data: impl Into<Vec<u8>>) -> Result<Self> {
        self.0.with_node_data(data).map(InterProcessMutex)
    }

    /// The path of the lock.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.0.path()
    }

    /// Acquires the lock, waiting for its turn without a time limit.
    ///
    /// Only the turn is waited for without a limit. While no server answers, each operation on the store gives up
    /// after the backend's operation timeout, 15 s by default, and the acquisition fails with `Unavailable`.
    ///
    /// # Errors
    /// - `SessionLost`, `NodeRemoved` or `Closed` when the place in the queue was lost, or when the lock was
    ///   to be entered again and is lost.
    /// - `Unavailable` when no server answered within the backend's operation timeout.
    /// - `NotAuthorized`, `Unexpected`.
    ///
    /// # Cancel safety
    /// Dropping the future at any point gives the place in the queue up; no node is left behind.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn acquire(&self) -> Result<Guard> {
        self.0.acquire(Label::Lock).await
    }

    /// Acquires the lock, waiting for at most `time`; that covers everything: connecting, retries and the wait for
    /// its turn. A zero duration makes a single attempt, as [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// - `Timeout` with what the time was spent on. Its source is what the store failed with last, if it was still
    ///   failing.
    /// - Those of [`acquire`](Self::acquire): `Unavailable` if no server answers and the backend's operation timeout
    ///   is shorter than `time`.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn acquire_timeout(&self, time: Duration) -> Result<Guard> {
        self.0.acquire_timeout(Label::Lock, time).await
    }

    /// Acquires the lock if it is free, without waiting for its turn: `None` if somebody holds it or stands
    /// in line. If a listing shows that, nothing is written.
    ///
    /// # Errors
    /// As [`acquire_timeout`](Self::acquire_timeout). The client's operation timeout is its time, 15 s by default:
    /// while no server answers it fails after that with `Timeout`, or with `Unavailable` if the backend's is shorter.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.0.try_acquire(Label::Lock).await
    }

    /// Whether this client holds the lock, anywhere in the process. A local look, no request.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.0.is_acquired(Label::Lock)
    }

    /// Who holds the lock and who waits for it, first in line first. One request for the queue, and one for
    /// the data of each node. Empty for a path that was never used.
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

    /// Asks the present holder to let the lock go, and returns how many were asked: 0 when nobody holds it,
    /// or when the holder has just left. Whether it does is up to the holder: one of ours hears it through
    /// [`Guard::revocation`], one of Curator's if it was made revocable. Nothing is taken from anybody.
    ///
    /// # Errors
    /// `Unavailable`, `NotAuthorized`, `Closed`, `Unexpected`.
    ///
    /// # Cancel safety
    /// Safe; a request that is under way may still reach the holder.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn request_revocation(&self) -> Result<usize> {
        self.0.request_revocation().await
    }

    pub(crate) fn part(&self) -> Part {
        Part { handle: self.0.clone(), label: Label::Lock }
    }
}
