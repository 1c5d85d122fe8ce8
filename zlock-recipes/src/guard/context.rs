//! A view of a held lock.

use std::sync::{Arc, Weak};

use zlock_core::{Error, FencingToken, Label, LockPath, NodeName, Result};

use crate::client::hold_record::{Entry, HoldRecord};
use crate::hold::Hold;

/// A view of a held lock that cannot release it. [`LockTemplate::execute`](crate::LockTemplate::execute) passes one to
/// its closure, and every [`Guard`](crate::Guard) derefs to one. Cheap to clone. A clone may outlive the lock, and does not
/// keep the client's session alive.
#[derive(Clone, Debug)]
pub struct LockContext {
    record: Arc<HoldRecord>,
    /// Weak, so that a context that outlives its lock does not keep the client alive.
    hold: Weak<Hold>,
    entry: Entry,
}

impl LockContext {
    pub(crate) fn new(hold: &Arc<Hold>, entry: Entry) -> Self {
        LockContext { record: hold.record().clone(), hold: Arc::downgrade(hold), entry }
    }

    /// Returns the hold while anything keeps it.
    pub(crate) fn hold(&self) -> Option<Arc<Hold>> {
        self.hold.upgrade()
    }

    pub(crate) fn entry(&self) -> Entry {
        self.entry
    }

