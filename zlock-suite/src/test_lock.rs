//! What cases that are generic over locks call.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use zlock_core::{Error, FencingToken, Result};
use zlock_recipes::{Lock, LockContext, LockGuard, Participant, Release};

/// A lock under test: every [`Lock`], and what reaches a lock by another way, such as a [thread](crate::ThreadLock).
pub trait TestLock: Clone + Debug + Send + Sync + 'static {
    /// The guard of a held lock.
    type Guard: TestGuard;

    /// See [`Lock::acquire`].
    fn acquire(&self) -> impl Future<Output = Result<Self::Guard>> + Send;

    /// See [`Lock::acquire_timeout`].
    fn acquire_timeout(&self, time: Duration) -> impl Future<Output = Result<Self::Guard>> + Send;

    /// See [`Lock::try_acquire`].
    fn try_acquire(&self) -> impl Future<Output = Result<Option<Self::Guard>>> + Send;

    /// See [`Lock::run`].
    fn run<F: Future<Output: Send> + Send>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output>> + Send;

    /// See [`Lock::is_acquired_in_this_process`].
    fn is_acquired_in_this_process(&self) -> bool;

    /// See [`Lock::participants`].
    fn participants(&self) -> impl Future<Output = Result<Vec<Participant>>> + Send;

    /// See [`Lock::request_revocation`].
    fn request_revocation(&self) -> impl Future<Output = Result<usize>> + Send;
}

/// The guard of a [`TestLock`].
pub trait TestGuard: Debug + Send + Sync + Sized + 'static {
    /// Returns the fencing token of the lock, or of the first of a set.
    fn fencing_token(&self) -> FencingToken;

    /// See [`LockGuard::is_held`].
    fn is_held(&self) -> bool;

    /// See [`LockGuard::lost`].
    fn lost(&self) -> impl Future<Output = Error> + Send;

    /// See [`LockGuard::revocation_requested`].
    fn revocation_requested(&self) -> impl Future<Output = Result<()>> + Send;

    /// See [`LockGuard::reenter`].
    fn reenter(&self) -> Result<Self>;

    /// See [`LockGuard::run`].
    fn run<F: Future<Output: Send> + Send>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output>> + Send;

    /// See [`LockGuard::release`].
    fn release(self) -> impl Future<Output = Result<Release>> + Send;
}

impl<L: Lock> TestLock for L {
    type Guard = L::Guard;

    fn acquire(&self) -> impl Future<Output = Result<L::Guard>> + Send {
        Lock::acquire(self)
    }

    fn acquire_timeout(&self, time: Duration) -> impl Future<Output = Result<L::Guard>> + Send {
        Lock::acquire_timeout(self, time)
    }

    fn try_acquire(&self) -> impl Future<Output = Result<Option<L::Guard>>> + Send {
        Lock::try_acquire(self)
    }

    fn run<F: Future<Output: Send> + Send>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output>> + Send {
        Lock::run(self, future)
    }

    fn is_acquired_in_this_process(&self) -> bool {
        Lock::is_acquired_in_this_process(self)
    }

    fn participants(&self) -> impl Future<Output = Result<Vec<Participant>>> + Send {
        Lock::participants(self)
    }

    fn request_revocation(&self) -> impl Future<Output = Result<usize>> + Send {
        Lock::request_revocation(self)
    }
}

impl<G: LockGuard> TestGuard for G {
    fn fencing_token(&self) -> FencingToken {
        LockContext::fencing_token(&self.guards()[0])
    }

    fn is_held(&self) -> bool {
        LockGuard::is_held(self)
    }

    fn lost(&self) -> impl Future<Output = Error> + Send {
        LockGuard::lost(self)
    }

    fn revocation_requested(&self) -> impl Future<Output = Result<()>> + Send {
        LockGuard::revocation_requested(self)
    }

    fn reenter(&self) -> Result<G> {
        LockGuard::reenter(self)
    }

    fn run<F: Future<Output: Send> + Send>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output>> + Send {
        LockGuard::run(self, future)
    }

    fn release(self) -> impl Future<Output = Result<Release>> + Send {
        LockGuard::release(self)
    }
}
