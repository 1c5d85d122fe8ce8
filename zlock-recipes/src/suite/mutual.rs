//! What can act as a mutex.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use zlock_core::{Error, FencingToken, LockPath, Result};

use super::Call;
use crate::{
    Client, Guard, InterProcessMutex, MultiGuard, MultiLock, Participant, ReadWriteLock, Release, Semaphore,
    WriteGuard, WriteLock,
};

/// A lock that keeps everybody else out: the mutex, a semaphore of one permit, a write lock.
pub trait Mutual: Clone + Debug + Send + Sync + 'static {
    /// Its guard.
    type Guard: MutualGuard;

    /// How whoever is next waits.
    const WAIT: Call = Call::Exists;

    /// How many calls a release costs, with those of the one whom it lets in and of the one who is next then.
    const HAND_OVER: usize = 2;

    /// How many nodes it takes to hold, each under a path of its own.
    const NODES: usize = 1;

    /// How many rounds are many where each takes no time: one kind of lock has the most.
    const MANY: usize = 1000;

    /// The lock of this path.
    fn at(client: &Client, path: &str) -> Result<Self>;

    /// The paths of its nodes: waiters stand in line at the first, which is the lock's own.
    fn paths(path: &LockPath) -> Vec<LockPath> {
        vec![path.clone()]
    }

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

    /// Asks the holder to let go.
    fn request_revocation(&self) -> impl Future<Output = Result<usize>> + Send;
}

/// The guard of a [`Mutual`]. The methods are those of [`Guard`].
pub trait MutualGuard: Debug + Send + Sync + 'static {
    /// See [`Guard::fencing_token`].
    fn fencing_token(&self) -> FencingToken;

    /// See [`Guard::is_held`].
    fn is_held(&self) -> bool;

    /// See [`Guard::lost`].
    fn lost(&self) -> impl Future<Output = Error> + Send;

    /// See [`Guard::revocation`].
    fn revocation(&self) -> impl Future<Output = Result<()>> + Send;

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

    const MANY: usize = 10_000;

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

    fn request_revocation(&self) -> impl Future<Output = Result<usize>> + Send {
        self.request_revocation()
    }
}

impl Mutual for WriteLock {
    type Guard = WriteGuard;

    fn at(client: &Client, path: &str) -> Result<Self> {
        ReadWriteLock::new(client, path).map(|lock| lock.write())
    }

    fn acquire(&self) -> impl Future<Output = Result<WriteGuard>> + Send {
        self.acquire()
    }

    fn acquire_timeout(&self, time: Duration) -> impl Future<Output = Result<WriteGuard>> + Send {
        self.acquire_timeout(time)
    }

    fn try_acquire(&self) -> impl Future<Output = Result<Option<WriteGuard>>> + Send {
        self.try_acquire()
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

/// One of `MAX` permits: a mutex if there is one, or on a store where the others are taken ([`Occupied`]).
///
/// [`Occupied`]: super::Occupied
#[derive(Clone, Debug)]
pub struct OnePermit<const MAX: u32>(Semaphore);

impl<const MAX: u32> Mutual for OnePermit<MAX> {
    type Guard = Guard;

    const WAIT: Call = Call::ChildrenWithWatch;
    /// A delete; a listing and a relabel of who is let in; a listing, and one with a watch, of the next.
    const HAND_OVER: usize = 5;

    fn at(client: &Client, path: &str) -> Result<Self> {
        Semaphore::new(client, path, MAX).map(OnePermit)
    }

    fn acquire(&self) -> impl Future<Output = Result<Guard>> + Send {
        self.0.acquire(1)
    }

    fn acquire_timeout(&self, time: Duration) -> impl Future<Output = Result<Guard>> + Send {
        self.0.acquire_timeout(1, time)
    }

    fn try_acquire(&self) -> impl Future<Output = Result<Option<Guard>>> + Send {
        self.0.try_acquire(1)
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.0.is_acquired_in_this_process()
    }

    fn participants(&self) -> impl Future<Output = Result<Vec<Participant>>> + Send {
        self.0.participants()
    }

    fn request_revocation(&self) -> impl Future<Output = Result<usize>> + Send {
        self.0.request_revocation()
    }
}

/// Two mutexes held together: that of the path, and one beside it that comes second.
#[derive(Clone, Debug)]
pub struct Pair {
    first: InterProcessMutex,
    both: MultiLock,
}

impl Mutual for Pair {
    type Guard = MultiGuard;

    /// Two deletes; a listing of who is let in, and a create.
    const HAND_OVER: usize = 4;
    const NODES: usize = 2;

    fn at(client: &Client, path: &str) -> Result<Self> {
        let first = InterProcessMutex::new(client, path)?;
        let [_, second] = Self::paths(first.path()).try_into().expect("two paths");
        let both = MultiLock::new([&InterProcessMutex::new(client, &second)?, &first])?;
        Ok(Pair { first, both })
    }

    fn paths(path: &LockPath) -> Vec<LockPath> {
        let second = LockPath::new(format!("{path}-second")).expect("a path");
        vec![path.clone(), second]
    }

    fn acquire(&self) -> impl Future<Output = Result<MultiGuard>> + Send {
        self.both.acquire()
    }

    fn acquire_timeout(&self, time: Duration) -> impl Future<Output = Result<MultiGuard>> + Send {
        self.both.acquire_timeout(time)
    }

    fn try_acquire(&self) -> impl Future<Output = Result<Option<MultiGuard>>> + Send {
        self.both.try_acquire()
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.both.is_acquired_in_this_process()
    }

    fn participants(&self) -> impl Future<Output = Result<Vec<Participant>>> + Send {
        self.first.participants()
    }

    fn request_revocation(&self) -> impl Future<Output = Result<usize>> + Send {
        self.both.request_revocation()
    }
}

impl MutualGuard for MultiGuard {
    fn fencing_token(&self) -> FencingToken {
        self.guards()[0].fencing_token()
    }

    fn is_held(&self) -> bool {
        self.is_held()
    }

    fn lost(&self) -> impl Future<Output = Error> + Send {
        self.lost()
    }

    fn revocation(&self) -> impl Future<Output = Result<()>> + Send {
        self.revocation()
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

    fn revocation(&self) -> impl Future<Output = Result<()>> + Send {
        self.revocation()
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

impl MutualGuard for WriteGuard {
    fn fencing_token(&self) -> FencingToken {
        Guard::fencing_token(self)
    }

    fn is_held(&self) -> bool {
        Guard::is_held(self)
    }

    fn lost(&self) -> impl Future<Output = Error> + Send {
        Guard::lost(self)
    }

    fn revocation(&self) -> impl Future<Output = Result<()>> + Send {
        Guard::revocation(self)
    }

    fn reenter(&self) -> Result<Self> {
        self.reenter()
    }

    fn scope<F: Future + Send>(&self, future: F) -> impl Future<Output = F::Output> + Send {
        Guard::scope(self, future)
    }

    fn release(self) -> impl Future<Output = Result<Release>> + Send {
        self.release()
    }
}
