#![doc = include_str!("../README.md")]

mod backend;
mod config;
mod error;
mod groups;
mod operations;
mod queues;
mod session;
mod values;
mod watches;

pub use backend::ZkBackend;
pub use config::ZkOptions;
pub use zookeeper_client::{Acl, AuthId, Permission};

/// The rules about a client that is alone with a lock as a pure state, so that zlock's own model checker can run it as it is.
/// It may change with any version; users of locks do not need it.
#[cfg(feature = "unstable")]
pub mod unstable {
    pub use crate::queues::alone::{Plan, Queues, Trusted};
}
