//! Curator's `InterProcessMutex`.

use zlock_core::Result;

use crate::client::Client;
use crate::kind::Mutex;
use crate::lock::LockHandle;

/// A mutex between processes: whoever holds the path holds it alone, on the whole store. First come, first
/// served.
///
/// The recipe is ZooKeeper's lock: a sequential node tied to the session, and a watch on the node right
/// before it, so that one release wakes one waiter. Names are those of Curator's `InterProcessMutex`, so
/// processes using either exclude each other.
///
/// Code that runs inside the held lock's [`Scope`](crate::Scope) enters it again; see there.
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
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
pub type InterProcessMutex = LockHandle<Mutex>;

impl Client {
    /// Returns a handle to the mutex of this path, as [`InterProcessMutex::new`]. Performs no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPath`](zlock_core::ErrorKind::InvalidPath), with the offending part in the message.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock_core::Result<()> {
    /// # let client = zlock_recipes::Client::new(zlock_mem::MemServer::new().connect());
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn mutex(&self, path: impl AsRef<str>) -> Result<InterProcessMutex> {
        InterProcessMutex::new(self, path)
    }
}

impl LockHandle<Mutex> {
    /// Creates a handle to the mutex of this path. Performs no I/O.
    ///
    /// # Errors
    /// [`InvalidPath`](zlock_core::ErrorKind::InvalidPath), with the offending part in the message.
    pub fn new(client: &Client, path: impl AsRef<str>) -> Result<Self> {
        LockHandle::of_kind(client, path, Mutex)
    }
}
