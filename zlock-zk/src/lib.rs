#![doc = include_str!("../README.md")]

mod backend;
mod config;
mod error;
mod operations;
mod queues;
mod session;
mod watches;

pub use backend::ZkBackend;
pub use config::ZkOptions;
pub use zookeeper_client::{Acl, AuthId, Permission};
