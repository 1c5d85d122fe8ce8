//! PostgreSQL as a ledger, without the engine: each request against a real server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod batches;
mod fences;
mod hints;
mod history;
mod patience;
mod schema;
mod sessions;
mod setup;
mod transactions;
