//! The blocking client.

use std::future::Future;
use std::time::Duration;

use zlock_core::{Close, Result, RuntimeThread};

use super::driver::{Driver, block_on, may_block};
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
        may_block("connect", std::process::id())?;
        let thread = RuntimeThread::start()?;
        let client = block_on(&thread, thread.run(connect))?;
        Ok(Client::of(client, thread))
    }

    /// Creates a client whose backend lives on the thread, or elsewhere.
    pub(crate) fn of(client: crate::Client, thread: RuntimeThread) -> Self {
        let driver = Driver::new(thread);
        client.inner().set_process(driver.process());
        Client { client, driver }
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Returns the async client, for async code of the same program. Both share one session.
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
        if self.driver.is_forked() { 0 } else { self.client.pending_cleanups() }
    }

    /// Returns a snapshot of the client's health, as [`zlock::Client::health`](crate::Client::health) does. Performs no I/O,
    /// and may be called from any thread. In a forked child, which has no session, the state is `Closed`.
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
        // In a forked child, a mutex that another thread held during the fork stays locked forever.
        if self.driver.is_forked() { Health::CLOSED } else { self.client.health() }
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
