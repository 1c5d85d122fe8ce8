//! Locks, elections and jobs for threads, for programs without an async runtime. See `zlock::blocking`.

mod client;
mod driver;
mod election;
mod guard;
mod job;
mod lock;
mod rwlock;
mod template;

pub use self::client::Client;
pub use self::election::{Election, Leadership};
pub use self::guard::{BlockingGuard, DowngradeError, Guard, MultiGuard, WriteGuard};
pub use self::job::{JobRun, RecurringJob};
pub use self::lock::{InterProcessMutex, LockHandle, MultiLock, ReadLock, WriteLock};
pub use self::rwlock::ReadWriteLock;
pub use self::template::LockTemplate;
