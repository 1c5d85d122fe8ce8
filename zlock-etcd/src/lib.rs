#![doc = include_str!("../README.md")]

mod backend;
mod config;
mod connection;
mod error;
mod groups;
mod keys;
mod operations;
mod requests;
mod session;
mod values;
mod watches;

pub use backend::EtcdBackend;
pub use config::EtcdOptions;

/// The rules about names as a pure state, so that zlock's own model checker can run it as it is. It may change with any
/// version; users of locks do not need it.
#[cfg(feature = "unstable")]
pub mod unstable {
    pub use crate::keys::names::{NamedPlace, Names};
}
