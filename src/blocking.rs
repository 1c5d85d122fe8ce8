//! Locks, elections and jobs for threads, for programs without an async runtime.
//!
//! Types and methods have the names of the async ones, and closures get a guard where async closures get a `LockContext`.
//! Blocking and async clients exclude each other, because the locks
//! are the same: a [`Client`] of this module wraps an async [`Client`](crate::Client) and the thread that it runs on.
//!
//! For everything else, such as semaphores, barriers, slots, members, values and counters, [`Client::as_async`] has the handles,
//! and [`Client::wait`] waits for their calls.
//!
//! # Threads
//! The client's heartbeats run on a separate thread, so code that computes for a long time keeps its locks. A guard belongs
//! to the thread that acquired it and cannot be sent to another one. That thread enters the lock again without waiting, as
//! in Curator. All other threads wait, even if they use the same client. Helper threads may use a reference to a guard.
//!
//! # Loss of a lock
//! A closure on a thread cannot be cancelled. Code that holds a lock for a long time therefore calls
//! [`check`](BlockingGuard::check) between its steps. It returns an error as soon as the lock may have another holder.
//!
//! # Where calls are refused
//! A call that may have to wait returns [`ErrorKind::BlockingRefused`](crate::ErrorKind::BlockingRefused):
//! - inside a tokio runtime, including threads of `spawn_blocking`;
//! - in the destructor of a thread-local, if what the call needs is destroyed by then. That depends on what the thread used
//!   first.
//!
//! Dropping a guard or a client never waits and is allowed everywhere. Do not use a client or its guards in a child process
//! that was forked and has not called `exec`.
//!
//! A process that exits while guards or clients are alive does not release its locks: they become free one session timeout
//! later, as when a process dies. To free them at once, call [`Client::shutdown`] or [`Client::close`] at the end of the program.
//!
//! # Examples
//! ```
//! # fn main() -> zlock::Result<()> {
//! use std::time::Duration;
//!
//! use zlock::blocking;
//!
//! let client = blocking::connect("mem://")?;
//! let mutex = client.mutex("/app/orders/42")?;
//! let guard = mutex.acquire_timeout(Duration::from_secs(10))?;
//! for step in 1..=3 {
//!     guard.check()?; // an error if the lock is lost
//!     println!("step {step} under {}", guard.fencing_token());
//! }
//! guard.release()?;
//! client.close()?;
//! # Ok(())
//! # }
//! ```

#[doc(inline)]
pub use zlock_recipes::blocking::*;

/// Connects to the store in the URL, as [`zlock::connect`](crate::connect()) does, and keeps the session on a separate
/// thread.
///
/// # Errors
/// Those of [`Connect::connect`].
///
/// # Examples
/// ```
/// # fn main() -> zlock::Result<()> {
/// # if cfg!(not(feature = "mem")) { return Ok(()); }
/// let client = zlock::blocking::connect("mem://")?;
/// client.mutex("/app/orders/42")?.acquire()?.release()?;
/// client.close()?;
/// # Ok(())
/// # }
/// ```
pub fn connect(url: &str) -> crate::Result<Client> {
    crate::Connect::to(url).blocking().connect()
}

/// A connection that is about to be made for a blocking client. Created by [`zlock::Connect::blocking`](crate::Connect::blocking).
#[derive(Clone, Debug)]
#[must_use = "nothing is done until it connects"]
pub struct Connect(crate::Connect);

impl Connect {
    pub(crate) fn new(connect: crate::Connect) -> Self {
        Connect(connect)
    }

    /// Connects to the store, as [`zlock::Connect::connect`](crate::Connect::connect) does, and keeps the session on a separate
    /// thread.
    ///
    /// # Errors
    /// - Those of [`zlock::Connect::connect`](crate::Connect::connect).
    /// - [`BlockingRefused`](crate::ErrorKind::BlockingRefused) inside a tokio runtime or in the destructor of a thread-local.
    /// - [`Unexpected`](crate::ErrorKind::Unexpected) if the operating system cannot start the thread.
    ///
    /// # Examples
    /// ```no_run
    /// # fn main() -> zlock::Result<()> {
    /// // ZLOCK_URL=zk://zk1,zk2,zk3/production
    /// let client = zlock::Connect::from_env()?.blocking().connect()?;
    /// client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect(self) -> crate::Result<Client> {
        Client::new(self.0.connect())
    }

    /// Returns a client at once, as [`zlock::Connect::connect_lazy`](crate::Connect::connect_lazy) does, and keeps the session
    /// on a separate thread.
    ///
    /// # Errors
    /// Those errors of [`connect`](Self::connect) that can be detected without a connection.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # if cfg!(not(feature = "mem")) { return Ok(()); }
    /// use std::time::Duration;
    ///
    /// let client = zlock::Connect::to("mem://").blocking().connect_lazy()?;
    /// client.mutex("/app/orders/42")?.acquire_timeout(Duration::from_secs(2))?.release()?;
    /// client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_lazy(self) -> crate::Result<Client> {
        Client::new(async move { self.0.connect_lazy() })
    }
}
