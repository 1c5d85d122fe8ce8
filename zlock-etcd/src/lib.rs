#![doc = include_str!("../README.md")]

mod backend;
mod config;
mod connection;
mod error;
mod keys;
mod operations;
mod requests;
mod session;
mod watches;

pub use backend::EtcdBackend;
pub use config::EtcdOptions;
