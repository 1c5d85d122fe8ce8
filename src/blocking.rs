//! Locks for threads: the same locks, for programs without an async runtime.
//!
//! The types have the names of the async ones, and so have their methods. They exclude each other, since they are the same
//! locks: a [`Client`] of this module is an async [`Client`](crate::Client) and a thread that it lives on.
//!
//! # Threads
//! The client's heartbeats run on a thread of its own, so code that computes for long keeps its locks. A guard belongs to the
//! thread that acquired it, and cannot be sent to another one. That thread enters the lock again without waiting, as in
//! Curator; every other thread waits, also one with the same client. Helper threads may look at a guard through a reference.
//!
//! # Loss of a lock
//! A closure on a thread cannot be cancelled. So code that holds a lock for long calls [`check`](BlockingGuard::check) between
//! its steps: it returns an error from the moment when the lock may have another holder.
//!
//! # Where calls are refused
//! In three places a call that would have to wait returns [`ErrorKind::BlockingRefused`](crate::ErrorKind::BlockingRefused):
//! inside a tokio runtime (also on a thread of `spawn_blocking`), in a child process after a fork, and in the destructor of a
//! thread-local. Dropping a guard or a client never waits and is possible everywhere. In a forked
//! child it does nothing: the locks are the parent's.
//!
//! A process that ends with guards or clients still alive does not release them: its locks are free one session timeout later.
//! [`Client::shutdown`] or [`Client::close`] at the end of the program frees them at once.
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

/// Connects to the store that the URL names, as [`zlock::connect`](crate::connect()), and keeps the session on a thread of its own.
///
/// # Errors
/// Those of [`zlock::connect`](crate::connect()); [`BlockingRefused`](crate::ErrorKind::BlockingRefused) inside a tokio runtime;
/// [`Unexpected`](crate::ErrorKind::Unexpected) if the operating system refuses the thread.
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
    let url = url.to_owned();
    Client::new(async move { crate::connect(&url).await })
}

/// Connects to the store that environment variables name, as [`zlock::connect_env`](crate::connect_env()), and keeps the
/// session on a thread of its own.
///
/// # Errors
/// Those of [`zlock::connect_env`](crate::connect_env()), and those of [`connect`].
///
/// # Examples
/// ```no_run
/// # fn main() -> zlock::Result<()> {
/// // ZLOCK_URL=zk://zk1,zk2,zk3/production
/// let client = zlock::blocking::connect_env()?;
/// client.close()?;
/// # Ok(())
/// # }
/// ```
pub fn connect_env() -> crate::Result<Client> {
    Client::new(crate::connect_env())
}
