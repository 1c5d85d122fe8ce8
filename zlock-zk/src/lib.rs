#![doc = include_str!("../README.md")]

mod alone;
mod arm;
mod backend;
mod config;
mod connect;
mod contents;
mod create;
mod credentials;
mod delete;
mod disagreement;
mod error;
mod gate;
mod heartbeat;
mod home;
mod in_flight;
mod listings;
mod manager;
mod numbers;
mod operation;
mod pages;
mod parents;
mod read;
mod relabel;
mod session;
mod staleness;
mod states;
#[cfg(feature = "tls")]
mod tls;
mod touches;
mod watch;
mod watchers;
mod watching;
mod write;

pub use backend::ZkBackend;
pub use config::ZkOptions;
pub use zookeeper_client::{Acl, AuthId, Permission};
