//! What can act as a mutex.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use zlock_core::{Error, FencingToken, Result};

use crate::{Client, Guard, InterProcessMutex, Participant, Release};

/// A lock that keeps everybody else out: the mutex, a semaphore of one permit, a write lock.
pub trait Mutual: Clone + Debug + Send + Sync + 'static {
    /// Its guard.
    type Guard: MutualGuard;

    /// The lock of this path.
    fn at(client: &Client, path: &str) -> Result<Self>;

    /// Waits until it is held.
    fn acquire(&self) -> impl Future<Output = Result<Self::Guard>> + Send;

    /// Waits until it is held, or the time is over.
    fn acquire_timeout(&self, time: Duration) -> impl Future<Output = Result<Self::Guard>> + Send;

    /// Takes it if it is free.
    fn try_acquire(&self) -> impl Future<Output = Result<Option<Self::Guard>>> + Send;

    /// Whether this client holds it.
    fn is_acquired_in_this_process(&self) -> bool;

    /// Who holds and who waits.
    fn participants(&self) -> impl Future<Output = Result<Vec<Participant>>> + Send;
}

/// The guard of a [`Mutual`]. The methods are those of [`Guard`].
pub trait MutualGuard: Debug + Send + Sync + 'static {
    /// See [`Guard::fencing_token`].
    fn fencing_token(&self) -> FencingToken;

    /// See [`Guard::is_held`].
    fn is_held(&self) -> bool;

    /// See [`Guard::lost`].
    fn lost(&self) -> impl Future<Output = Error> + Send;

    /// See [`Guard::reenter`].
    fn reenter(&self) -> Result<Self>
    where
        Self: Sized;

    /// See [`Guard::scope`].
    fn scope<F: Future + Send>(&self, future: F) -> impl Future<Output = F::Output> + Send;

    /// See [`Guard::release`].
    fn release(self) -> impl Future<Output = Result<Release>> + Send;
}

impl Mutual for InterProcessMutex {
    type Guard = Guard;

    fn at(client: &Client, path: &str) -> Result<Self> {
        InterProcessMutex::new(client, path)
    }

    fn acquire(&self) -> impl Future<Output = Result<Guard>> + Send {
        self.acquire()
    }

    fn acquire_timeout(&self, time: Duration) -> impl Future<Output = Result<Guard>> + Send {
        self.acquire_timeout(time)
    }

    fn try_acquire(&self) -> impl Future<Output = Result<Option<Guard>>> + Send {
        self.try_acquire()
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.is_acquired_in_this_process()
    }

    fn participants(&self) -> impl Future<Output = Result<Vec<Participant>>> + Send {
        self.participants()
    }
}

impl MutualGuard for Guard {
    fn fencing_token(&self) -> FencingToken {
        self.fencing_token()
    }

    fn is_held(&self) -> bool {
        self.is_held()
    }

    fn lost(&self) -> impl Future<Output = Error> + Send {
        self.lost()
    }

    fn reenter(&self) -> Result<Self> {
        self.reenter()
    }

    fn scope<F: Future + Send>(&self, future: F) -> impl Future<Output = F::Output> + Send {
        self.scope(future)
    }

    fn release(self) -> impl Future<Output = Result<Release>> + Send {
        self.release()
    }
}
