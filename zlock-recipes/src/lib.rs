#![doc = include_str!("../README.md")]

// First, so that the documentation of `Client` begins with the methods that users call first.
mod locks;
mod value;

mod acquire;
mod barrier;
pub mod blocking;
mod client;
mod election;
mod guard;
mod hold;
pub mod job;
mod members;
mod panics;
mod place;
mod release;
mod report;
mod slots;
mod view;

#[cfg(feature = "unstable")]
pub mod queue;
#[cfg(not(feature = "unstable"))]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "public with the feature `unstable`")]
mod queue;

pub use barrier::{Barrier, DoubleBarrier, Entered, Latch};
pub use client::health::Health;
pub use client::shutdown::Shutdown;
pub use client::{Client, ClientBuilder};
pub use election::{Election, Leader, LeaderContext, LeaderView, LeaderWatch, Leadership, LiveLeader, Then};
pub use guard::context::LockContext;
pub use guard::scope::Scope;
pub use guard::write::{DowngradeError, WriteGuard};
pub use guard::{Guard, LockGuard};
pub use locks::dyn_lock::DynLock;
pub use locks::handle::LockHandle;
pub use locks::kind;
pub use locks::lock::Lock;
pub use locks::multi::MultiLock;
pub use locks::multi::guard::MultiGuard;
pub use locks::mutex::InterProcessMutex;
pub use locks::participants::Participant;
pub use locks::rwlock::{ReadLock, ReadWriteLock, WriteLock};
pub use locks::semaphore::{PermitRequest, Semaphore};
pub use locks::template::LockTemplate;
pub use members::{Member, Members, MembersView, MembersWatch, Membership};
pub use place::cohort::Handoff;
pub use queue::holders;
pub use release::Release;
pub use slots::{Slot, Slots};
pub use value::{CompareAndSet, Counter, CounterFormat, SharedValue, ValueView, ValueWatch};
pub use view::Freshness;

/// Instances of services, as Curator's `ServiceDiscovery` has them.
#[cfg(feature = "discovery")]
pub mod discovery {
    pub use serde_json;

    pub use crate::members::discovery::ServiceInstance;
}
