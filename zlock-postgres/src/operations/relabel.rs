//! Relabelling an own node.

use std::ops::ControlFlow::Break;

use zlock_core::Node;
use zlock_core::kit::{Attempt, SessionKey};

use super::label;
use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::{Attempted, Operation};
use crate::session::shared::session_id;

/// Gives a node another label. Contains the node as it will be.
pub(crate) struct Relabel(pub(crate) Node);

impl<'o> Attempt<Operation<'o>, Failure> for Relabel {
    type Output = Node;

    async fn attempt(&mut self, operation: &mut Operation<'o>, session: SessionKey) -> Attempted<Node> {
        let Relabel(node) = self;
        if node.session.is_some_and(|id| id != session.id) {
            return Err(Failure::OtherSession);
        }
        let (shared, until) = (operation.shared, operation.budget.deadline());
        let (own, id, is_sync) = (session_id(session), node.id.as_str(), shared.is_sync());
        let text = label::text(node.label);
        let params: Params<'_> = &[&own, &operation.path, &id, &text, &is_sync];
        let answer = shared.send(session, until, &statement::RELABEL, params).await;
        match operation.change('r', &node.id, answer).await? {
            0 => Ok(Break(node.clone())),
            _ => Err(operation.node_deleted(&node.id)),
        }
    }
}
