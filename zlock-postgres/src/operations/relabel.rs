//! Relabelling an own node.

use std::ops::ControlFlow::Break;
use std::sync::atomic::Ordering;

use zlock_core::Node;
use zlock_core::kit::{Attempt, SessionKey};

use super::label;
use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::{Attempted, Operation};
use crate::session::shared::{Shared, session_id};

/// Gives a node another label.
pub(crate) struct Relabel {
    /// The node as it will be.
    node: Node,
    /// A request with a smaller number has no effect after this one.
    number: i64,
}

impl Relabel {
    pub(crate) fn new(shared: &Shared, node: Node) -> Self {
        Relabel { node, number: shared.relabels.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

impl<'o> Attempt<Operation<'o>, Failure> for Relabel {
    type Output = Node;

    async fn attempt(&mut self, operation: &mut Operation<'o>, session: SessionKey) -> Attempted<Node> {
        let Relabel { node, number } = self;
        if node.session.is_some_and(|id| id != session.id) {
            return Err(Failure::OtherSession);
        }
        let (shared, until) = (operation.shared, operation.budget.deadline());
        let (own, id, is_sync) = (session_id(session), node.id.as_str(), shared.is_sync());
        let text = label::text(node.label);
        let params: Params<'_> = &[&own, &operation.path, &id, &text, number, &is_sync];
        let answer = shared.send(session, until, &statement::RELABEL, params).await;
        match operation.change('r', &node.id, answer).await? {
            0 => Ok(Break(node.clone())),
            _ => Err(operation.node_deleted(&node.id)),
        }
    }
}
