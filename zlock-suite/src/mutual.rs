//! What can act as a mutex.

use std::fmt::Debug;
use std::time::Duration;

use zlock_core::{LockPath, Result};
use zlock_recipes::{
    Client, Election, Handoff, InterProcessMutex, Lock, MultiLock, PermitRequest, WriteLock,
};

use crate::{Call, TestLock};

/// A kind of lock that excludes all other holders: the mutex, a semaphore of one permit, a write lock.
pub trait Mutual: Debug + Send + Sync + 'static {
    /// The lock type.
    type Lock: TestLock;

    /// The call with which the next client in the queue waits.
    const WAIT: Call = Call::Exists;

    /// How many calls a release costs, including those of the client that is granted the lock and of the next one in the
    /// queue.
    const HAND_OVER: usize = 2;

    /// How many nodes a holder has, each under its own path.
    const NODES: usize = 1;

    /// The largest number of rounds, if each takes no time. One kind of lock needs the most.
    const MANY: usize = 1000;

    /// Returns how many places in the store this many concurrent acquisitions have, if they come from this many clients.
    #[must_use]
    fn places(acquisitions: usize, _clients: usize) -> usize {
        acquisitions
    }

    /// Returns the lock of this path.
    fn at(client: &Client, path: &str) -> Result<Self::Lock>;

    /// Returns the paths of a holder's nodes. Waiters queue at the first, which is the lock's own.
    fn paths(path: &LockPath) -> Vec<LockPath> {
        vec![path.clone()]
    }
}

/// The guard of a lock of this kind.
pub type GuardOf<M> = <<M as Mutual>::Lock as TestLock>::Guard;

/// A kind of lock whose acquisitions are futures of its client: they can be cancelled, run in a scope, and are counted.
pub trait Tasks: Mutual<Lock: Lock> {}

impl<M: Mutual<Lock: Lock>> Tasks for M {}

impl Mutual for InterProcessMutex {
    type Lock = Self;

    const MANY: usize = 10_000;

    fn at(client: &Client, path: &str) -> Result<Self> {
        client.mutex(path)
    }
}

/// A mutex with hand-off between the waiters of one client.
#[derive(Debug)]
pub struct HandedOn;

impl Mutual for HandedOn {
    type Lock = InterProcessMutex;

    fn at(client: &Client, path: &str) -> Result<InterProcessMutex> {
        Ok(client.mutex(path)?.with_handoff(Handoff::within(Duration::from_millis(10))))
    }

    fn places(_acquisitions: usize, clients: usize) -> usize {
        clients
    }
}

impl Mutual for WriteLock {
    type Lock = Self;

    fn at(client: &Client, path: &str) -> Result<Self> {
        client.read_write_lock(path).map(|lock| lock.write())
    }
}

/// To campaign is to acquire.
impl Mutual for Election {
    type Lock = Self;

    fn at(client: &Client, path: &str) -> Result<Self> {
        client.election(path)
    }
}

/// One of `MAX` permits: a mutex if `MAX` is 1, or on a store where the others are taken ([`Occupied`]).
///
/// [`Occupied`]: super::Occupied
#[derive(Debug)]
pub struct OnePermit<const MAX: u32>;

impl<const MAX: u32> Mutual for OnePermit<MAX> {
    type Lock = PermitRequest;

    const WAIT: Call = Call::ChildrenWithWatch;
    /// A delete; a listing and a relabel by the client that is granted; a listing, and one with a watch, by the next one.
    const HAND_OVER: usize = 5;

    fn at(client: &Client, path: &str) -> Result<PermitRequest> {
        client.semaphore(path, MAX)?.permits(1)
    }
}

/// Two mutexes held together: that of the path, and one beside it that is acquired second.
#[derive(Debug)]
pub struct Pair;

impl Mutual for Pair {
    type Lock = MultiLock;

    /// Two deletes; a listing by the client that is granted, and a create.
    const HAND_OVER: usize = 4;
    const NODES: usize = 2;

    fn at(client: &Client, path: &str) -> Result<MultiLock> {
        let first = client.mutex(path)?;
        let [_, second] = Self::paths(first.path()).try_into().expect("two paths");
        MultiLock::new([&client.mutex(&second)?, &first])
    }

    fn paths(path: &LockPath) -> Vec<LockPath> {
        let second = LockPath::new(format!("{path}-second")).expect("a path");
        vec![path.clone(), second]
    }
}
