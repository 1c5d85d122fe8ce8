//! Requests to PostgreSQL beyond those of locks. All of them are reads.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use tokio::time::timeout;
use tokio_postgres::Row as Answer;
use tokio_postgres::types::Type;
use zlock::LockPath;
use zlock::backend::CoordinationBackend;
use zlock::postgres::PostgresOptions;

use super::lookup::Lookups;
use super::{Count, Row};
use crate::exit::Failure;

/// The time limit for the next part of an answer.
const LIMIT: Duration = Duration::from_secs(60);

/// Calls `row` with each lock below a path.
pub(super) async fn each_lock(
    options: &PostgresOptions,
    backend: &Arc<dyn CoordinationBackend>,
    prefix: Option<&LockPath>,
    row: impl FnMut(Row) -> Result<(), Failure>,
) -> Result<Count, Failure> {
    let client = options.connect_client().await?;
    let below = [options.prefix(), prefix.map_or("", LockPath::as_str)].concat();
    let sql = "SELECT path, nodes, has_doubtful FROM zlock.locks($1)";
    let mut found = pin!(answered(client.query_typed_raw(sql, [(below, Type::TEXT)])).await?);
    let mut lookups = Lookups::new(backend, row);
    while let Some(lock) = answered(found.try_next()).await? {
        let (path, nodes, has_doubtful) = parse(&lock).map_err(failed)?;
        let path = path.strip_prefix(options.prefix()).and_then(|path| LockPath::new(path).ok());
        let Some(path) = path else { continue };
        // A look at the queue finds out whether a session is over.
        lookups.add(path, nodes > 1 || has_doubtful).await?;
    }
    lookups.finish().await?;
    Ok(Count::default())
}

/// Calls `found` with the path of each job below a path.
pub(super) async fn each_job(
    options: &PostgresOptions,
    prefix: Option<&LockPath>,
    mut found: impl AsyncFnMut(LockPath) -> Result<(), Failure>,
) -> Result<Count, Failure> {
    let client = options.connect_client().await?;
    let below = [options.prefix(), prefix.map_or("", LockPath::as_str)].concat();
    let sql = "SELECT path FROM zlock.jobs($1)";
    let mut jobs = pin!(answered(client.query_typed_raw(sql, [(below, Type::TEXT)])).await?);
    while let Some(job) = answered(jobs.try_next()).await? {
        let path: &str = job.try_get(0).map_err(failed)?;
        let path = path.strip_prefix(options.prefix()).and_then(|path| LockPath::new(path).ok());
        if let Some(path) = path {
            found(path).await?;
        }
    }
    Ok(Count::default())
}

/// Waits for an answer of the server, or a part of one.
async fn answered<T>(answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Failure> {
    let silent = |_| Failure::failed(format!("PostgreSQL: no answer within {LIMIT:?}"));
    timeout(LIMIT, answer).await.map_err(silent)?.map_err(failed)
}

fn parse(lock: &Answer) -> Result<(&str, i64, bool), tokio_postgres::Error> {
    Ok((lock.try_get(0)?, lock.try_get(1)?, lock.try_get(2)?))
}

/// The server's message, with its hint; or what the library says.
pub(crate) fn failed(error: tokio_postgres::Error) -> Failure {
    let Some(found) = error.as_db_error() else { return Failure::failed(format!("PostgreSQL: {error}")) };
    let hint = found.hint().map(|hint| format!(": {hint}")).unwrap_or_default();
    Failure::failed(format!("PostgreSQL: {}{hint}", found.message()))
}
