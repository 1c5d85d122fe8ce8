//! The guard of a write lock, which can be downgraded to a read lock.

use std::fmt;
use std::future::Future;
use std::ops::Deref;

use zlock_core::{Error, Result};

use crate::guard::{Guard, lock_guard};
use crate::release::{Release, relabel};

/// A held write lock: a [`Guard`] that can be downgraded to that of a read lock.
///
/// If it is dropped while read guards exist that were acquired in its scope, the lock becomes a read lock, as by
/// [`downgrade`](WriteGuard::downgrade).
#[derive(Debug)]
#[must_use = "a guard that is dropped releases the lock"]
pub struct WriteGuard(Guard);

impl WriteGuard {
    /// Creates the guard from a guard of a write lock.
    pub(crate) fn new(guard: Guard) -> Self {
        WriteGuard(guard)
    }

    /// Converts the write lock into a read lock, with no writer in between. Waiting writers keep waiting, and the readers
    /// directly behind the lock are let in. The fencing token stays the same.
    ///
    /// The lock counts as a read lock from the moment when the request is sent, whether or not the store has answered. If the
    /// store does not answer, this returns after the client's response timeout, or at once while the session is suspended.
    /// The client then keeps trying in the background, and other readers are let in once the store has made the change.
    ///
    /// A [`LockContext`](crate::LockContext) of the writer is not held from then on, and its `lost` reports `Released`. Take
    /// another one from the guard that this returns.
    ///
    /// # Errors
    /// [`StillEntered`](zlock_core::ErrorKind::StillEntered) while other guards of this hold exist; the loss of the lock, or the end of its longest hold, as
    /// [`LockContext::lost`](crate::LockContext::lost) returns it. The error contains the guard.
    ///
    /// # Cancel safety
    /// Dropping the future drops the guard: the lock is released, and nothing is left behind.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let lock = client.read_write_lock("/app/prices")?;
    /// let writing = lock.write().acquire().await?;
    /// // alone: change
    /// let reading = writing.downgrade().await?;
    /// // with other readers: look at what was changed; no writer has been here
    /// assert!(lock.read().is_acquired_in_this_process());
    /// reading.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn downgrade(mut self) -> Result<Guard, DowngradeError> {
        if let Err(error) = self.0.hold().downgrade() {
            return Err(DowngradeError { error, guard: self });
        }
        self.0.become_reader();
        match relabel(self.0.hold()).await {
            Ok(()) => Ok(self.0),
            Err(error) => Err(DowngradeError { error, guard: self }),
        }
    }

    /// Releases the lock and waits until the server has done so, as [`Guard::release`]. If read guards exist that were
    /// acquired in its scope, it becomes a read lock, and the result is [`Release::StillHeld`].
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves the rest to the background.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use zlock::Release;
    ///
    /// let writing = client.read_write_lock("/app/prices")?.write().acquire().await?;
    /// assert_eq!(writing.release().await?, Release::Released);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(self) -> Result<Release> {
        self.0.release().await
    }

    /// Returns another guard of the same hold, as [`Guard::reenter`].
    ///
    /// # Errors
    /// Those of [`Guard::reenter`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let writing = client.read_write_lock("/app/prices")?.write().acquire().await?;
    /// let other = writing.reenter()?;
    /// writing.release().await?; // still held
    /// other.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reenter(&self) -> Result<WriteGuard> {
        self.0.reenter().map(WriteGuard)
    }
}

lock_guard!(WriteGuard, |guard| guards: std::slice::from_ref(&guard.0), runs: guard.0, looks: guard.0, release);

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

/// Converts into a plain guard that can no longer be downgraded.
impl From<WriteGuard> for Guard {
    fn from(guard: WriteGuard) -> Self {
        guard.0
    }
}

/// The error of a downgrade that failed, with the write guard.
#[derive(Debug)]
pub struct DowngradeError<G = WriteGuard> {
    /// The reason for the failure.
    pub error: Error,
    /// The guard. Dropping it releases the lock if it is still held.
    pub guard: G,
}

impl<G> fmt::Display for DowngradeError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<G: fmt::Debug> std::error::Error for DowngradeError<G> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Drops the guard.
impl<G> From<DowngradeError<G>> for Error {
    fn from(e: DowngradeError<G>) -> Self {
        e.error
    }
}
