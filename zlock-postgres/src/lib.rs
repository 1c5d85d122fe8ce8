#![doc = include_str!("../README.md")]

mod adapter;
mod config;
mod connection;
mod error;
mod fence;
mod ledger_schema;

pub use adapter::PostgresLedger;
pub use config::{PostgresOptions, Replication};
pub use fence::Fence;
pub use ledger_schema::schema_sql;

/// A PostgreSQL database as a coordination store.
pub type PostgresBackend = zlock_ledger::LedgerBackend<PostgresLedger>;
