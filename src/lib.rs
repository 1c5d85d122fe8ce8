//! Distributed locks: one process at a time works on a job, an order or a row, on however many machines, and it learns in time
//! if it loses the lock.
//!
//! A lock is a queue in a store that your processes share. The features `zk`, `etcd`, `postgres` and `mysql` add ZooKeeper,
//! etcd, PostgreSQL, and MySQL with MariaDB, and `mem` is a server inside the process, for tests. On the same path, zlock excludes Curator on ZooKeeper, and Go's
//! mutex on etcd.
//!
//! # Examples
//!
//! ```
//! # #[cfg(not(feature = "mem"))] fn main() {}
//! # #[cfg(feature = "mem")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> zlock::Result<()> {
//! use std::time::Duration;
//!
//! let client = zlock::connect("mem://").await?; // or "zk://zk1:2181,zk2:2181/app", "etcd://etcd1:2379/app"
//! let mutex = client.mutex("/orders/42")?;
//! let guard = mutex.acquire_timeout(Duration::from_secs(2)).await?;
//! let token = guard.fencing_token(); // send it along with each write: see below
//! guard.check()?; // costs no request: an error if the lock is lost
//! guard.release().await?; // dropping the guard releases the lock in the background
//! # let _ = token;
//! client.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Which lock to take
//!
//! | you want | take |
//! |---|---|
//! | a closure that runs under a lock, and is cancelled if the lock is lost | [`LockTemplate::execute`], from [`Client::lock_template`]: the one to start with |
//! | a job that runs once per tick, on one machine of many | [`RecurringJob`](job::RecurringJob), from [`Client::recurring_job`] |
//! | one leader that other clients can find | [`Election`], from [`Client::election`] |
//! | one holder at a time, with a guard of your own | [`InterProcessMutex`], from [`Client::mutex`] |
//! | many readers or one writer | [`ReadWriteLock`], from [`Client::read_write_lock`] |
//! | at most *n* holders, or several permits at once | [`Semaphore`], from [`Client::semaphore`] |
//! | several locks at once, without deadlock | [`MultiLock`] |
//! | processes that begin together, or wait until a client lets them go | [`Barrier`], [`DoubleBarrier`], [`Latch`] |
//! | a small number that no other live client has | [`Slots`], from [`Client::slots`] |
//! | data that outlives the processes that write it | [`SharedValue`], from [`Client::shared_value`] |
//! | unique numbers | [`Counter`], from [`Client::counter`] |
//! | to know which processes are there, and where | [`Members`], from [`Client::members`] |
//! | the same without an async runtime | [`blocking`] |
//!
//! Most methods of locks are those of one type, [`LockHandle`]: [`acquire`](LockHandle::acquire),
//! [`acquire_timeout`](LockHandle::acquire_timeout), [`try_acquire`](LockHandle::try_acquire) and [`run`](LockHandle::run).
//! They return a [`Guard`], which derefs to [`LockContext`]: [`is_held`](LockContext::is_held),
//! [`lost`](LockContext::lost) and [`fencing_token`](LockContext::fencing_token).
//!
//! # What it is not
//!
//! - No distributed lock can stop a process that is paused between a check and a write. Storage that refuses an outdated
//!   [`FencingToken`] can, so pass the token along with what you write.
//! - A lock keeps runs of a job apart, but does not make it run exactly once: a process that starts after another one has
//!   finished gets the lock, too.
//! - It is no replacement for a [`std::sync::Mutex`]: an uncontended acquisition costs a round trip to a server and its disk.
//!
//! # Losing a lock
//!
//! The store frees a lock when its holder is silent for a session timeout, by default 10 seconds. The client knows the deadline
//! beforehand, without a request, and treats the lock as lost a little earlier than the store does: [`LockContext::is_held`] is
//! then `false`, [`LockContext::lost`] completes, and [`LockTemplate::execute`] cancels its closure. Code that blocks every
//! thread of the runtime keeps the client from sending heartbeats. [`with_dedicated_thread`] gives the client a thread of its own.
//!
//! # Errors
//!
//! [`Error::kind`] says what happened, [`Error::is_timeout`] and [`Error::is_lock_lost`] group the common cases, and
//! [`Error::is_retryable`] says whether the same call may succeed later. While no server answers, an acquisition fails with
//! [`ErrorKind::Unavailable`] or [`ErrorKind::Timeout`] after at most 30 seconds by default; it never hangs for lack of a server.
//!
//! # Features
//!
//! | feature | adds | needs, besides Rust |
//! |---|---|---|
//! | `mem` (default) | [`mem`], `mem://` | nothing |
//! | `zk` | [`zk`], `zk://` | nothing |
//! | `zk-tls`, `zk-sasl` | TLS, and SASL with DIGEST-MD5 | for TLS a C compiler, on some platforms cmake |
//! | `etcd`, `etcd-tls` | [`etcd`], `etcd://` | `protoc`; for TLS a C compiler |
//! | `postgres`, `postgres-tls` | [`postgres`], `postgres://` | nothing; for TLS a C compiler |
//! | `mysql`, `mysql-tls` | [`mysql`], `mysql://` | nothing; for TLS a C compiler |
//! | `cron` | schedules of jobs that are cron expressions with a time zone | nothing |
//! | `discovery` | the JSON of Curator's `ServiceDiscovery` | nothing |
//! | `srv` | servers that DNS names: `zk+srv://`, `etcd+srv://` | nothing |
//! | `metrics` | [`metrics`], an observer for the crate of that name | nothing |
//!
//! A feature adds to the API and never changes behaviour. The repository has a guide with a page for each lock and each store.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(all(doctest, feature = "mem"))]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod blocking;
mod connect;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod fence;
#[cfg(feature = "metrics")]
pub mod metrics;
mod register;

