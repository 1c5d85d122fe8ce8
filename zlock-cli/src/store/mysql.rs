//! Requests to MySQL and MariaDB beyond those of locks. All of them are reads.

use std::sync::Arc;

use mysql_async::prelude::Queryable;
use zlock::LockPath;
use zlock::backend::CoordinationBackend;
use zlock::mysql::MysqlOptions;

use super::lookup::Lookups;
use super::{Count, Row};
use crate::exit::Failure;

/// Calls `row` with each lock below a path.
pub(super) async fn each_lock(
    options: &MysqlOptions,
    backend: &Arc<dyn CoordinationBackend>,
    prefix: Option<&LockPath>,
    row: impl FnMut(Row) -> Result<(), Failure>,
) -> Result<Count, Failure> {
    let mut client = options.connect_client().await?;
    let below = [options.prefix(), prefix.map_or("", LockPath::as_str)].concat();
    let found: Vec<(Vec<u8>, i64, bool)> =
        client.exec("CALL zlock_locks(?)", (below,)).await.map_err(failed)?;
    let mut lookups = Lookups::new(backend, row);
    for (path, nodes, has_doubtful) in found {
        if let Some(path) = relative(options, &path) {
            // A look at the queue finds out whether a session is over.
            lookups.add(path, nodes > 1 || has_doubtful).await?;
        }
    }
    lookups.finish().await?;
    Ok(Count::default())
}

/// Calls `found` with the path of each job below a path.
pub(super) async fn each_job(
    options: &MysqlOptions,
    prefix: Option<&LockPath>,
    mut found: impl AsyncFnMut(LockPath) -> Result<(), Failure>,
) -> Result<Count, Failure> {
    let mut client = options.connect_client().await?;
    let below = [options.prefix(), prefix.map_or("", LockPath::as_str)].concat();
    let jobs: Vec<Vec<u8>> = client.exec("CALL zlock_jobs(?)", (below,)).await.map_err(failed)?;
    for path in jobs {
        if let Some(path) = relative(options, &path) {
            found(path).await?;
        }
    }
    Ok(Count::default())
}

fn relative(options: &MysqlOptions, path: &[u8]) -> Option<LockPath> {
    LockPath::new(std::str::from_utf8(path).ok()?.strip_prefix(options.prefix())?).ok()
}

pub(crate) fn failed(error: mysql_async::Error) -> Failure {
    Failure::failed(match error {
        mysql_async::Error::Server(found) => format!("MySQL: {}", found.message),
        error => format!("MySQL: {error}"),
    })
}
