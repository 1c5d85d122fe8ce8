#![cfg_attr(feature = "mem", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(feature = "mem"),
    doc = "Distributed locks for Rust. See the README; its examples need the feature `mem`."
)]

pub mod blocking;
mod connect;
#[cfg(feature = "metrics")]
pub mod metrics;

pub use connect::{Connect, connect};
pub use zlock_core::{
    Close, CloseReason, Environment, Error, ErrorKind, FencingToken, Label, LockPath, NodeName, Phase,
    Result, RetryPolicy, Session, SessionEvents, SessionId, SessionListener, SessionState, SessionTerms,
    TextOrFile, Value, Version, with_dedicated_thread,
};
pub use zlock_recipes::{
    Client, ClientBuilder, CompareAndSet, Counter, CounterFormat, DowngradeError, DynLock, Freshness, Guard,
    Handoff, Health, InterProcessMutex, Lock, LockContext, LockGuard, LockHandle, LockKind, LockTemplate,
    MAX_NODE_DATA, MultiGuard, MultiLock, Participant, PermitRequest, ReadLock, ReadWriteLock, Release,
    Scope, Semaphore, SharedValue, Shutdown, ValueView, ValueWatch, WriteGuard, WriteLock, kind,
};

/// The contract between locks and stores, for programs that look at a store themselves, as the command `zlock` does: the trait
/// [`CoordinationBackend`](backend::CoordinationBackend), and what its operations take and return.
///
/// Any backend makes a [`Client`], so a program that only uses locks does not need this module. Authors of backends depend on
/// the crate `zlock-core`, which also has what backends are built of.
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
/// let queue = backend.children(&LockPath::new("/app/orders/42")?).await?;
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
        ConnectUrl, CoordinationBackend, Created, CreatedQueue, Deletion, DeletionNotice, Existence,
        GuardNode, HandOver, Label, LockPath, Node, NodeData, NodeId, NodeIds, NodeName, Queue, Sequence,
        Target, Values, Watch, WatchEvent, WriteOutcome,
    };
    #[doc(no_inline)]
    pub use zlock_recipes::holders;
}
/// The measurements of a client, and the trait that receives them.
pub mod observer {
    #[doc(inline)]
    pub use zlock_core::observer::{LockLabels, Observer, Outcome, RequestOutcome};
}
/// The etcd backend.
#[cfg(feature = "etcd")]
#[doc(no_inline)]
pub use zlock_etcd as etcd;
/// The embedded server, for tests without an external server.
#[cfg(feature = "mem")]
#[doc(no_inline)]
pub use zlock_mem as mem;
/// The ZooKeeper backend.
#[cfg(feature = "zk")]
#[doc(no_inline)]
pub use zlock_zk as zk;
