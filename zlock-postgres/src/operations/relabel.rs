//! Relabelling an own node.

use zlock_core::Node;
use zlock_core::kit::{SessionKey, label_text};

use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::Operation;
use crate::session::shared::session_id;

/// Gives a node another label. `node` is the node as it will be. A request with a smaller `number` has no effect after this one.
pub(crate) async fn relabel(
    operation: &mut Operation<'_>,
    session: SessionKey,
    node: &Node,
    number: i64,
) -> Result<(), Failure> {
    if node.session.is_some_and(|id| id != session.id) {
        return Err(Failure::OtherSession);
    }
    let (shared, until) = (operation.shared, operation.budget.deadline());
    let (own, id, is_sync) = (session_id(session), node.id.as_str(), shared.is_sync());
    let text = label_text(node.label);
    let params: Params<'_> = &[&own, &operation.path, &id, &text, &number, &is_sync];
    let answer = shared.send(session, until, &statement::RELABEL, params).await;
    match operation.change('r', &node.id, answer).await? {
        0 => Ok(()),
        _ => Err(operation.node_deleted(&node.id)),
    }
}
