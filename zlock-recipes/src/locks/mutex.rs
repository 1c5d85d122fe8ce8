//! Curator's `InterProcessMutex`.

use zlock_core::Result;

use crate::client::Client;
use crate::locks::handle::LockHandle;
use crate::locks::kind::Mutex;
use crate::place::cohort::Handoff;

/// A mutex between processes: each path of the store has one holder at a time. It is first come, first served.
///
/// The recipe is ZooKeeper's lock: a sequential node that belongs to the session, and a watch on the node right before it. So
/// a release wakes only one waiter. Nodes have the names of Curator's `InterProcessMutex`, so that processes that use either
/// library exclude each other.
///
/// Code that runs inside the held lock's [`Scope`](crate::Scope) may enter it again without waiting.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// let mutex = client.mutex("/app/orders/42")?;
/// let guard = mutex.acquire().await?;
/// // alone; hand guard.fencing_token() to the storage
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
pub type InterProcessMutex = LockHandle<Mutex>;

impl Client {
    /// Returns a handle to the mutex of this path. Performs no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPath`](zlock_core::ErrorKind::InvalidPath), with the offending part in the message.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn mutex(&self, path: impl AsRef<str>) -> Result<InterProcessMutex> {
        LockHandle::of_kind(self, path, Mutex)
    }
}

impl LockHandle<Mutex> {
    /// Returns this handle with hand-off: waiters of this client queue up behind one place in the store's queue, and
    /// hand the lock to each other without a request. Use it when many tasks of one process compete for the same lock.
    ///
    /// The client acquires one place for all users of handles with the same path and the same [`Handoff`]. Until
    /// [`Handoff::within`] has elapsed since the place was granted, each release passes the lock to the client's next
    /// waiter. Then the client gives the place up and takes a new one at the end of the store's queue. It gives the place up
    /// early if a holder that awaits [`revocation_requested`](crate::LockContext::revocation_requested) receives a request, if a
    /// holder releases the lock while the connection is interrupted, and if the place is lost.
    ///
    /// # Order
    /// Waiters of one client are served first come, first served, and so are the places in the store. A waiter of
    /// another client may wait longer than without hand-off. For each place ahead of it, that is up to `within` plus one
    /// critical section, and up to a second more if the store is slow to create the client's next place. A holder that does
    /// not release the lock, or a waiter that is not polled when its turn comes, blocks all others, as without hand-off.
    ///
    /// # Differences for holders
    /// - Holders of the same place have the same [`node`](crate::LockContext::node). Their
    ///   [fencing tokens](crate::LockContext::fencing_token) have the same number, and differ in the turn. So storage must
    ///   compare the whole token. A store transaction that checks only the node cannot distinguish two such holders.
    /// - [`release`](crate::Guard::release) returns [`Released`](crate::Release::Released) without a request if other users
    ///   of the client wait for the lock. If the place is not passed on any more, or the connection is interrupted, the
    ///   client removes the node in the background. Dropping a guard hands the lock over as well, a little later.
    /// - [`try_acquire`](Self::try_acquire) returns `None` without a request while another user of the same path and
    ///   `Handoff` has the place or waits for it. A lock that it acquires is not handed over.
    /// - [`participants`](Self::participants) has one entry for all these waiters, and two while the place changes. The
    ///   node data is that of the waiter that was first when the place was requested.
    /// - A request for revocation stays in the node: if its holder does not await it, the next holder of the same place
    ///   sees it at once.
    /// - In a [`MultiLock`](crate::MultiLock), the time of [`Handoff::within`] includes the wait for the next lock.
    /// - If an operator deletes the node, the client continues to hand the lock over until its next heartbeat notices.
    ///   Without hand-off, only the current holder is affected.
    /// - If the place that the client waits for cannot be created, or is lost during the wait, all waiters of the client
    ///   receive the error. If a holder's place is lost, its waiters stay, and the client takes a new place for them.
    /// - An outage that the session survives ends no wait behind a place of the client, even if the next place has to be
    ///   created meanwhile.
    /// - [`Client::pending_cleanups`] counts a queue of waiters as one.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use std::time::Duration;
    ///
    /// use zlock::Handoff;
    ///
    /// let handoff = Handoff::within(Duration::from_millis(10));
    /// let mutex = client.mutex("/app/orders")?.with_handoff(handoff);
    /// let (first, second) = tokio::join!(mutex.run(async { 1 }), mutex.run(async { 2 }));
    /// assert_eq!((first?, second?), (1, 2));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_handoff(mut self, handoff: Handoff) -> Self {
        self.handoff = Some(handoff);
        self
    }
}
