//! The requests that begin, keep and end a session.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::types::ToSql;
use zlock_core::NodeId;
use zlock_core::kit::SessionKey;

use crate::connection::statement;
use crate::error::Failure;
use crate::session::death::clean;
use crate::session::shared::{Shared, session_id};

/// The timeout of a session at rest, which owns nothing.
pub(crate) const REST: Duration = Duration::from_secs(600);

fn rest_millis() -> i64 {
    i64::try_from(REST.as_millis()).unwrap_or(i64::MAX)
}

/// A session that has begun at the server, at rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) id: i64,
    pub(crate) sent: Instant,
}

/// Begins a session. The ID is of our choice, so that a lost answer does no harm.
pub(crate) async fn begin(shared: &Shared, limit: Duration) -> Result<Begun, Failure> {
    let id = fastrand::i64(1..);
    let link = shared.heart.link().await?;
    let sent = Instant::now();
    let (ttl, rest, is_sync) = (shared.options.ttl_millis(), rest_millis(), shared.is_sync());
    link.ask(limit, &statement::BEGIN, &[&id, &ttl, &rest, &is_sync]).await?;
    Ok(Begun { id, sent })
}

/// Ends a session and removes its nodes. It is not an error if it is over already.
///
/// # Errors
/// Also if a fence protects one of its nodes.
pub(crate) async fn end(shared: &Arc<Shared>, id: i64, limit: Duration) -> Result<(), Failure> {
    shared.heart.link().await?.ask(limit, &statement::END, &[&id]).await?;
    clean(shared, id).await
}

/// Keeps a session alive, and compares its nodes with those that it is known to have. Returns whether it rests at the server, or
/// `None` if it is over.
pub(crate) async fn beat(
    shared: &Shared,
    session: SessionKey,
    at_rest: bool,
) -> Result<Option<bool>, Failure> {
    let own = shared.sessions.own();
    let mark = own.mark();
    let link = shared.heart.link().await?;
    let (id, ttl, is_sync) = (session_id(session), shared.options.ttl_millis(), shared.is_sync());
    let rest = at_rest.then(rest_millis);
    let known: Vec<_> = own.node_ids().iter().map(ToString::to_string).collect();
    let params: [&(dyn ToSql + Sync); 5] = [&id, &ttl, &rest, &is_sync, &known];
    let rows = link.ask(shared.options.kit.beat_time(), &statement::BEAT, &params).await?;
    let row = rows.first().ok_or(Failure::Malformed)?;
    let (outcome, nodes): (i32, Vec<String>) =
        (row.try_get(0).map_err(Failure::Postgres)?, row.try_get(1).map_err(Failure::Postgres)?);
    if outcome != 0 {
        return Ok(None);
    }
    let present: BTreeSet<_> = nodes.into_iter().map(NodeId::new).collect();
    own.compare(mark, &present);
    row.try_get(2).map(Some).map_err(Failure::Postgres)
}
