#![doc = include_str!("../README.md")]

mod acquire;

pub mod blocking;
mod client;
mod client_inner;
mod closing;
mod cohort;
mod context;
mod dyn_lock;
mod granted;
mod guard;
mod handoff;
mod health;
mod hold;
mod hold_record;
pub mod kind;
mod lock;
mod measured;
mod multi;
mod multi_guard;
mod mutex;
mod participants;
mod pauses;
mod reaper;
mod release;
mod report;
mod revocation;
mod rwlock;
mod scope;
mod semaphore;
mod shutdown;
mod succession;
mod template;
mod turns;
mod write_guard;

#[cfg(feature = "unstable")]
pub mod queue;
#[cfg(not(feature = "unstable"))]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "public with the feature `unstable`")]
mod queue;

pub use client::{Client, ClientBuilder, MAX_NODE_DATA};
pub use cohort::Handoff;
pub use context::LockContext;
pub use dyn_lock::DynLock;
pub use guard::{Guard, LockGuard};
pub use health::Health;
pub use lock::{Lock, LockHandle};
pub use multi::MultiLock;
pub use multi_guard::MultiGuard;
pub use mutex::InterProcessMutex;
pub use participants::Participant;
pub use queue::holders;
pub use release::Release;
pub use rwlock::{ReadLock, ReadWriteLock, WriteLock};
pub use scope::Scope;
pub use semaphore::{PermitRequest, Semaphore};
pub use shutdown::Shutdown;
pub use template::{LockKind, LockTemplate};
pub use write_guard::{DowngradeError, WriteGuard};
