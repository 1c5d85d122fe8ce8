//! The blocking client.

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;
use zlock_core::{Close, Result, RuntimeThread};

use super::driver::{Driver, block_on, held, may_block};
use super::guard::still_entered;
use crate::{Health, Shutdown};

/// A connection to a coordination store, shared by all of its locks, with a thread for its heartbeats. Cheap to clone. The
/// blocking version of [`zlock::Client`](crate::Client).
///
/// When its last clone, lock and guard are dropped, the client finishes its work in the background, and then ends the
/// session and the thread. The drop does not wait for that: call [`close`](Self::close) before the program ends.
///
/// # Examples
/// ```
/// # fn main() -> zlock::Result<()> {
/// let client = zlock::blocking::connect("mem://")?;
/// let guard = client.mutex("/app/orders/42")?.acquire()?;
/// guard.release()?;
/// client.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    client: crate::Client,
    driver: Driver,
}

impl Client {
    /// Runs a future that connects on a new thread, and waits for it. The future selects the store and its options.
    ///
    /// # Errors
    /// - Those of the future.
    /// - [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    /// - [`Unexpected`](zlock_core::ErrorKind::Unexpected) if the operating system cannot start the thread.
    ///
    /// # Panics
    /// Panics if the future panics.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// use zlock::blocking;
    /// use zlock::mem::MemServer;
    ///
    /// let server = MemServer::new();
    /// let client = blocking::Client::new(async move {
    ///     Ok(zlock::Client::builder(server.connect()).with_node_data("worker 7")?.build())
    /// })?;
    /// client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(connect: impl Future<Output = Result<crate::Client>> + Send + 'static) -> Result<Self> {
        may_block("connect")?;
        let thread = RuntimeThread::start()?;
        let client = block_on(&thread, thread.run(connect))?;
        Ok(Client { client, driver: Driver::new(thread) })
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Returns the async client, for calls to [`wait`](Self::wait) for, and for async code of the same program. All share one
    /// session.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// let client = zlock::blocking::connect("mem://")?;
    /// let events = client.as_async().session_events();
    /// assert_eq!(events.current().epoch, 1);
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn as_async(&self) -> &crate::Client {
        &self.client
    }

    /// Waits on the calling thread for a call of the async API: a semaphore, a barrier or a latch, slots, members, a value or a
    /// counter, a watch, or an async function of yours.
    ///
    /// The future enters the locks again that the thread holds. What it returns belongs to no thread: an async guard may be sent to
    /// another thread, and is released when it is dropped. It does not let its thread enter the lock again, as a guard of
    /// [`mutex`](Self::mutex) does.
    ///
    /// The future runs inside the client's runtime. So a closure that you pass to it, such as that of an `update`, must not block:
    /// blocking calls of this client are refused there. Tasks that it spawns run on the client's thread.
    ///
    /// # Errors
    /// - Those of the future.
    /// - [`StillEntered`](zlock_core::ErrorKind::StillEntered) if the future acquires a lock that is lost while the thread still has
    ///   a guard of it.
    /// - [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Panics
    /// Panics if the future panics.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let workers = client.as_async().semaphore("/app/workers", 3)?;
    /// let permit = client.wait(workers.acquire(1))?;
    /// for _step in 0..3 {
    ///     permit.check()?; // an error if it is lost
    /// }
    /// client.wait(permit.release())?;
    ///
    /// let ids = client.as_async().counter("/app/ids")?;
    /// assert_eq!(client.wait(ids.add(1))?, 1);
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        self.driver.run("wait", held("wait")?.scope(future)).map_err(still_entered)
    }

    /// Waits like [`wait`](Self::wait), but for at most `time`. Returns `None` if the future has not ended by then, and drops it:
    /// its cancel safety says what that means.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    ///
    /// # Panics
    /// Panics if the future panics.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// use std::time::Duration;
    ///
    /// let workers = client.as_async().members("/app/workers")?;
    /// let member = client.wait(workers.join("worker-7", "10.0.0.7:8080"))?;
    /// let lost = client.wait_timeout(async { Ok(member.lost().await) }, Duration::from_millis(10))?;
    /// assert!(lost.is_none());
    /// client.wait(member.leave())?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_timeout<T>(
        &self,
        future: impl Future<Output = Result<T>>,
        time: Duration,
    ) -> Result<Option<T>> {
        self.wait(async { timeout(time, future).await.ok().transpose() })
    }

    /// Returns the number of nodes that still have to be removed in the background, as
    /// [`zlock::Client::pending_cleanups`](crate::Client::pending_cleanups) does. Performs no I/O.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let guard = client.mutex("/app/orders/42")?.acquire()?;
    /// drop(guard); // removed in the background
    /// println!("{} nodes are still to be removed", client.pending_cleanups());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn pending_cleanups(&self) -> usize {
        self.client.pending_cleanups()
    }

    /// Returns a snapshot of the client's health, as [`zlock::Client::health`](crate::Client::health) does. Performs no I/O,
    /// and may be called from any thread.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// let client = zlock::blocking::connect("mem://")?;
    /// assert!(client.health().is_ready());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn health(&self) -> Health {
        self.client.health()
    }

    /// Shuts the client down, as [`zlock::Client::shutdown`](crate::Client::shutdown) does: acquires no more locks, asks the
    /// holders to release theirs, and closes the client once they have, or after `grace`.
    ///
    /// # Errors
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// use std::time::Duration;
    ///
    /// let client = zlock::blocking::connect("mem://")?;
    /// let outcome = client.shutdown(Duration::from_secs(10))?;
    /// assert_eq!(outcome.still_held, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn shutdown(&self, grace: Duration) -> Result<Shutdown> {
        self.driver.run("shutdown", self.client.shutdown(grace))
    }

    /// Ends the session at the store, and with it every held lock and every wait, as
    /// [`zlock::Client::close`](crate::Client::close) does.
    ///
    /// # Errors
    /// Those of [`zlock::Client::close`](crate::Client::close), and
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// use zlock::Close;
    ///
    /// let client = zlock::blocking::connect("mem://")?;
    /// assert_eq!(client.close()?, Close::Ended);
    /// # Ok(())
    /// # }
    /// ```
    pub fn close(&self) -> Result<Close> {
        self.driver.run("close", self.client.close())
    }
}
