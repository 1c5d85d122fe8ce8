//! Writing a node's data.

use zlock_core::kit::SessionKey;
use zlock_core::{DataWrite, Node};

use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::Operation;

/// Writes the data of a node.
pub(crate) async fn set(
    operation: &mut Operation<'_>,
    session: SessionKey,
    node: &Node,
    data: &[u8],
) -> Result<DataWrite, Failure> {
    let id = node.id.as_str();
    if !node.id.is_uuid() {
        return Err(operation.node_deleted(&node.id));
    }
    let path = operation.path.clone();
    let params: Params<'_> = &[&path, &id, &data];
    let rows = operation.write(session, &statement::SET_DATA, params).await?;
    let owner: Option<i64> = rows.first().ok_or(Failure::Malformed)?.try_get(0).map_err(Failure::Postgres)?;
    let Some(owner) = owner else { return Err(operation.node_deleted(&node.id)) };
    operation.shared.wake('c', id, &[owner]).await;
    Ok(DataWrite::Written)
}

/// Writes the data of a candidate if it was written this often.
pub(crate) async fn replace(
    operation: &mut Operation<'_>,
    session: SessionKey,
    node: &Node,
    writes: u64,
    data: &[u8],
) -> Result<DataWrite, Failure> {
    let id = node.id.as_str();
    if !node.id.is_uuid() {
        return Err(operation.node_deleted(&node.id));
    }
    let path = operation.path.clone();
    let expected = i64::try_from(writes).unwrap_or(i64::MAX);
    let params: Params<'_> = &[&path, &id, &expected, &data];
    let rows = operation.write(session, &statement::REPLACE_DATA, params).await?;
    let Some(row) = rows.first() else { return Err(operation.node_deleted(&node.id)) };
    let owner: i64 = row.try_get(0).map_err(Failure::Postgres)?;
    let now = row.try_get::<_, i64>(1).map_err(Failure::Postgres)?.cast_unsigned();
    if now == writes {
        operation.shared.wake('c', id, &[owner]).await;
        return Ok(DataWrite::Written);
    }
    let has_data: bool = row.try_get(2).map_err(Failure::Postgres)?;
    // By an earlier attempt whose answer was lost.
    let is_ours = operation.budget.ambiguous && now == writes + 1 && has_data;
    Ok(if is_ours { DataWrite::Written } else { DataWrite::Conflict(now) })
}
