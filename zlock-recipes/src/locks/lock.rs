//! The trait of all locks, for code that is generic over them.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use zlock_core::Result;

use crate::guard::{LockGuard, sealed};
use crate::locks::handle::LockHandle;
use crate::locks::kind::Kind;
use crate::locks::participants::Participant;

/// A lock of any kind, for code that is generic over locks. Each method is equivalent to that of [`LockHandle`] or
/// [`MultiLock`](crate::MultiLock). This trait is sealed.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// use std::time::Duration;
///
/// use zlock::{Lock, LockGuard};
///
/// async fn patiently<L: Lock>(lock: &L) -> zlock::Result<L::Guard> {
///     loop {
///         match lock.acquire_timeout(Duration::from_secs(10)).await {
///             Err(error) if error.is_timeout() => eprintln!("still waiting: {error}"),
///             result => return result,
///         }
///     }
/// }
///
/// let guard = patiently(&client.mutex("/app/orders")?).await?;
/// assert!(guard.is_held());
/// # Ok(())
/// # }
/// ```
pub trait Lock: sealed::Sealed + Clone + Debug + Send + Sync + 'static {
    /// The guard that an acquisition returns.
    type Guard: LockGuard;

    /// See [`LockHandle::acquire`].
    fn acquire(&self) -> impl Future<Output = Result<Self::Guard>> + Send;

    /// See [`LockHandle::acquire_timeout`].
    fn acquire_timeout(&self, time: Duration) -> impl Future<Output = Result<Self::Guard>> + Send;

    /// See [`LockHandle::try_acquire`].
    fn try_acquire(&self) -> impl Future<Output = Result<Option<Self::Guard>>> + Send;

    /// See [`LockHandle::run`].
    fn run<F: Future + Send>(&self, future: F) -> impl Future<Output = Result<F::Output>> + Send
    where
        F::Output: Send;

    /// See [`LockHandle::is_acquired_in_this_process`].
    fn is_acquired_in_this_process(&self) -> bool;

    /// See [`LockHandle::participants`].
    fn participants(&self) -> impl Future<Output = Result<Vec<Participant>>> + Send;

    /// See [`LockHandle::request_revocation`].
    fn request_revocation(&self) -> impl Future<Output = Result<usize>> + Send;
}

/// Implements [`Lock`] for a lock that has methods of the same names.
macro_rules! lock {
    ([$($generics:tt)*] $lock:ty, $guard:ty) => {
        impl<$($generics)*> $crate::Lock for $lock {
            type Guard = $guard;

            fn acquire(&self) -> impl Future<Output = Result<$guard>> + Send {
                self.acquire()
            }

            fn acquire_timeout(&self, time: Duration) -> impl Future<Output = Result<$guard>> + Send {
                self.acquire_timeout(time)
            }

            fn try_acquire(&self) -> impl Future<Output = Result<Option<$guard>>> + Send {
                self.try_acquire()
            }

            fn run<F: Future + Send>(&self, future: F) -> impl Future<Output = Result<F::Output>> + Send
            where
                F::Output: Send,
            {
                self.run(future)
            }

            fn is_acquired_in_this_process(&self) -> bool {
                self.is_acquired_in_this_process()
            }

            fn participants(&self) -> impl Future<Output = Result<Vec<Participant>>> + Send {
                self.participants()
            }

            fn request_revocation(&self) -> impl Future<Output = Result<usize>> + Send {
                self.request_revocation()
            }
        }

        impl<$($generics)*> $crate::guard::sealed::Sealed for $lock {}
    };
}

pub(crate) use lock;

lock!([K: Kind] LockHandle<K>, K::Guard);
