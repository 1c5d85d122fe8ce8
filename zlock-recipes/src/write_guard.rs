//! The guard of a write lock, which may become a reader's.

use std::fmt;
use std::future::Future;
use std::ops::Deref;

use zlock_core::{Error, Result};

use crate::guard::{Guard, lock_guard};
use crate::release::{Release, relabel};

/// A held write lock. It is a [`Guard`] that can become a reader's.
///
/// When it goes while read guards that were acquired in its scope live on, the lock becomes a read lock, as
/// by [`downgrade`](WriteGuard::downgrade).
#[derive(Debug)]
#[must_use = "a guard that is dropped releases the lock"]
pub struct WriteGuard(Guard);

impl WriteGuard {
    /// For a guard of a write lock.
    pub(crate) fn new(guard: Guard) -> Self {
        WriteGuard(guard)
    }

    /// Becomes a reader, with no writer in between: a writer that waits goes on waiting, readers behind the
    /// lock come in. The fencing token stays.
    ///
    /// The lock counts as read from the moment when the store is told, whether or not it has answered. If it
    /// does not answer (at once while the session is suspended, else after the client's operation timeout) the
    /// client goes on telling it in the background; other readers come in when it knows.
    ///
    /// # Errors
    /// `StillEntered` while other guards of this hold are alive. `SessionLost`, `NodeDeleted` or `Closed` if
    /// the lock is lost. The guard comes back with the error.
    ///
    /// # Cancel safety
    /// Dropping the future drops the guard: the lock is released, and nothing is left behind.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use zlock::ReadWriteLock;
    ///
    /// let lock = ReadWriteLock::new(&client, "/app/prices")?;
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
        self.0.is_reader_now();
        match relabel(self.0.hold()).await {
            Ok(()) => Ok(self.0),
            Err(error) => Err(DowngradeError { error, guard: self }),
        }
    }

    /// Another guard of the same hold, as [`Guard::reenter`].
    ///
    /// # Errors
    /// As [`Guard::reenter`].
    pub fn reenter(&self) -> Result<WriteGuard> {
        self.0.reenter().map(WriteGuard)
    }

    /// Releases the lock and waits until the server has done so, as [`Guard::release`]. While read guards from
    /// inside its scope live on it becomes a read lock, and the result is [`Release::StillHeld`].
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    /// Dropping the future hands the rest to the background.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    pub async fn release(self) -> Result<Release> {
        self.0.release().await
    }
}

lock_guard!(WriteGuard: Guard, |guard| std::slice::from_ref(&**guard));

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

/// A downgrade that did not come about, and the write guard.
#[derive(Debug)]
pub struct DowngradeError {
    /// Why.
    pub error: Error,
    /// The guard. Dropping it releases what it still holds.
    pub guard: WriteGuard,
}

impl fmt::Display for DowngradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for DowngradeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Drops the guard.
impl From<DowngradeError> for Error {
    fn from(e: DowngradeError) -> Self {
        e.error
    }
}
