//! Writing a node's data.

use std::ops::ControlFlow::Break;

use zlock_core::kit::{Attempt, SessionKey};
use zlock_core::{Node, Replaced};

use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::{Attempted, Operation};

/// Writes the data of a node.
pub(crate) struct SetData<'a> {
    pub(crate) node: &'a Node,
    pub(crate) data: &'a [u8],
}

impl<'o> Attempt<Operation<'o>, Failure> for SetData<'_> {
    type Output = ();

    async fn attempt(&mut self, operation: &mut Operation<'o>, session: SessionKey) -> Attempted<()> {
        let id = self.node.id.as_str();
        if !self.node.id.is_uuid() {
            return Err(operation.node_deleted(&self.node.id));
        }
        let path = operation.path.clone();
        let params: Params<'_> = &[&path, &id, &self.data];
        let rows = operation.write(session, &statement::SET_DATA, params).await?;
        let owner: Option<i64> =
            rows.first().ok_or(Failure::Malformed)?.try_get(0).map_err(Failure::Postgres)?;
        let Some(owner) = owner else { return Err(operation.node_deleted(&self.node.id)) };
        operation.shared.wake('c', id, &[owner]).await;
        Ok(Break(()))
    }
}

/// Writes the data of a candidate if it was written this often.
pub(crate) struct Replace<'a> {
    pub(crate) node: &'a Node,
    pub(crate) writes: u64,
    pub(crate) data: &'a [u8],
}

impl<'o> Attempt<Operation<'o>, Failure> for Replace<'_> {
    type Output = Replaced;

    async fn attempt(&mut self, operation: &mut Operation<'o>, session: SessionKey) -> Attempted<Replaced> {
        let id = self.node.id.as_str();
        if !self.node.id.is_uuid() {
            return Err(operation.node_deleted(&self.node.id));
        }
        let path = operation.path.clone();
        let writes = i64::try_from(self.writes).unwrap_or(i64::MAX);
        let params: Params<'_> = &[&path, &id, &writes, &self.data];
        let rows = operation.write(session, &statement::REPLACE_DATA, params).await?;
        let Some(row) = rows.first() else { return Err(operation.node_deleted(&self.node.id)) };
        let owner: i64 = row.try_get(0).map_err(Failure::Postgres)?;
        let now = row.try_get::<_, i64>(1).map_err(Failure::Postgres)?.cast_unsigned();
        if now == self.writes {
            operation.shared.wake('c', id, &[owner]).await;
            return Ok(Break(Replaced::Written));
        }
        let has_data: bool = row.try_get(2).map_err(Failure::Postgres)?;
        // By an earlier attempt whose answer was lost.
        let is_ours = operation.budget.ambiguous && now == self.writes + 1 && has_data;
        Ok(Break(if is_ours { Replaced::Written } else { Replaced::Conflict(now) }))
    }
}
