#![doc = include_str!("../README.md")]

mod backend;
mod batch;
mod breaks;
mod config;
mod connect;
mod contents;
mod create;
mod delete;
mod detached;
mod dial;
mod endpoint;
mod error;
mod fence;
mod grants;
mod key;
mod lease;
mod listings;
mod manager;
mod names;
mod operation;
mod pace;
mod read;
mod relabel;
mod renewal;
mod revision;
mod session;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod txn;
mod value;
mod watch;
mod write;

pub use backend::EtcdBackend;
pub use config::EtcdOptions;
