//! Guards of held locks.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use zlock_core::{Error, FencingToken, Label, LockPath, NodeName, Result};

use crate::hold::{Hold, Remaining};
use crate::hold_record::{Entry, HoldRecord};
use crate::release::{Release, relabel, release};
use crate::scope::Scope;

/// A held lock. The lock is released when the last guard of the hold is dropped.
///
/// # Safety of the lock
/// [`is_held`](Guard::is_held) and [`lost`](Guard::lost) report every loss before the store gives the lock to another
/// client. That relies on clocks that run at about the same speed, a machine that does not sleep, and a store that keeps
/// the session for its whole timeout. The exception is an operator who deletes the node or ends the session at the server.
/// Then two clients believe that they hold the lock, until this one learns of it by a heartbeat or when it reconnects. On
/// ZooKeeper, every third heartbeat looks for the session's nodes, and a client with more than 1,000 of them looks for each
/// one less often. No lock service can prevent that. Storage that checks the [`fencing_token`](Guard::fencing_token) is
/// protected even then.
///
/// # Drop
/// Dropping the last guard does not release at once: it hands the node to the backend's task, which removes it on the
/// runtime that the backend lives on. The drop does not block, and works outside a runtime and while unwinding. Use
/// [`release`](Guard::release) to know when it is done.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// use zlock::{InterProcessMutex, Release};
///
/// let guard = InterProcessMutex::new(&client, "/app/orders/42")?.acquire().await?;
/// tokio::select! {
///     biased;
///     lost = guard.lost() => return Err(lost),
///     () = async { /* work; look at `guard.is_held()` before each step that matters */ } => {}
/// }
/// assert_eq!(guard.release().await?, Release::Released);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a guard that is dropped releases the lock"]
pub struct Guard {
    hold: Arc<Hold>,
    entry: Entry,
    /// `true` once `release` has taken over the entry.
    left: bool,
}

impl Guard {
    /// Creates the guard of a new entry.
    pub(crate) fn new(hold: Arc<Hold>, entry: Entry) -> Self {
        Guard { hold, entry, left: false }
    }

    /// Creates the guard of another entry in an existing hold. Returns an error if the hold is lost.
    pub(crate) fn reentered(hold: Arc<Hold>, entry: Entry) -> Result<Self> {
        let good = hold.check("reenter");
        let guard = Guard::new(hold, entry);
        good.map(|()| guard)
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// Records that the writer's guard has become a reader's.
    pub(crate) fn is_reader_now(&mut self) {
        self.entry = Entry::Reader;
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
        self.hold.path()
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
        self.hold.fencing_token()
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
        self.hold.node()
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
        match self.hold.label() {
            Label::Permits { weight, .. } => Some(weight),
            _ => None,
        }
    }

    /// Returns `true` if the lock is certainly still held: its session is live, the session's deadline has not passed, and
    /// the node is not known to be deleted. Performs no I/O.
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
        self.hold.is_held(self.entry)
    }