    /// Returns `true` if the lock is certainly still held: its session is live, the session's deadline has not passed, and
    /// the node is not known to be deleted. Returns `false` once its [`max_hold`](crate::LockHandle::max_hold) is over. Performs no I/O.
    ///
    /// A context returns `false` once the lock is released. The context of a writer also returns `false` after its
    /// [downgrade](crate::WriteGuard::downgrade), although the lock is then held for reading.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// if guard.is_held() {
    ///     // a short step
    /// }
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.record.is_held(self.entry)
    }

    /// Returns an error unless the lock is held. Call it between the steps of code that does not await anything. Performs
    /// no I/O.
    ///
    /// # Errors
    /// What [`lost`](LockContext::lost) returns: the loss of the lock, or [`Released`](zlock_core::ErrorKind::Released) after
    /// its release while the session lives. [`Error::is_lock_lost`] is `false` for `Released`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let template = client.lock_template("/app/locks")?;
    /// let steps: zlock::Result<u32> = template
    ///     .execute_fallible("report", |lock| async move {
    ///         for _step in 0..3 {
    ///             lock.check()?;
    ///             // a short step
    ///         }
    ///         Ok(3)
    ///     })
    ///     .await;
    /// assert_eq!(steps?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self) -> Result<()> {
        if self.is_held() { Ok(()) } else { Err(self.record.loss("lock")) }
    }

    /// Waits until the lock is lost, and returns why: [`SessionLost`](zlock_core::ErrorKind::SessionLost),
    /// [`NodeDeleted`](zlock_core::ErrorKind::NodeDeleted), [`NotAuthorized`](zlock_core::ErrorKind::NotAuthorized) or
    /// [`Closed`](zlock_core::ErrorKind::Closed). [`Error::is_lock_lost`] is `true` for all of them.
    ///
    /// Also completes when the [`max_hold`](crate::LockHandle::max_hold) is over, with
    /// [`HeldTooLong`](zlock_core::ErrorKind::HeldTooLong). `is_lock_lost` is `false` for it.
    ///
    /// A context also completes when the lock is released, with [`Released`](zlock_core::ErrorKind::Released), or with the end
    /// of the session if that is over by then. `is_lock_lost` is `false` for `Released`.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// use zlock::ErrorKind;
    /// use zlock::mem::MemServer;
    ///
    /// let server = MemServer::new();
    /// let backend = server.connect();
    /// let link = backend.link();
    /// let guard = zlock::Client::new(backend).mutex("/app/orders/42")?.acquire().await?;
    /// link.expire(); // the server ends the session
    /// assert_eq!(guard.lost().await.kind(), ErrorKind::SessionLost);
    /// assert!(!guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost(&self) -> Error {
        self.record.lost(self.entry).await
    }

    /// Returns the token to pass to the storage that the lock protects. All guards of one hold have the same token.
    ///
    /// The token is larger than that of every earlier holder that this one excludes. For a mutex or a write lock, that is
    /// every earlier holder; for a read lock, every earlier writer. Readers beside each other and holders of permits have
    /// tokens in the order of their places in the queue, so a larger token of one does not mean that the others have lost
    /// the lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// let fence = guard.fencing_token().to_be_bytes(); // for a column of 12 bytes
    /// // UPDATE orders SET status = 'shipped', fence = :fence WHERE id = 42 AND fence <= :fence
    /// # let _ = fence;
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.record.fencing_token()
    }

    /// Completes when another client requests revocation, immediately if one already has: with
    /// [`request_revocation`](crate::LockHandle::request_revocation) or Curator's `Revoker`. Also completes when this client
    /// [shuts down](crate::Client::shutdown). The holder decides how to respond. A holder that never calls this sends no
    /// request and does not learn of any.
    ///
    /// Reads the node's data with a watch, which costs one request for the call and one for each change. Outages that
    /// the lock survives do not end the wait.
    ///
    /// # Errors
    /// What [`lost`](Self::lost) returns; [`NotAuthorized`](zlock_core::ErrorKind::NotAuthorized) or
    /// [`Unexpected`](zlock_core::ErrorKind::Unexpected) if the node may not be read.
    ///
    /// # Cancel safety
    /// Safe: dropping the future removes the watch.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// # let mutex = client.mutex("/app/orders/42")?;
    /// let guard = mutex.acquire().await?;
    /// assert_eq!(mutex.request_revocation().await?, 1); // elsewhere
    /// tokio::select! {
    ///     biased;
    ///     asked = guard.revocation_requested() => asked?, // clean up, then release
    ///     () = async { /* work */ std::future::pending().await } => {}
    /// }
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn revocation_requested(&self) -> Result<()> {
        match self.hold.upgrade() {
            Some(hold) => crate::release::revocation::requested(&hold, self.lost()).await,
            None => Err(self.lost().await),
        }
    }

    /// Returns the path of the lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// assert_eq!(guard.path().as_str(), "/app/orders/42");
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.record.path()
    }

    /// Returns `true` if the lock was acquired with [hand-off](crate::InterProcessMutex::with_handoff): later holders of this
    /// client may have the same node. Then the node does not show which of them holds the lock. Only the
    /// [`fencing_token`](Self::fencing_token) does.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// assert!(!guard.shares_node());
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn shares_node(&self) -> bool {
        self.hold.upgrade().is_some_and(|hold| hold.shares_node())
    }

    /// Returns `true` if this is a writer's view of a read/write lock. It stays one after a
    /// [downgrade](crate::WriteGuard::downgrade), which gives the reader a view of its own.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.read_write_lock("/app/prices")?.write().acquire().await?;
    /// assert!(guard.is_writer());
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_writer(&self) -> bool {
        self.entry == Entry::Owner && matches!(self.record.label(), Label::Write | Label::Read)
    }

    /// Returns the number of a semaphore's permits that this hold has taken, and `None` for other locks.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.semaphore("/app/workers", 10)?.acquire(3).await?;
    /// assert_eq!(guard.permits(), Some(3));
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn permits(&self) -> Option<u32> {
        match self.record.label() {
            Label::Permits { weight, .. } => Some(weight),
            _ => None,
        }
    }

    /// Returns the name of the lock's node under its path, as the store last reported it.
    ///
    /// The node exists as long as the lock is held. So a write into the store itself can check the node in the same
    /// transaction. The store then refuses the write of a holder that has not noticed the loss of the lock. The options
    /// of each backend return the node's full name: `ZkOptions::node_path`, `EtcdOptions::node_key`.
    ///
    /// On etcd, a later node of the same session may have the same name: the transaction must compare the key's create
    /// revision with the number of the [`fencing_token`](Self::fencing_token). Checking only that the key exists is not
    /// enough.
    ///
    /// With hand-off, later holders of this client have the same node ([`shares_node`](Self::shares_node)): no transaction can tell
    /// them apart by it.
    ///
    /// On ZooKeeper the name changes when a write lock becomes a read lock, and when a semaphore notifies the next
    /// waiter of its grant. A transaction that is in flight at that moment is refused although the lock is held.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// println!("the lock is the node {} of {}", guard.node(), guard.path());
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn node(&self) -> NodeName {
        self.record.node()
    }
}
