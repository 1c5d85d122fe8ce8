//! A barrier that opens for each `n` members.

use std::time::Duration;

use tokio::time::Instant;
use zlock_core::{LockPath, Result};

use super::member::Meeting;
use crate::client::Client;

impl Client {
    /// Returns a handle to the barrier at `path`, which opens whenever `n` members wait at it. Performs no I/O.
    ///
    /// The path must not be that of a lock or a value, or below one. All clients must use the same `n`.
    ///
    /// # Errors
    /// [`InvalidPath`](zlock_core::ErrorKind::InvalidPath); [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if `n`
    /// is 0 or more than 1,000, or if the client's backend has no values.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let barrier = client.barrier("/app/loaded", 2)?;
    /// let (one, two) = tokio::join!(barrier.wait(), barrier.wait());
    /// assert_eq!((one?, two?), (1, 1)); // the first round
    /// # Ok(())
    /// # }
    /// ```
    pub fn barrier(&self, path: impl AsRef<str>, n: u32) -> Result<Barrier> {
        Meeting::new(self, path.as_ref(), n).map(Barrier)
    }
}

/// A point at which `n` members of any processes wait for each other. Created by [`Client::barrier`]. Cheap to clone.
///
/// A round opens when `n` members wait, in the order in which they came, and further members wait for the next round. A member
/// that dies or times out before that is not counted. A round opens once and for exactly `n` members, whatever they do
/// afterwards.
///
/// One of the members lists all of them, and opens the round by a write. A member that dies between the two may be counted.
///
/// Each call of [`wait`](Self::wait) is a member, also if several are made in one process.
#[derive(Clone, Debug)]
pub struct Barrier(Meeting);

impl Barrier {
    /// Returns the path of the barrier.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        &self.0.path
    }

    /// Returns how many members a round has.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.0.n
    }

    /// Waits until `n` members wait, and returns the number of their round, which begins with 1.
    ///
    /// # Errors
    /// - [`PermitLimitMismatch`](zlock_core::ErrorKind::PermitLimitMismatch) if the members that wait already use another `n`.
    /// - [`SessionLost`](zlock_core::ErrorKind::SessionLost) or [`NodeDeleted`](zlock_core::ErrorKind::NodeDeleted) if the member
    ///   is no longer there, [`Closed`](zlock_core::ErrorKind::Closed), [`ShuttingDown`](zlock_core::ErrorKind::ShuttingDown).
    /// - [`Unavailable`](zlock_core::ErrorKind::Unavailable), [`NotAuthorized`](zlock_core::ErrorKind::NotAuthorized).
    ///
    /// # Cancel safety
    /// Dropping the future gives up waiting; no node is left behind. A round may count the member if another one has listed it
    /// before its node is removed.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Client::barrier`].
    pub async fn wait(&self) -> Result<u64> {
        self.pass(None).await
    }

    /// Waits as [`wait`](Self::wait) does, for at most `time`. Then the member withdraws, which takes two or three requests, however many
    /// members withdraw at once, and it is not counted. If a round has counted the member by then, its number is returned. In an
    /// outage, that may take the client's response timeout, as may an arrival that was under way. The node is then removed in the
    /// background.
    ///
    /// # Errors
    /// - [`Busy`](zlock_core::ErrorKind::Busy) if the time is over and the member was not counted, or
    ///   [`Timeout`](zlock_core::ErrorKind::Timeout) if it was not even waiting by then.
    /// - Those of `wait`. After any of these, such as `Unavailable` if the store does not answer, the member may have been counted.
    ///
    /// # Cancel safety
    /// As for [`wait`](Self::wait).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use std::time::Duration;
    /// use zlock::ErrorKind;
    ///
    /// let barrier = client.barrier("/app/loaded", 2)?;
    /// let alone = barrier.wait_timeout(Duration::from_millis(50)).await;
    /// assert_eq!(alone.unwrap_err().kind(), ErrorKind::Busy);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_timeout(&self, time: Duration) -> Result<u64> {
        // A deadline that the clock cannot represent means no time limit.
        self.pass(Instant::now().checked_add(time)).await
    }

    async fn pass(&self, deadline: Option<Instant>) -> Result<u64> {
        // The node is removed in the background. A round never counts it again.
        Box::pin(self.0.pass(deadline)).await.map(|passed| passed.round.number)
    }
}