    /// Returns an error if the lock is lost. Call it between the steps of code that does not await anything. Performs
    /// no I/O.
    ///
    /// # Errors
    /// The loss of the lock, as [`lost`](Guard::lost) returns it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// for _step in 0..3 {
    ///     guard.check()?;
    ///     // a short step
    /// }
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self) -> Result<()> {
        self.hold.check("lock")
    }

    /// Waits until the lock is lost, and returns why: [`SessionLost`](zlock_core::ErrorKind::SessionLost),
    /// [`NodeDeleted`](zlock_core::ErrorKind::NodeDeleted), [`NotAuthorized`](zlock_core::ErrorKind::NotAuthorized) or
    /// [`Closed`](zlock_core::ErrorKind::Closed). [`Error::is_lock_lost`] is `true` for all of them.
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
        self.hold.lost(self.entry).await
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
    /// The loss of the lock, as [`lost`](Guard::lost) returns it; [`NotAuthorized`](zlock_core::ErrorKind::NotAuthorized) or
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
        crate::revocation::requested(&self.hold, self.lost()).await
    }

    /// Returns a view of the lock that cannot release it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// let context = guard.context(); // for code that must not release the lock
    /// assert!(context.is_held());
    /// guard.release().await?;
    /// assert!(!context.is_held());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn context(&self) -> LockContext {
        LockContext {
            record: self.hold.record().clone(),
            hold: Arc::downgrade(&self.hold),
            entry: self.entry,
        }
    }

    /// Returns another guard of the same hold. The lock is released when all of them are dropped or released. Performs no
    /// I/O.
    ///
    /// # Errors
    /// The loss of the lock, as [`lost`](Guard::lost) returns it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use zlock::Release;
    ///
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// let other = guard.reenter()?;
    /// assert_eq!(guard.release().await?, Release::StillHeld);
    /// assert_eq!(other.release().await?, Release::Released);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reenter(&self) -> Result<Guard> {
        self.hold.enter_again(self.entry);
        Guard::reentered(self.hold.clone(), self.entry)
    }

    /// Runs a future inside the lock's [scope](Guard::scope), and cancels it at its current await point if the lock is
    /// lost. The lock stays held.
    ///
    /// # Errors
    /// The loss of the lock, as [`lost`](Guard::lost) reports it. A future that blocks its thread past the loss runs to
    /// completion. The error is returned nevertheless, because the lock may have had another holder during its last steps.
    ///
    /// # Cancel safety
    /// As cancel safe as the future. Dropping it does not release the lock.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    /// let number = guard.run(async { 42 }).await?;
    /// guard.release().await?;
    /// # assert_eq!(number, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output> {
        self.run_boxed(Box::pin(future)).await
    }

    /// Does the same for a future that is on the heap.
    ///
    /// Each async function that passes a user's future on stores it once more. So it is boxed where it comes in: otherwise each
    /// nested lock would multiply the size.
    pub(crate) async fn run_boxed<F: Future>(&self, future: Pin<Box<F>>) -> Result<F::Output> {
        run_until_lost(self.scope_boxed(future), || self.lost(), || self.is_held()).await
    }

    /// Runs a future inside the lock's scope: acquiring this lock there enters it again instead of waiting.
    /// See [`Scope`].
    ///
    /// # Cancel safety
    /// As cancel safe as the future. Dropping it does not release the lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let mutex = client.mutex("/app/orders/42")?;
    /// let guard = mutex.acquire().await?;
    /// guard
    ///     .scope(async {
    ///         let inner = mutex.acquire().await?; // at once, without a request
    ///         inner.release().await
    ///     })
    ///     .await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        self.scope_boxed(Box::pin(future)).await
    }

    /// Does the same for a future that is on the heap.
    pub(crate) async fn scope_boxed<F: Future>(&self, future: Pin<Box<F>>) -> F::Output {
        // Read when the future runs, not when it is created: in `x.scope(y.scope(f))`, the inner future is created first.
        Scope::current().and(&self.hold).scope(future).await
    }

    /// Releases the lock and waits until the server has done so. With a [`Handoff`](crate::Handoff), a lock that other
    /// users of the client wait for is passed on instead, without a request.
    ///
    /// Returns [`Release::Pending`] at once if the connection is interrupted, and after the client's operation timeout if the
    /// store does not answer. The release then continues in the background.
    ///
    /// # Errors
    /// [`NotAuthorized`](zlock_core::ErrorKind::NotAuthorized) or [`Unexpected`](zlock_core::ErrorKind::Unexpected) if the
    /// server refused to remove the node. The client keeps trying in the background.
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
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// match guard.release().await? {
    ///     Release::Released => {} // the lock is free
    ///     other => eprintln!("not free yet: {other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(mut self) -> Result<Release> {
        self.left = true;
        let hold = self.hold.clone();
        let _releasing = hold.client().shutdown.release();
        match self.hold.leave(self.entry) {
            Remaining::Nobody => return release(&self.hold).await,
            // The result is dropped, because the remaining guards report a lost lock.
            Remaining::Readers => drop(relabel(&self.hold).await),
            Remaining::Others => {}
        }
        Ok(Release::StillHeld)
    }

    /// Releases the lock for a caller that does not need the outcome.
    pub(crate) async fn release_or_log(self) {
        let path = self.path().clone();
        match self.release().await {
            Ok(Release::Pending) => tracing::warn!(%path, "the release continues in the background"),
            Ok(release) => tracing::trace!(%path, ?release, "released"),
            Err(error) => tracing::warn!(%path, %error, "the release continues in the background"),
        }
    }
}

/// Runs the future until it completes or the lock is lost.
pub(crate) async fn run_until_lost<T, L: Future<Output = Error>>(
    future: impl Future<Output = T>,
    lost: impl Fn() -> L,
    is_held: impl Fn() -> bool,
) -> Result<T> {
    let output = tokio::select! {
        biased;
        loss = lost() => return Err(loss),
        output = future => output,
    };
    // A future that blocks its thread past the deadline is completed by the same poll.
    if is_held() { Ok(output) } else { Err(lost().await) }
}

