//! The end of other clients' sessions, and the removal of what they owned.

use std::sync::Arc;

use crate::connection::statement;
use crate::error::Failure;
use crate::session::shared::Shared;

/// Removes the nodes of a session that is over, and wakes who waits behind them. Each client that finds such a node does that, so a client
/// that stops in the middle does no harm.
///
/// # Errors
/// Also if a fence protects a node, which stays until the transaction ends.
pub(crate) async fn clean(shared: &Arc<Shared>, id: i64) -> Result<(), Failure> {
    loop {
        let rows = shared.ask(&statement::CLEAN, &[&id]).await?;
        if rows.is_empty() {
            return Ok(());
        }
        for row in rows {
            let node: Option<String> = row.try_get(0).map_err(Failure::Postgres)?;
            let Some(node) = node else { return Err(Failure::Fenced) };
            let wake: Vec<i64> = row.try_get(1).map_err(Failure::Postgres)?;
            shared.wake('d', &node, &wake).await;
        }
    }
}

/// Ends a session of which no other beat than this one was seen for the session's timeout, by the clock of this process.
pub(crate) async fn expire(shared: &Arc<Shared>, id: i64, beat: i64) -> Result<(), Failure> {
    let rows = shared.ask(&statement::EXPIRE, &[&id, &beat]).await?;
    finish(shared, id, rows.first()).await.map(drop)
}

/// Marks a session that is overdue by the server's clock, or ends it if it was marked for the session's timeout. Returns `true`
/// if it is over.
///
/// A process that ends soon never watches a session for long enough to [`expire`] it.
pub(crate) async fn suspect(shared: &Arc<Shared>, id: i64) -> Result<bool, Failure> {
    let rows = shared.ask(&statement::SUSPECT, &[&id]).await?;
    finish(shared, id, rows.first()).await
}

async fn finish(shared: &Arc<Shared>, id: i64, row: Option<&tokio_postgres::Row>) -> Result<bool, Failure> {
    let is_over: bool = row.ok_or(Failure::Malformed)?.try_get(0).map_err(Failure::Postgres)?;
    if is_over {
        tracing::info!(session = format!("{id:#x}"), "the session of another client is over");
        clean(shared, id).await?;
    }
    Ok(is_over)
}

/// Looks for sessions that nobody waits for, so that the rows of dead clients do not pile up.
pub(crate) async fn sweep(shared: &Arc<Shared>) -> Result<(), Failure> {
    loop {
        let (rows, mut is_done) = (shared.ask(&statement::OVERDUE, &[]).await?, true);
        for row in &rows {
            let id = row.try_get(0).map_err(Failure::Postgres)?;
            match suspect(shared, id).await {
                // Not among the next ones.
                Ok(_) => is_done = false,
                Err(Failure::Fenced) => {}
                Err(failure) => return Err(failure),
            }
        }
        if is_done {
            return Ok(());
        }
    }
}
