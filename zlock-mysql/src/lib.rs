#![doc = include_str!("../README.md")]

mod adapter;
mod config;
mod connection;
mod error;
mod fence;
mod schema;

pub use adapter::MysqlLedger;
pub use config::MysqlOptions;
pub use fence::Fence;
pub use schema::schema_sql;

/// A MySQL or MariaDB database as a coordination store.
pub type MysqlBackend = zlock_ledger::LedgerBackend<MysqlLedger>;
