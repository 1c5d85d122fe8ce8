//! One-shot watches on a node and on a queue.

use zlock_core::kit::SessionKey;
use zlock_core::{Existence, Node, Queue, Watch};

use super::listing;
use crate::error::Failure;
use crate::operations::operation::Operation;
use crate::operations::read::read_node;
use crate::watches::registry::{Expected, Kind, Watching};

/// Arms a watch on a node if it is still as it was seen.
pub(crate) async fn arm_node(
    operation: &Operation<'_>,
    session: SessionKey,
    seen: &Node,
) -> Result<Existence, Failure> {
    let (shared, id, text) = (operation.shared, seen.id.as_str(), seen.label.to_string());
    // Notifications must be received before the node is read.
    let listener = shared.heart.listen(session).await;
    let expected = Expected { label: Some(text.clone()), version: None };
    let watching = shared.watches.arm((Kind::Node, id.to_owned()), expected);
    let known = shared.seen.take(id).filter(|known| Some(known.listener) == listener && known.label == text);
    if known.is_none_or(|known| shared.watches.was_notified(id, known.mark)) {
        match read_node(operation, session, seen).await? {
            None => return Ok(Existence::Deleted),
            Some(read) if read.label != text => return Ok(Existence::Changed(read.node(id))),
            Some(_) => {}
        }
    }
    Ok(Existence::Watching(watch(operation, session, watching)))
}

/// Returns a watch that also fires when its session ends.
pub(crate) fn watch(operation: &Operation<'_>, session: SessionKey, mut watching: Watching) -> Watch {
    operation.shared.sessions.watch(session, async move { watching.fired().await })
}

/// Lists a queue, and arms a watch on its changes.
pub(crate) async fn arm_queue(
    operation: &Operation<'_>,
    session: SessionKey,
) -> Result<(Queue, Watch), Failure> {
    let listed = operation.list(session, i64::MAX, None).await?;
    // A poll compares the queue with what was listed, so nothing in between is missed.
    let expected = Expected { label: listing::contents(&listed), version: None };
    let watching = operation.shared.watches.arm((Kind::Queue, operation.path.clone()), expected);
    Ok((listing::queue(&listed), watch(operation, session, watching)))
}

/// Reads the data of a node, and arms a watch on its changes.
pub(crate) async fn arm_data(
    operation: &Operation<'_>,
    session: SessionKey,
    node: &Node,
) -> Result<Option<(Vec<u8>, Watch)>, Failure> {
    let (shared, id) = (operation.shared, node.id.as_str());
    shared.heart.listen(session).await;
    loop {
        let mark = shared.watches.mark();
        let Some(read) = read_node(operation, session, node).await? else { return Ok(None) };
        let expected = Expected { label: None, version: Some(read.version) };
        let watching = shared.watches.arm((Kind::Node, id.to_owned()), expected);
        if !shared.watches.was_notified(id, mark) {
            return Ok(Some((read.data, watch(operation, session, watching))));
        }
    }
}
