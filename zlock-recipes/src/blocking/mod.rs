//! Blocking versions of all locks, for programs without an async runtime. See `zlock::blocking`.

mod client;
mod driver;
mod election;
mod guard;
mod lock;
mod rwlock;
mod semaphore;
mod template;
#[cfg(test)]
mod tests;
mod value;

pub use self::client::Client;
pub use self::election::{Election, LeaderWatch, Leadership};
pub use self::guard::{BlockingGuard, DowngradeError, Guard, MultiGuard, WriteGuard};
pub use self::lock::{InterProcessMutex, LockHandle, MultiLock, PermitRequest, ReadLock, WriteLock};
pub use self::rwlock::ReadWriteLock;
pub use self::semaphore::Semaphore;
pub use self::template::LockTemplate;
pub use self::value::{Counter, SharedValue, ValueWatch};
