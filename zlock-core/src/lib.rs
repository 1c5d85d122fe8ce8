#![doc = include_str!("../README.md")]

mod contract;
mod error;
mod fenced;
pub mod kit;
mod mutex;
mod nodes;
pub mod observer;
pub mod probe;
mod retry;
mod runtime_thread;
mod session;
mod settings;
mod signal;

/// The attribute that implementations of [`CoordinationBackend`] need.
#[doc(no_inline)]
pub use async_trait::async_trait;
pub use contract::backend::{
    Close, CoordinationBackend, Created, CreatedQueue, DataWrite, Deletion, Existence, Head, IntoBackend,
    MAX_DATA, Needs, Target,
};
pub use contract::background::{Background, Job};
pub use contract::connector::Connector;
pub use contract::groups::{Groups, Joined, ListedMember, MemberContents, Registration};
pub use contract::history::{Class, StoreHistory, StoreSettings};
pub use contract::values::{Consistency, GuardNode, Value, Values, Version, WriteOutcome};
pub use contract::watch::{Watch, WatchEvent};
pub use error::excerpt::Excerpt;
pub use error::failure::LastFailure;
pub use error::{Error, ErrorKind, Phase, Result};
pub use fenced::FencedStorage;
pub use mutex::Mutex;
pub use nodes::label::Label;
pub use nodes::name::{NodeName, ParsedName};
pub use nodes::node::{FencingToken, Node, NodeData, REVOKE};
pub use nodes::node_id::{NodeId, NodeIds};
pub use nodes::own_nodes::{DeletionNotice, Hidden, OwnNodes};
pub use nodes::path::LockPath;
pub use nodes::queue::{Predecessor, Queue};
pub use nodes::sequence::Sequence;
pub use retry::{Retry, RetryPolicy};
pub use runtime_thread::{RuntimeThread, with_dedicated_thread};
pub use session::events::SessionEvents;
pub use session::listener::SessionListener;
pub use session::{CloseReason, Session, SessionId, SessionState, SessionTerms};
pub use settings::environment::Environment;
pub use settings::text_or_file::TextOrFile;
pub use settings::url::{ConnectUrl, Host};
pub use signal::{Flag, Signal};
