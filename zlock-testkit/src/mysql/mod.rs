//! What tests of MySQL and MariaDB share.

mod replica;
mod store;

use std::time::Duration;

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, OptsBuilder, Params};
use zlock_core::{ErrorKind, LockPath, SessionId};
use zlock_mysql::{MysqlBackend, MysqlOptions};
use zlock_recipes::{Client, Guard};

pub use self::replica::{catch_up, cut_off, follow, promote};
pub use self::store::MysqlStore;
use crate::MariaDb;
pub use crate::backends::{
    connected, create, lost_and_gone, path, record_states, release, suspended, token, watch,
};

/// The timeout of sessions in tests about sessions.
pub const TTL: Duration = Duration::from_secs(4);

/// Returns the options of a backend on this address of a server. The backend creates the schema.
#[must_use]
pub fn options(address: &str) -> MysqlOptions {
    MysqlOptions::new([address])
        .with_user("zlock", None)
        .with_database("zlock")
        .with_ttl(TTL)
        .with_create_schema(true)
}

/// Connects a backend.
///
/// # Panics
/// Panics if that fails.
pub async fn backend(server: &MariaDb) -> MysqlBackend {
    MysqlBackend::connect(options(&server.addr().to_string())).await.unwrap()
}

/// Acquires a lock. Waits out restarts, failovers and quiet time.
///
/// # Panics
/// Panics on any other error.
pub async fn eventually(client: &Client, lock: &str) -> Guard {
    let mutex = client.mutex(lock).unwrap();
    loop {
        match mutex.acquire().await {
            Ok(guard) => return guard,
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Unavailable | ErrorKind::SessionLost | ErrorKind::Settling
                ) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Executes a statement as the operator, in the database of the tests. Returns the rows.
///
/// # Panics
/// Panics with the server's message if it fails.
pub async fn sql<T: FromRow + Send + 'static>(
    server: &MariaDb,
    statement: &str,
    params: impl Into<Params> + Send,
) -> Vec<T> {
    try_sql(server, statement, params).await.unwrap_or_else(|error| panic!("{statement}: {error}"))
}

/// [`sql`] that may fail.
///
/// # Errors
/// Those of the library.
pub async fn try_sql<T: FromRow + Send + 'static>(
    server: &MariaDb,
    statement: &str,
    params: impl Into<Params> + Send,
) -> mysql_async::Result<Vec<T>> {
    let host = server.addr();
    let opts = OptsBuilder::default()
        .ip_or_hostname(host.ip().to_string())
        .tcp_port(host.port())
        .prefer_socket(false);
    let mut conn = Conn::new(opts.user(Some("root")).db_name(Some("zlock"))).await?;
    let rows = conn.exec(statement, params).await?;
    conn.disconnect().await?;
    Ok(rows)
}

/// Returns what is at a path and directly below it, without the values' parents: the IDs of nodes, and the names of members and
/// values.
///
/// # Panics
/// Panics if the server does not answer.
pub async fn names(server: &MariaDb, path: &LockPath) -> Vec<String> {
    let found = "SELECT CONVERT(name USING utf8mb4) FROM zlock_entry WHERE kind < 2 AND path = ?";
    let mut names: Vec<String> = sql(server, found, (path.as_str().as_bytes(),)).await;
    let below =
        "SELECT CONVERT(path USING utf8mb4) FROM zlock_entry WHERE kind = 2 AND LEFT(path, LENGTH(?)) = ?";
    let prefix = format!("{path}/");
    let values: Vec<String> = sql(server, below, (prefix.as_bytes(), prefix.as_bytes())).await;
    let direct =
        values.iter().filter_map(|value| value.strip_prefix(&prefix)).filter(|name| !name.contains('/'));
    names.extend(direct.map(str::to_owned));
    names
}

/// Deletes what is at a path with this name, and every value below it.
///
/// # Panics
/// Panics if the server does not answer.
pub async fn remove(server: &MariaDb, parent: &LockPath, name: &str) {
    let at = format!("{parent}/{name}");
    let below = format!("{at}/");
    let gone = "SELECT LOWER(HEX(id)), stripe FROM zlock_entry WHERE kind < 2 AND path = ? AND name = ?
        OR kind = 2 AND (path = ? OR LEFT(path, LENGTH(?)) = ?)";
    let params =
        (parent.as_str().as_bytes(), name.as_bytes(), at.as_bytes(), below.as_bytes(), below.as_bytes());
    for (id, stripe) in sql::<(String, i64)>(server, gone, params).await {
        sql::<u8>(server, "DELETE FROM zlock_entry WHERE id = UNHEX(?)", (id,)).await;
        sql::<u8>(server, "UPDATE zlock_stripe SET living = living - 1 WHERE n = ?", (stripe,)).await;
    }
}

/// Ends a session at the server, with everything that it owns.
///
/// # Panics
/// Panics if the server does not answer.
pub async fn end_session(server: &MariaDb, id: SessionId) {
    try_end_session(server, id.get().cast_signed()).await.unwrap();
}

/// [`end_session`] that may fail. Returns `false` if there was no such session.
///
/// # Errors
/// Those of the library. The session may have ended.
pub async fn try_end_session(server: &MariaDb, id: i64) -> mysql_async::Result<bool> {
    let count: Vec<i64> = try_sql(server, "SELECT COUNT(*) FROM zlock_session WHERE id = ?", (id,)).await?;
    while try_sql::<i64>(server, "CALL zlock_end(?, NULL, '[]')", (id,)).await? != [0] {}
    Ok(count == [1])
}
