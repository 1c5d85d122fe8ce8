#![doc = include_str!("../README.md")]

mod backend;
mod background;
mod environment;
mod error;
mod excerpt;
mod failure;
pub mod kit;
mod label;
mod name;
mod node;
mod node_id;
pub mod observer;
mod own_nodes;
mod path;
pub mod probe;
mod queue;
mod retry;
mod runtime_thread;
mod sequence;
mod session;
mod session_events;
mod session_listener;
mod session_publisher;
mod session_reporter;
mod session_shared;
mod text_or_file;
mod url;
mod watch;

/// The attribute that implementations of [`CoordinationBackend`] need.
#[doc(no_inline)]
pub use async_trait::async_trait;
pub use backend::{Close, CoordinationBackend, Created, CreatedQueue, Deletion, Existence, HandOver, Target};
pub use background::{Background, Job};
pub use environment::Environment;
pub use error::{Error, ErrorKind, Phase, Result};
pub use excerpt::Excerpt;
pub use failure::LastFailure;
pub use label::Label;
pub use name::{NodeName, ParsedName};
pub use node::{FencingToken, Node, NodeData};
pub use node_id::{NodeId, NodeIds};
pub use own_nodes::{DeletionNotice, Hidden, OwnNodes};
pub use path::LockPath;
pub use queue::{Predecessor, Queue};
pub use retry::{Retry, RetryPolicy};
pub use runtime_thread::{RuntimeThread, with_dedicated_thread};
pub use sequence::Sequence;
pub use session::{CloseReason, Session, SessionId, SessionState, SessionTerms};
pub use session_events::SessionEvents;
pub use session_listener::SessionListener;
pub use session_publisher::SessionPublisher;
pub use text_or_file::TextOrFile;
pub use url::{ConnectUrl, Host};
pub use watch::{Watch, WatchEvent};
