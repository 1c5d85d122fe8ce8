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
    TextOrFile, with_dedicated_thread,
};
pub use zlock_recipes::{
    Client, ClientBuilder, DowngradeError, DynLock, Guard, Handoff, Health, InterProcessMutex, Lock,
    LockContext, LockGuard, LockHandle, LockKind, LockTemplate, MAX_NODE_DATA, MultiGuard, MultiLock,
    Participant, PermitRequest, ReadLock, ReadWriteLock, Release, Scope, Semaphore, Shutdown, WriteGuard,
    WriteLock, kind,
};

/// For authors of backends: the trait to implement, and the types in its signatures.
pub mod backend {
    #[doc(no_inline)]
    pub use zlock_core::{
        Background, ConnectUrl, CoordinationBackend, Created, Deletion, DeletionNotice, Existence, HandOver,
        Hidden, Host, Job, Label, LastFailure, LockPath, Node, NodeData, NodeId, NodeIds, NodeName, OwnNodes,
        ParsedName, Predecessor, Queue, Sequence, SessionPublisher, Target, Watch, WatchEvent, async_trait,
        kit,
    };
    // For the command `zlock`.
    #[doc(hidden)]
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
