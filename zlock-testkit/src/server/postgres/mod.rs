//! PostgreSQL servers, from the bottom: `layout`, `psql` and `template`, `server`, and the others.

mod bouncer;
mod builder;
mod disaster;
mod layout;
mod psql;
mod replica;
mod server;
mod template;

use std::sync::OnceLock;

pub use self::bouncer::PgBouncer;
pub use self::builder::PostgresBuilder;
pub use self::server::PostgresServer;
use super::programs::Programs;

/// Returns what is missing to run PostgreSQL, and how to install it.
pub(crate) fn missing() -> Option<String> {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    MISSING.get_or_init(|| Programs::selected().missing_postgres()).clone()
}

/// Returns what is missing to run PgBouncer, and how to install it.
pub(crate) fn missing_bouncer() -> Option<String> {
    missing().or_else(|| Programs::selected().missing_pgbouncer())
}