pub use connect::{Connect, connect};
pub use register::register;
pub use zlock_core::{
    Close, CloseReason, Environment, Error, ErrorKind, FencedStorage, FencingToken, LockPath, MAX_DATA,
    Phase, Result, RetryPolicy, Session, SessionEvents, SessionId, SessionState, SessionTerms, TextOrFile,
    Value, Version, with_dedicated_thread,
};
pub use zlock_recipes::{
    Barrier, Client, ClientBuilder, CompareAndSet, Counter, CounterFormat, DoubleBarrier, DowngradeError,
    Election, Entered, Freshness, Guard, Handoff, Health, InterProcessMutex, Latch, Leader, LeaderContext,
    LeaderView, LeaderWatch, Leadership, LiveLeader, Lock, LockContext, LockGuard, LockHandle, LockTemplate,
    Member, Members, MembersView, MembersWatch, Membership, MultiGuard, MultiLock, Participant,
    PermitRequest, ReadLock, ReadWriteLock, Release, Scope, Semaphore, SharedValue, Shutdown, Slot, Slots,
    Then, ValueView, ValueWatch, WriteGuard, WriteLock,
};

/// The kinds of locks, for templates and for code that is generic over them, and the trait of locks of several kinds in one set.
///
/// All other code has these without a name: `client.mutex(..)` returns a [`LockHandle`] of the right kind.
pub mod locks {
    #[doc(inline)]
    pub use zlock_recipes::DynLock;
    #[doc(inline)]
    pub use zlock_recipes::kind::{Kind, Mutex, Permits, Read, Write};
}

/// The contract between locks and stores, for programs that look at a store themselves, as the command `zlock` does: the trait
/// [`CoordinationBackend`](backend::CoordinationBackend), and what its operations take and return.
///
/// Any backend makes a [`Client`], so a program that only uses locks does not need this module. It meets some of these types
/// without naming them: a guard has a [`NodeName`](backend::NodeName), a participant a [`Label`](backend::Label), and
/// [`SessionEvents::listen`] returns a [`SessionListener`](backend::SessionListener). Authors of backends depend on the crate
/// `zlock-core`, which also has what backends are built of.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # if cfg!(not(feature = "mem")) { return Ok(()); }
/// # #[cfg(feature = "mem")] {
/// use std::sync::Arc;
///
/// use zlock::backend::{CoordinationBackend, holders};
/// use zlock::mem::MemServer;
/// use zlock::{Client, LockPath};
///
/// let backend = Arc::new(MemServer::new().connect());
/// let client = Client::new(backend.clone());
/// let guard = client.mutex("/app/orders/42")?.acquire().await?;
/// let queue = backend.children(&LockPath::new("/app/orders/42")?, None).await?;
/// let holder = holders(&queue).next();
/// assert_eq!(holder.map(|node| &node.name), Some(&guard.node()));
/// # guard.release().await?;
/// # }
/// # Ok(())
/// # }
/// ```
pub mod backend {
    #[doc(no_inline)]
    pub use zlock_core::{
        Background, Class, ConnectUrl, Connector, Consistency, CoordinationBackend, Created, CreatedQueue,
        DataWrite, Deletion, DeletionNotice, Existence, Groups, GuardNode, Head, IntoBackend, Job, Joined,
        Label, ListedMember, LockPath, MemberContents, Needs, Node, NodeData, NodeId, NodeIds, NodeName,
        ParsedName, Queue, Registration, Sequence, SessionListener, StoreHistory, StoreSettings, Target,
        Values, Watch, WatchEvent, WriteOutcome,
    };
    #[doc(no_inline)]
    pub use zlock_recipes::holders;
}
/// Jobs that run once per tick on a fleet.
pub mod job {
    #[doc(inline)]
    pub use zlock_recipes::job::*;
}
/// Instances of services, as Curator's `ServiceDiscovery` has them.
#[cfg(feature = "discovery")]
pub mod discovery {
    #[doc(inline)]
    pub use zlock_recipes::discovery::*;
}

/// The measurements of a client, and the trait that receives them.
pub mod observer {
    #[doc(inline)]
    pub use zlock_core::observer::{
        AcquireOutcome, JobOutcome, LockLabels, MemberState, Observer, RequestOutcome,
    };
}
/// The etcd backend, of the crate `zlock-etcd`.
#[cfg(feature = "etcd")]
pub mod etcd {
    #[doc(no_inline)]
    pub use zlock_etcd::{EtcdBackend, EtcdOptions};
}
/// The embedded server, for tests without an external server, of the crate `zlock-mem`.
#[cfg(feature = "mem")]
pub mod mem {
    #[doc(no_inline)]
    pub use zlock_mem::{
        Arrival, Fate, Fault, FencedRow, MemBackend, MemLink, MemOptions, MemServer, Operation,
    };
}
/// The MySQL and MariaDB backend, of the crate `zlock-mysql`, and the fence of a guard.
#[cfg(feature = "mysql")]
pub mod mysql {
    pub use crate::fence::MysqlFence;
    #[doc(no_inline)]
    pub use zlock_mysql::{Fence, MysqlBackend, MysqlOptions, schema_sql};
}
/// The PostgreSQL backend, of the crate `zlock-postgres`, and the fence of a guard.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use crate::fence::PostgresFence;
    #[doc(no_inline)]
    pub use zlock_postgres::{Fence, PostgresBackend, PostgresOptions, Replication, schema_sql};
}
/// The ZooKeeper backend, of the crate `zlock-zk`.
#[cfg(feature = "zk")]
pub mod zk {
    #[doc(no_inline)]
    pub use zlock_zk::{Acl, AuthId, Permission, ZkBackend, ZkOptions};
}
