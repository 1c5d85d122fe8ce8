//! The rows of a listing.

use tokio_postgres::Row;
use zlock_core::kit::parse_label;
use zlock_core::{FencingToken, Label, Node, NodeId, NodeName, Queue, Sequence, SessionId};

use crate::error::Failure;

/// A node that was listed.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) seq: i64,
    pub(crate) label: String,
    pub(crate) id: String,
    pub(crate) owner: i64,
    /// The last beat of the owner and its timeout in milliseconds. `None` if the owner's session is over.
    pub(crate) beat: Option<(i64, i64)>,
    /// Whether the owner's session is over or overdue.
    pub(crate) is_suspect: bool,
}

/// Parses the rows of a listing, which are in descending order, and returns them in the order of the queue.
pub(crate) fn parse(rows: &[Row]) -> Result<Vec<Listed>, Failure> {
    rows.iter().rev().map(|row| listed(row).map_err(Failure::Postgres)).collect()
}

fn listed(row: &Row) -> Result<Listed, tokio_postgres::Error> {
    let (beat, ttl): (Option<i64>, Option<i64>) = (row.try_get(4)?, row.try_get(5)?);
    Ok(Listed {
        seq: row.try_get(0)?,
        label: row.try_get(1)?,
        id: row.try_get(2)?,
        owner: row.try_get(3)?,
        beat: beat.zip(ttl),
        is_suspect: row.try_get::<_, i32>(6)? > 0,
    })
}

/// Returns the label with this text. One that this version does not know excludes all other nodes.
pub(crate) fn label(text: &str) -> Label {
    parse_label(text).unwrap_or(Label::Lock)
}

impl Listed {
    pub(crate) fn node(&self) -> Node {
        node(&self.id, label(&self.label), self.seq, self.owner)
    }
}

/// Returns a node. Its name is its ID.
pub(crate) fn node(id: &str, label: Label, seq: i64, owner: i64) -> Node {
    let session = SessionId::new(owner.cast_unsigned());
    Node::new(NodeName::new(id), NodeId::new(id), label, Sequence::new(seq))
        .with_owner(Some(session), FencingToken::new(seq.cast_unsigned()))
}

pub(crate) fn queue(listed: &[Listed]) -> Queue {
    Queue::linear(listed.iter().map(Listed::node).collect())
}

/// Returns the contents of a queue as a poll returns them; `None` if it is empty.
pub(crate) fn contents(listed: &[Listed]) -> Option<String> {
    let nodes: Vec<_> = listed.iter().map(|node| format!("{} {}", node.seq, node.label)).collect();
    (!nodes.is_empty()).then(|| nodes.join(","))
}
