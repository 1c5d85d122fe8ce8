//! Blocking versions of all locks, for programs without an async runtime. See `zlock::blocking`.

mod barrier;
mod client;
mod driver;
mod election;
mod guard;
mod job;
mod lock;
mod members;
mod rwlock;
mod semaphore;
mod slots;
mod template;
#[cfg(test)]
mod tests;
mod value;

pub use self::barrier::{Barrier, DoubleBarrier, Entered, Latch};
pub use self::client::Client;
pub use self::election::{Election, LeaderWatch, Leadership};
pub use self::guard::{BlockingGuard, DowngradeError, Guard, HeldLock, MultiGuard, WriteGuard};
pub use self::job::{JobRun, RecurringJob};
pub use self::lock::{InterProcessMutex, LockHandle, MultiLock, PermitRequest, ReadLock, WriteLock};
pub use self::members::{Members, MembersWatch, Membership};
pub use self::rwlock::ReadWriteLock;
pub use self::semaphore::Semaphore;
pub use self::slots::{Slot, Slots};
pub use self::template::LockTemplate;
pub use self::value::{Counter, SharedValue, ValueWatch};