/// A guard of any lock, for code that is generic over locks. Each method is equivalent to that of [`Guard`] or
/// [`MultiGuard`](crate::MultiGuard). This trait is sealed.
pub trait LockGuard: sealed::Sealed + Debug + Send + Sync + Sized + 'static {
    /// Returns the guards that this one consists of: itself, or those of a [`MultiGuard`](crate::MultiGuard) in the
    /// order of their paths. Each has its own fencing token.
    fn guards(&self) -> &[Guard];

    /// See [`Guard::is_held`].
    fn is_held(&self) -> bool;

    /// See [`Guard::check`].
    ///
    /// # Errors
    /// Those of [`Guard::check`].
    fn check(&self) -> Result<()> {
        self.guards().iter().try_for_each(Guard::check)
    }

    /// See [`Guard::lost`].
    fn lost(&self) -> impl Future<Output = Error> + Send;

    /// See [`Guard::revocation_requested`].
    fn revocation_requested(&self) -> impl Future<Output = Result<()>> + Send;

    /// See [`Guard::reenter`].
    ///
    /// # Errors
    /// Those of [`Guard::reenter`].
    fn reenter(&self) -> Result<Self>;

    /// See [`Guard::run`].
    fn run<F: Future + Send>(&self, future: F) -> impl Future<Output = Result<F::Output>> + Send
    where
        F::Output: Send;

    /// See [`Guard::scope`].
    fn scope<F: Future + Send>(&self, future: F) -> impl Future<Output = F::Output> + Send;

    /// See [`Guard::release`].
    fn release(self) -> impl Future<Output = Result<Release>> + Send;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// Implements [`LockGuard`] with the methods of the same names, either the guard's own or those of the type that it derefs
/// to.
macro_rules! lock_guard {
    ($guard:ty: $deref:ty, |$this:ident| $guards:expr) => {
        impl crate::guard::sealed::Sealed for $guard {}

        impl crate::guard::LockGuard for $guard {
            fn guards(&self) -> &[crate::guard::Guard] {
                let $this = self;
                $guards
            }

            fn is_held(&self) -> bool {
                <$deref>::is_held(self)
            }

            fn lost(&self) -> impl Future<Output = Error> + Send {
                <$deref>::lost(self)
            }

            fn revocation_requested(&self) -> impl Future<Output = Result<()>> + Send {
                <$deref>::revocation_requested(self)
            }

            fn reenter(&self) -> Result<Self> {
                <$guard>::reenter(self)
            }

            fn run<F: Future + Send>(&self, future: F) -> impl Future<Output = Result<F::Output>> + Send
            where
                F::Output: Send,
            {
                <$deref>::run(self, future)
            }

            fn scope<F: Future + Send>(&self, future: F) -> impl Future<Output = F::Output> + Send {
                <$deref>::scope(self, future)
            }

            fn release(self) -> impl Future<Output = Result<Release>> + Send {
                <$guard>::release(self)
            }
        }
    };
}

pub(crate) use lock_guard;

lock_guard!(Guard: Guard, |guard| std::slice::from_ref(guard));

impl Drop for Guard {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        if self.hold.client().is_forked() {
            std::mem::forget(self.hold.clone());
            return;
        }
        match self.hold.leave(self.entry) {
            Remaining::Nobody => self.hold.remove_in_background(),
            Remaining::Readers => self.hold.relabel_in_background(),
            Remaining::Others => {}
        }
    }
}

/// A view of a held lock that cannot release it. [`LockTemplate::execute`](crate::LockTemplate::execute) passes one to
/// its closure. Cheap to clone. It may outlive the lock, and does not keep the client's session alive.
#[derive(Clone, Debug)]
pub struct LockContext {
    record: Arc<HoldRecord>,
    /// Weak, so that a context that outlives its lock does not keep the client alive.
    hold: Weak<Hold>,
    entry: Entry,
}

impl LockContext {
    /// Returns the path of the lock.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.record.path()
    }

    /// See [`Guard::fencing_token`].
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.record.fencing_token()
    }

    /// See [`Guard::node`].
    #[must_use]
    pub fn node(&self) -> NodeName {
        self.record.node()
    }

    /// See [`Guard::is_held`]. Returns `false` once the lock is released. The context of a writer also returns `false` after
    /// its [downgrade](crate::WriteGuard::downgrade), although the lock is then held for reading.
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
    ///     .try_execute("report", |lock| async move {
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
        if self.is_held() { Ok(()) } else { Err(self.record.loss()) }
    }

    /// See [`Guard::revocation_requested`]. Also ends when the lock is released, with an error.
    ///
    /// # Errors
    /// Those of [`Guard::revocation_requested`], and [`Released`](zlock_core::ErrorKind::Released) after the release while
    /// the session lives.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    pub async fn revocation_requested(&self) -> Result<()> {
        match self.hold.upgrade() {
            Some(hold) => crate::revocation::requested(&hold, self.lost()).await,
            None => Err(self.lost().await),
        }
    }

    /// See [`Guard::lost`]. Also completes when the lock is released, with [`Released`](zlock_core::ErrorKind::Released), or
    /// with the end of the session if that is over by then.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    pub async fn lost(&self) -> Error {
        self.record.lost(self.entry).await
    }
}
