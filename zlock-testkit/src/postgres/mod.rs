//! What tests of PostgreSQL share.

mod raw;
mod store;

use std::time::Duration;

use tokio_postgres::{Client, Config, NoTls};
use zlock_core::{LockPath, SessionId};
use zlock_postgres::{PostgresBackend, PostgresOptions};

pub use self::raw::sqlstate;
pub use self::store::PostgresStore;
pub use crate::backends::{
    connected, create, lost_and_gone, path, record_states, release, suspended, token, watch,
};
use crate::{FaultProxy, PostgresServer};

/// The timeout of sessions in tests about sessions.
pub const TTL: Duration = Duration::from_secs(4);

/// Returns the options of a backend on this address of a server. The backend creates the schema.
#[must_use]
pub fn options(address: &str) -> PostgresOptions {
    PostgresOptions::new([address])
        .with_user("zlock", None)
        .with_database("zlock")
        .with_ttl(TTL)
        .with_create_schema(true)
}

/// Connects a backend.
///
/// # Panics
/// Panics if that fails.
pub async fn backend(server: &PostgresServer) -> PostgresBackend {
    PostgresBackend::connect(options(&server.addr().to_string())).await.unwrap()
}

/// Connects a client of the library as the operator, to inspect and change the store.
///
/// # Panics
/// Panics if that fails.
pub async fn observer(server: &PostgresServer) -> Client {
    let mut config = Config::new();
    config.host(server.addr().ip().to_string()).port(server.addr().port());
    config.user("postgres").dbname("zlock").application_name("observer");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Returns what is at a path and directly below it, without the values' parents: the IDs of nodes, and the names of members and
/// values.
///
/// # Panics
/// Panics if the server does not answer.
pub async fn names(observer: &Client, path: &LockPath) -> Vec<String> {
    let sql =
        "SELECT convert_from(key, 'UTF8') FROM zlock.entry WHERE kind < 2 AND path = convert_to($1, 'UTF8')
               UNION ALL SELECT name FROM (
                   SELECT substr(convert_from(path, 'UTF8'), length($1) + 2) AS name FROM zlock.entry
                   WHERE kind = 2 AND starts_with(convert_from(path, 'UTF8'), $1 || '/')) v
               WHERE position('/' IN name) = 0";
    let rows = observer.query(sql, &[&path.as_str()]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Deletes what is at a path with this name, and every value below it.
///
/// # Panics
/// Panics if the server does not answer.
pub async fn remove(observer: &Client, parent: &LockPath, name: &str) {
    let sql = "DELETE FROM zlock.entry WHERE path = convert_to($1, 'UTF8') AND key = convert_to($2, 'UTF8') AND kind < 2
               OR kind = 2 AND (path = convert_to($1 || '/' || $2, 'UTF8')
                   OR starts_with(convert_from(path, 'UTF8'), $1 || '/' || $2 || '/'))";
    observer.execute(sql, &[&parent.as_str(), &name]).await.unwrap();
}

/// Ends a session at the server, with everything that it owns.
///
/// # Panics
/// Panics if the server does not answer.
pub async fn end_session(observer: &Client, id: SessionId) {
    let id = id.get().cast_signed();
    let sql = "SELECT * FROM zlock.v2_end(ARRAY[$1]::bigint[], ARRAY[NULL]::bigint[], '{}')";
    while observer.query_one(sql, &[&id]).await.unwrap().get::<_, i32>(0) != 0 {}
}

/// A backend behind a proxy, and an observer with a direct connection.
pub struct Linked {
    /// Between the backend and the server.
    pub proxy: FaultProxy,
    /// The backend.
    pub backend: PostgresBackend,
    /// A client of the library.
    pub observer: Client,
}

impl std::fmt::Debug for Linked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Linked").field("backend", &self.backend).finish_non_exhaustive()
    }
}

/// Connects a backend through a proxy.
///
/// # Panics
/// Panics if that fails.
pub async fn linked(server: &PostgresServer) -> Linked {
    linked_with(server, |options| options).await
}

/// Connects a backend with other options through a proxy.
///
/// # Panics
/// Panics if that fails.
pub async fn linked_with(
    server: &PostgresServer,
    with: impl FnOnce(PostgresOptions) -> PostgresOptions,
) -> Linked {
    let proxy = FaultProxy::start(server.addr()).await;
    let backend = PostgresBackend::connect(with(options(&proxy.connect_string()))).await.unwrap();
    Linked { proxy, backend, observer: observer(server).await }
}
