//! Reading without a watch.

use std::time::{Duration, SystemTime};

use tokio_postgres::Row;
use zlock_core::kit::SessionKey;
use zlock_core::{FencingToken, Node, NodeData, Queue, SessionId};

use super::listing;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::Operation;
use crate::session::shared::session_id;

/// Lists a queue.
pub(crate) async fn list(operation: &Operation<'_>, session: SessionKey) -> Result<Queue, Failure> {
    Ok(listing::queue(&operation.list(session, i64::MAX, None).await?))
}

/// Lists the own node and the node right before it.
pub(crate) async fn list_up_to(
    operation: &Operation<'_>,
    session: SessionKey,
    node: &Node,
) -> Result<Queue, Failure> {
    let listed = operation.list(session, node.sequence.get(), Some(2)).await?;
    if !listed.iter().any(|listed| listed.id == node.id.as_str()) {
        operation.missed(&node.id);
    }
    Ok(listing::queue(&listed))
}

/// A node that was read.
#[derive(Debug)]
pub(crate) struct ReadNode {
    pub(crate) label: String,
    pub(crate) seq: i64,
    pub(crate) owner: i64,
    pub(crate) version: i64,
    pub(crate) data: Vec<u8>,
    created: i64,
}

impl ReadNode {
    fn parse(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(ReadNode {
            seq: row.try_get(0)?,
            label: row.try_get(1)?,
            owner: row.try_get(2)?,
            version: row.try_get(6)?,
            data: row.try_get(7)?,
            created: row.try_get(8)?,
        })
    }

    pub(crate) fn node(&self, id: &str) -> Node {
        listing::node(id, listing::label(&self.label), self.seq, self.owner)
    }
}

/// Reads a node by its ID.
pub(crate) async fn read_node(
    operation: &Operation<'_>,
    session: SessionKey,
    node: &Node,
) -> Result<Option<ReadNode>, Failure> {
    let (own, id, is_sync) = (session_id(session), node.id.as_str(), operation.shared.is_sync());
    if !node.id.is_uuid() {
        return Ok(None);
    }
    let rows = operation.read(session, &statement::NODE, &[&own, &operation.path, &id, &is_sync]).await?;
    let read = rows.first().map(ReadNode::parse).transpose().map_err(Failure::Postgres)?;
    if read.is_none() {
        operation.missed(&node.id);
    }
    Ok(read)
}

/// Reads the data of a node.
pub(crate) async fn content(
    operation: &Operation<'_>,
    session: SessionKey,
    node: &Node,
) -> Result<Option<NodeData>, Failure> {
    let read = read_node(operation, session, node).await?;
    Ok(read.map(|read| {
        let created = Duration::from_micros(read.created.max(0).cast_unsigned());
        NodeData::new(read.data, Some(SessionId::new(read.owner.cast_unsigned())))
            .with_created(SystemTime::UNIX_EPOCH + created)
            .with_fencing_token(FencingToken::new(read.seq.cast_unsigned()))
    }))
}
