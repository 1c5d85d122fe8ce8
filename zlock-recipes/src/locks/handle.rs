//! Lock handles: a path, and the kind of lock to acquire on it.
//!
//! All lock types are aliases of [`LockHandle`], so each method exists once.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument, Span};
use zlock_core::observer::LockLabels;
use zlock_core::{Error, ErrorKind, LockPath, Result};

use crate::acquire::handoff;
use crate::acquire::{Request, acquire, acquire_within, try_acquire};
use crate::client::{Client, check_node_data};
use crate::guard::Guard;
use crate::guard::scope::Scope;
use crate::hold::limit;
use crate::locks::kind::Kind;
use crate::locks::participants::{Participant, participants};
use crate::place::cohort::Handoff;
use crate::report::{self, Wait};
use crate::value::Counter;

/// An acquisition under way. Boxed, because users' futures contain it, and futures that nest locks contain several.
pub(crate) type Acquiring<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Returns the acquisition that [`LockHandle::enter`] waits for, with a time limit.
pub(crate) fn within<'a>(
    time: Duration,
) -> impl FnOnce(Request<'a>, Option<Handoff>) -> Acquiring<'a, Guard> {
    move |request, handoff| match handoff {
        None => Box::pin(acquire_within(request, time)),
        Some(handoff) => Box::pin(handoff::acquire_within(request, handoff, time)),
    }
}

/// A lock of one kind on one path. [`InterProcessMutex`](crate::InterProcessMutex), [`ReadLock`](crate::ReadLock),
/// [`WriteLock`](crate::WriteLock) and [`PermitRequest`](crate::PermitRequest) are aliases of it.
///
/// Cheap to clone. Handles of the same kind, path and client are the same lock.
#[derive(Clone, Debug)]
pub struct LockHandle<K> {
    client: Client,
    path: LockPath,
    node_data: Arc<[u8]>,
    /// `None` for every kind but the mutex.
    pub(super) handoff: Option<Handoff>,
    /// The lock's name in measurements.
    pub(super) metric_name: Option<Arc<str>>,
    /// The maximum of permits, if it is a value that may change.
    pub(super) shared_max: Option<Counter>,
    pub(super) max_hold: Option<Duration>,
    pub(super) kind: K,
}

impl<K: Kind> LockHandle<K> {
    pub(crate) fn of_kind(client: &Client, path: impl AsRef<str>, kind: K) -> Result<Self> {
        let path = LockPath::new(path)?;
        let node_data = client.inner().node_data.clone();
        Ok(LockHandle {
            client: client.clone(),
            path,
            node_data,
            handoff: None,
            metric_name: None,
            shared_max: None,
            max_hold: None,
            kind,
        })
    }

    /// Returns a handle to the same path with another kind of lock.
    pub(crate) fn with_kind<J>(&self, kind: J) -> LockHandle<J> {
        LockHandle {
            client: self.client.clone(),
            path: self.path.clone(),
            node_data: self.node_data.clone(),
            handoff: self.handoff,
            metric_name: self.metric_name.clone(),
            shared_max: self.shared_max.clone(),
            max_hold: self.max_hold,
            kind,
        }
    }

    /// Returns `true` if both are on the same path of the same client's session.
    pub(crate) fn is_same_place<J>(&self, other: &LockHandle<J>) -> bool {
        self.path == other.path && self.client.inner().session.is_same(&other.client.inner().session)
    }

    /// Acquires the lock, waiting for its turn without a time limit. Inside the lock's own [`Scope`](crate::Scope),
    /// enters it again at once.
    ///
    /// Only the wait for the turn has no limit. While no server answers, the acquisition cannot get its place in the queue, and
    /// fails with `Unavailable` after the backend's operation timeout, 15 seconds by default. If it begins while the connection
    /// is interrupted, it first waits for the connection, for up to the client's response timeout, also 15 seconds by default.
    ///
    /// Once it has its place, it keeps it as long as the session lives: an outage that the session survives does not end the
    /// wait.
    ///
    /// # Errors
    /// - [`SessionLost`](zlock_core::ErrorKind::SessionLost), [`NodeDeleted`](zlock_core::ErrorKind::NodeDeleted) or
    ///   [`Closed`](zlock_core::ErrorKind::Closed) if the place in the queue was lost, or if the lock to be entered again is
    ///   lost.
    /// - [`Unavailable`](zlock_core::ErrorKind::Unavailable) if no server answered within the backend's operation
    ///   timeout, and the acquisition had no place in the queue yet.
    /// - [`UpgradeRefused`](zlock_core::ErrorKind::UpgradeRefused) for a write lock inside the scope of a read lock of
    ///   the same path, even of one that was a write lock. No request is sent.
    /// - [`PermitLimitMismatch`](zlock_core::ErrorKind::PermitLimitMismatch) for permits if the head of the queue uses
    ///   another maximum.
    /// - [`ShuttingDown`](zlock_core::ErrorKind::ShuttingDown) if [`Client::shutdown`] was called, even during the wait.
    /// - [`NotAuthorized`](zlock_core::ErrorKind::NotAuthorized), [`Unexpected`](zlock_core::ErrorKind::Unexpected).
    ///
    /// # Cancel safety
    /// Dropping the future at any point gives up the place in the queue; no node is left behind.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let mutex = client.mutex("/app/orders/42")?;
    /// let guard = mutex.acquire().await?;
    /// // alone here, on all machines
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self) -> Result<K::Guard> {
        let acquisition = |request, handoff| -> Acquiring<'_, Guard> {
            match handoff {
                None => Box::pin(acquire(request)),
                Some(handoff) => Box::pin(handoff::acquire(request, handoff)),
            }
        };
        self.enter(acquisition, |guard| Some(guard)).await.map(K::guard)
    }

    /// Acquires the lock, waiting for at most `time`, which covers connecting, retries and the wait for its turn.
    /// A zero duration makes a single attempt, as [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// - [`Busy`](zlock_core::ErrorKind::Busy) if `time` passed while the acquisition waited for its turn in the queue;
    ///   [`Timeout`](zlock_core::ErrorKind::Timeout) if it passed before the acquisition had its place there. The cause is
    ///   the store's last failure, if it was still failing.
    /// - Those of [`acquire`](Self::acquire): `Unavailable` if no server answers and the backend's operation timeout
    ///   is shorter than `time`.
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
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
    ///
    /// use zlock::ErrorKind;
    ///
    /// let mutex = client.mutex("/app/orders/42")?;
    /// match mutex.acquire_timeout(Duration::from_secs(2)).await {
    ///     Ok(guard) => drop(guard),
    ///     Err(error) if error.kind() == ErrorKind::Busy => eprintln!("another client works on it"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_timeout(&self, time: Duration) -> Result<K::Guard> {
        self.enter(within(time), |guard| Some(guard)).await.map(K::guard)
    }

    /// Acquires the lock if it is free, without waiting for a turn. Returns `None` if another client holds it or is ahead in
    /// the queue. Writes nothing if a listing already shows that.
    ///
    /// # Errors
    /// As [`acquire_timeout`](Self::acquire_timeout) with the client's response timeout, 15 seconds by default. While no
    /// server answers, it therefore fails with `Timeout`, or with `Unavailable` if the backend's operation timeout is
    /// shorter.
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let mutex = client.mutex("/app/orders/42")?;
    /// let guard = mutex.acquire().await?;
    /// assert!(mutex.try_acquire().await?.is_none()); // not inside the guard's scope
    /// guard.release().await?;
    /// assert!(mutex.try_acquire().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<K::Guard>> {
        let acquisition = |request, handoff| -> Acquiring<'_, Option<Guard>> {
            match handoff {
                None => Box::pin(try_acquire(request)),
                Some(handoff) => Box::pin(handoff::try_acquire(request, handoff)),
            }
        };
        Ok(self.enter(acquisition, Option::as_ref).await?.map(K::guard))
    }

    /// Acquires the lock, runs the future inside the lock's scope, and releases the lock. If the lock is lost, the
    /// future is cancelled at its current await point, as by [`Guard::run`].
    ///
    /// # Errors
    /// Those of [`acquire`](Self::acquire) and of [`Guard::run`]. A release that fails is logged and continues in the
    /// background.
    ///
    /// # Cancel safety
    /// Dropping the future drops `future` and releases the lock in the background.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let mut number = 41;
    /// client.mutex("/app/orders")?.run(async { number += 1 }).await?;
    /// assert_eq!(number, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output> {
        let future = Box::pin(future);
        let guard: Guard = self.acquire().await?.into();
        let output = guard.run_boxed(future).await;
        guard.release_or_log().await;
        output
    }

    /// Returns `true` if this client holds the lock, anywhere in the process. Performs no I/O.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let mutex = client.mutex("/app/orders/42")?;
    /// let guard = mutex.acquire().await?;
    /// assert!(client.mutex("/app/orders/42")?.is_acquired_in_this_process());
    /// guard.release().await?;
    /// assert!(!mutex.is_acquired_in_this_process());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.client.inner().is_held(&self.path, self.kind.label())
    }

    /// Returns the clients that hold the lock or wait for it, in the order of the queue. Sends one request for the
    /// queue, and one for the data of each node. The list is empty for a path that was never used.
    ///
    /// # Errors
    /// [`Unavailable`](zlock_core::ErrorKind::Unavailable), [`NotAuthorized`](zlock_core::ErrorKind::NotAuthorized),
    /// [`Closed`](zlock_core::ErrorKind::Closed), [`Unexpected`](zlock_core::ErrorKind::Unexpected).
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
    /// # let client = zlock::connect("mem://").await?;
    /// let mutex = client.mutex("/app/orders/42")?;
    /// let guard = mutex.acquire().await?;
    /// for participant in mutex.participants().await? {
    ///     println!("{}: {}", participant.name, if participant.is_holder { "holds" } else { "waits" });
    /// }
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        participants(self.client.inner(), &self.path).await
    }

    /// Asks the current holders to release the lock, and returns how many were asked: 0 if nobody holds it. Each holder
    /// decides whether to do so. A holder that uses zlock learns of the request through
    /// [`LockContext::revocation_requested`](crate::LockContext::revocation_requested), and one that uses Curator if its
    /// lock was made revocable. No holder loses the lock by this call.
    ///
    /// # Errors
    /// Those of [`participants`](Self::participants). If some of several holders could not be asked, the first error is
    /// returned after all were tried.
    ///
    /// # Cancel safety
    /// Safe; a request in flight may still reach a holder.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let mutex = client.mutex("/app/orders/42")?;
    /// let guard = mutex.acquire().await?;
    /// assert_eq!(mutex.request_revocation().await?, 1); // in another process
    /// guard.revocation_requested().await?; // completes at once
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn request_revocation(&self) -> Result<usize> {
        crate::release::revocation::request(self.client.inner(), &self.path).await
    }

    /// Returns the path of the lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let mutex = client.mutex("/app/orders/42")?;
    /// assert_eq!(mutex.path().as_str(), "/app/orders/42");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn path(&self) -> &LockPath {
        &self.path
    }

    /// Sets the data of the nodes that this handle creates, instead of the client's node data.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) for more than
    /// [`MAX_DATA`](zlock_core::MAX_DATA) bytes, and for `__REVOKE__`, which requests revocation.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let mutex = client.mutex("/app/orders/42")?.with_node_data("import job 7")?;
    /// # let _ = mutex;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_node_data(mut self, data: impl Into<Vec<u8>>) -> Result<Self> {
        self.node_data = check_node_data(data.into())?;
        Ok(self)
    }

    /// Limits how long the lock is held, from each grant on. Entering it again does not extend that. By default there is no limit.
    ///
    /// When the time is over, the lock counts as not held: what [`run`](Self::run) and templates run is cancelled at its current await
    /// point, and guards say so by [`lost`](crate::LockContext::lost), [`check`](crate::LockContext::check) and
    /// [`is_held`](crate::LockContext::is_held), with the kind [`HeldTooLong`](zlock_core::ErrorKind::HeldTooLong). The lock is
    /// released when the guard is dropped, and not before: until then the session keeps every other client out. So a task that keeps its
    /// guard, or a closure that blocks its thread, keeps the lock. ShedLock's `lockAtMostFor` gives such a lock to the next client
    /// while it is still in use.
    ///
    /// The limit is that of the handle that acquired the lock: entering it again by another handle changes nothing. In a set of locks,
    /// each counts from its own grant, also while the others are waited for.
    ///
    /// The time is that of the monotonic clock. On Linux and macOS, this clock stands still while the machine sleeps.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if the time is zero.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use std::time::Duration;
    /// use zlock::ErrorKind;
    ///
    /// let mutex = client.mutex("/app/orders/42")?.max_hold(Duration::from_secs(60))?;
    /// let hangs = mutex.run(std::future::pending::<()>()).await;
    /// assert_eq!(hangs.unwrap_err().kind(), ErrorKind::HeldTooLong);
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_hold(mut self, time: Duration) -> Result<Self> {
        self.max_hold = Some(limit::check(time, self.path.as_str())?);
        Ok(self)
    }

    /// Sets the name of the lock in the measurements of the client's [`Observer`](zlock_core::observer::Observer). Defaults
    /// to no name. Several locks may have the same name.
    ///
    /// Use names from a small fixed set, such as `orders`: a metric may keep a time series for each of them forever.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let mutex = client.mutex("/app/orders/42")?.with_metric_name("orders");
    /// # let _ = mutex;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_metric_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.metric_name = Some(name.into());
        self
    }

    /// Enters the lock again, or waits for the end of an acquisition, unless the client is shut down. Reports how it ended.
    pub(crate) async fn enter<'a, T: From<Guard>>(
        &'a self,
        acquisition: impl FnOnce(Request<'a>, Option<Handoff>) -> Acquiring<'a, T>,
        granted: fn(&T) -> Option<&Guard>,
    ) -> Result<T> {
        if let Some(entered) = Scope::reenter(self.client.inner(), &self.path, self.kind.label()) {
            return entered.and_then(|(hold, entry)| Guard::reentered(hold, entry)).map(T::from);
        }
        let acquisition = acquisition(self.request(), self.handoff);
        let (wait, span, shutdown) = (self.wait(), self.span(), &self.client.inner().shutdown);
        let began = (!span.is_disabled()).then(Instant::now);
        let result = {
            let mut acquisition = pin!(acquisition.instrument(span.clone()));
            let mut begun = pin!(shutdown.begun.raised());
            // By hand: `select!` costs several times as much.
            let acquired = poll_fn(|cx| match acquisition.as_mut().poll(cx) {
                Poll::Ready(acquired) => Poll::Ready(Some(acquired)),
                Poll::Pending => begun.as_mut().poll(cx).map(|()| None),
            });
            let acquired = if shutdown.begun.is_raised() { None } else { acquired.await };
            match acquired {
                // A granted lock counts as held by now: either the shutdown waits for it, or it is released here.
                Some(acquired) if !shutdown.begun.is_raised() => acquired,
                _ => Err(Error::new(ErrorKind::ShuttingDown, "acquire").with_path(&self.path)),
            }
        };
        if let (Some(longest), Some(guard)) = (self.max_hold, result.as_ref().ok().and_then(granted)) {
            guard.hold().limit(longest);
        }
        let outcome = report::outcome(&result, |output| granted(output).is_some());
        Wait::end(wait, outcome);
        if let Some(began) = began {
            span.record("outcome", outcome.as_str());
            drop(span);
            if let Some(guard) = result.as_ref().ok().and_then(granted) {
                guard.hold().begin_span(began.elapsed());
            }
        }
        result
    }

    fn request(&self) -> Request<'_> {
        let (client, label, metric_name) =
            (self.client.inner(), self.kind.label(), self.metric_name.as_ref());
        let (path, data, shared_max) = (&self.path, &self.node_data, self.shared_max.as_ref());
        Request { client, path, label, shared_max, data, metric_name, deadline: None }
    }

    /// Begins the report of an acquisition.
    fn wait(&self) -> Option<Wait<'_>> {
        let reports = self.client.inner().reports()?;
        let name = self.metric_name.as_deref().unwrap_or_default();
        Some(Wait::begin(reports, LockLabels::new(report::kind(self.kind.label()), name)))
    }

    fn span(&self) -> Span {
        let kind = report::kind(self.kind.label());
        tracing::debug_span!("acquire", path = %self.path, kind, outcome = Empty)
    }
}
