#![doc = include_str!("../README.md")]

mod backend;
mod config;
mod connection;
mod error;
mod fence;
mod groups;
mod operations;
mod schema;
mod session;
mod values;
mod watches;

pub use backend::PostgresBackend;
pub use config::{PostgresOptions, Replication};
pub use fence::Fence;
pub use schema::schema_sql;
