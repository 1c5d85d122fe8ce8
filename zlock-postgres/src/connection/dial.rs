//! Making a connection.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_postgres::NoTls;

use crate::config::PostgresOptions;
use crate::connection::link::{Link, OnNotification};
use crate::connection::statement;
use crate::error::Failure;
use crate::schema::{OBJECTS, VERSION};

/// The time that creating the schema may take.
const SCHEMA_TIME: Duration = Duration::from_secs(15);

/// Connects with the first host that accepts writes.
pub(crate) async fn dial(
    options: &PostgresOptions,
    runtime: &Handle,
    limit: Duration,
    on_notification: Option<OnNotification>,
) -> Result<Link, Failure> {
    let config = options.library_config().await.map_err(Failure::NoWay)?;
    let pooled = options.pooled;
    let dialled = async {
        #[cfg(feature = "tls")]
        if let Some(connector) = options.connector().await.map_err(Failure::NoWay)? {
            let (client, connection) = config.connect(connector).await.map_err(Failure::Connect)?;
            return Ok(Link::start(client, connection, pooled, runtime, on_notification));
        }
        let (client, connection) = config.connect(NoTls).await.map_err(Failure::Connect)?;
        Ok(Link::start(client, connection, pooled, runtime, on_notification))
    };
    timeout(limit, dialled).await.unwrap_or(Err(Failure::Silent))
}

/// Makes sure that the database has the schema that this client needs.
pub(crate) async fn check_schema(
    options: &PostgresOptions,
    link: &Link,
    limit: Duration,
) -> Result<(), Failure> {
    let found = match link.ask(limit, &statement::VERSION, &[]).await {
        Ok(rows) => {
            rows.first().map(|row| row.try_get::<_, i32>(0)).transpose().map_err(Failure::Postgres)?
        }
        Err(failure) if failure.is_of_a_missing_schema() && options.create_schema => None,
        Err(failure) => return Err(failure),
    };
    match found {
        Some(VERSION) => Ok(()),
        None if options.create_schema => {
            // Several statements in one message are one transaction.
            let sql = ["SELECT pg_advisory_xact_lock(2053861222, 0);\n", OBJECTS].concat();
            link.execute(SCHEMA_TIME, &sql).await
        }
        found => Err(Failure::Schema(found.unwrap_or_default())),
    }
}
