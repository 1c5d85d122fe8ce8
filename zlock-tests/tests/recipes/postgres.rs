//! The recipe suite on a real PostgreSQL.

mod server;

use zlock_testkit::postgres::PostgresStore;

server::suites!(PostgresStore, shared, except[names]);
