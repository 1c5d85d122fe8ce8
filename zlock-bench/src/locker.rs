//! What a task of a workload acquires.

use zlock::{Guard, InterProcessMutex, ReadWriteLock, Release, Semaphore, WriteGuard};

/// Every so many operations on a read/write lock one is a write.
const WRITES: usize = 20;
/// More than there are readers.
const WRITER: u64 = 1000;

/// One of the recipes.
#[derive(Clone)]
pub(crate) enum Locker {
    Mutex(InterProcessMutex),
    ReadWrite(ReadWriteLock),
    /// One permit.
    Semaphore(Semaphore),
}

/// A lock that is held.
pub(crate) struct Taken {
    guard: Held,
    /// How much of the lock's [`limit`](Locker::limit) it takes.
    pub(crate) share: u64,
}

enum Held {
    Guard(Guard),
    Write(WriteGuard),
}

impl Locker {
    /// How much of the lock may be taken at the same time.
    pub(crate) fn limit(&self) -> u64 {
        match self {
            Locker::Mutex(_) => 1,
            Locker::ReadWrite(_) => WRITER,
            Locker::Semaphore(semaphore) => semaphore.max().into(),
        }
    }

    /// Acquires it for the operation of this number.
    pub(crate) async fn acquire(&self, number: usize) -> Taken {
        let (guard, share) = match self {
            Locker::Mutex(mutex) => (mutex.acquire().await.map(Held::Guard), 1),
            Locker::ReadWrite(lock) if number.is_multiple_of(WRITES) => {
                (lock.write().acquire().await.map(Held::Write), WRITER)
            }
            Locker::ReadWrite(lock) => (lock.read().acquire().await.map(Held::Guard), 1),
            Locker::Semaphore(semaphore) => (semaphore.acquire(1).await.map(Held::Guard), 1),
        };
        Taken { guard: guard.expect("acquire"), share }
    }
}

impl Taken {
    pub(crate) async fn release(self) -> Release {
        match self.guard {
            Held::Guard(guard) => guard.release().await,
            Held::Write(guard) => guard.release().await,
        }
        .expect("release")
    }
}
