//! A barrier at the beginning and at the end of what its members do together.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use zlock_core::{Error, ErrorKind, Existence, LockPath, NodeId, Result, Target};

use super::member::{Meeting, Passed};
use crate::client::Client;
use crate::place::granted::Granted;
use crate::place::pauses::{Pauses, connected};

impl Client {
    /// Returns a handle to the double barrier at `path`: `n` members begin together, and leave only when all of
    /// them have finished.
    /// Performs no I/O.
    ///
    /// # Errors
    /// Those of [`barrier`](Self::barrier).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let barrier = client.double_barrier("/app/rebuild", 2)?;
    /// let member = async || {
    ///     let entered = barrier.enter().await?;
    ///     // both are here
    ///     entered.leave().await
    /// };
    /// let (one, two) = tokio::join!(member(), member());
    /// one.and(two)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn double_barrier(&self, path: impl AsRef<str>, n: u32) -> Result<DoubleBarrier> {
        Meeting::new(self, path.as_ref(), n).map(DoubleBarrier)
    }
}

/// A barrier that `n` members enter together and leave together. Created by [`Client::double_barrier`]. Cheap to clone.
///
/// They enter as they pass a [`Barrier`](crate::Barrier). A member that has entered and dies counts as one that has left when
/// its session ends. The next round does not wait for members that are slow to leave.
#[derive(Clone, Debug)]
pub struct DoubleBarrier(Meeting);

impl DoubleBarrier {
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

    /// Waits until `n` members want to enter.
    ///
    /// # Errors
    /// Those of [`Barrier::wait`](crate::Barrier::wait).
    ///
    /// # Cancel safety
    /// As for [`Barrier::wait`](crate::Barrier::wait).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Client::double_barrier`].
    pub async fn enter(&self) -> Result<Entered> {
        Box::pin(self.0.pass(None)).await.map(|passed| self.entered(passed))
    }

    /// Waits as [`enter`](Self::enter) does, for at most `time`, and then withdraws as in
    /// [`Barrier::wait_timeout`](crate::Barrier::wait_timeout).
    ///
    /// # Errors
    /// Those of [`Barrier::wait_timeout`](crate::Barrier::wait_timeout).
    ///
    /// # Cancel safety
    /// As for [`Barrier::wait`](crate::Barrier::wait).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let barrier = client.double_barrier("/app/rebuild", 2)?;
    /// let alone = barrier.enter_timeout(std::time::Duration::from_millis(50)).await;
    /// assert_eq!(alone.unwrap_err().kind(), zlock::ErrorKind::Busy);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enter_timeout(&self, time: Duration) -> Result<Entered> {
        let deadline = Instant::now().checked_add(time);
        Box::pin(self.0.pass(deadline)).await.map(|passed| self.entered(passed))
    }

    fn entered(&self, Passed { place, round }: Passed<'_>) -> Entered {
        let granted = place.granted();
        let mut others = round.members;
        others.retain(|member| *member != granted.node.id);
        Entered { meeting: self.0.clone(), round: round.number, others, node: Some(granted) }
    }
}

/// A member that has entered a [`DoubleBarrier`]. It leaves when this is dropped, without waiting for the others.
#[derive(Debug)]
#[must_use = "the member leaves at once if it is dropped"]
pub struct Entered {
    meeting: Meeting,
    round: u64,
    others: Vec<NodeId>,
    /// `None` once it is removed.
    node: Option<Granted>,
}

impl Entered {
    /// Returns the number of the round, which begins with 1.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Leaves, and waits until all members of the round have left or died.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable), [`SessionLost`](ErrorKind::SessionLost),
    /// [`NotAuthorized`](ErrorKind::NotAuthorized), [`Closed`](ErrorKind::Closed), [`ShuttingDown`](ErrorKind::ShuttingDown). This
    /// member has left or is about to, and the others may not have.
    ///
    /// # Cancel safety
    /// Dropping the future leaves without waiting for the others.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Client::double_barrier`].
    pub async fn leave(self) -> Result<()> {
        let meeting = self.meeting.clone();
        meeting.client.inner().unless_shut_down(("leave", &meeting.path), self.all_left()).await
    }

    async fn all_left(mut self) -> Result<()> {
        let client = self.meeting.client.clone();
        let (session, path) = (&client.inner().session, self.meeting.members.clone());
        let mut pauses = Pauses::default();
        loop {
            connected(session).await;
            match self.step().await {
                Ok(true) => return Ok(()),
                Ok(false) => pauses = Pauses::default(),
                Err(error) => pauses.after(error, &path, session).await?,
            }
        }
    }

    /// Leaves as [`leave`](Self::leave) does, and waits for the others for at most `time`.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) if others have not left by then, and those of `leave`.
    ///
    /// # Cancel safety
    /// As for [`leave`](Self::leave).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let entered = client.double_barrier("/app/rebuild", 1)?.enter().await?;
    /// entered.leave_timeout(std::time::Duration::from_secs(5)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn leave_timeout(self, time: Duration) -> Result<()> {
        let path = self.meeting.path.clone();
        timeout(time, self.leave()).await.unwrap_or_else(|_| {
            let message = "other members have not left yet";
            Err(Error::new(ErrorKind::Busy, "leave").with_path(path).with_message(message))
        })
    }

    /// Leaves, or waits until one of the others has. Returns `true` if all have.
    async fn step(&mut self) -> Result<bool> {
        let (backend, path) = (self.meeting.client.inner().backend(), &self.meeting.members);
        if let Some(granted) = &self.node {
            match backend.delete(path, &Target::Node(granted.node.clone()), None).await {
                // The store removes the node of a session that is over.
                Err(error) if error.kind() != ErrorKind::SessionLost => return Err(error),
                _ => self.node = None,
            }
        }
        let queue = backend.children(path, None).await?;
        // The last one, since those before it have waited longer and are likely to leave earlier.
        let Some(last) = queue.iter().rfind(|node| self.others.contains(&node.id)) else { return Ok(true) };
        if let Existence::Watching(watch) = backend.exists_with_watch(path, last).await? {
            watch.await;
        }
        Ok(false)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(granted) = self.node.take() {
            self.meeting.client.inner().give_up_in_background(&self.meeting.members, granted);
        }
    }
}
