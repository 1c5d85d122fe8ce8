//! Creating a node in a queue, even if the response is lost.

use std::future::ready;
use std::sync::Arc;

use tokio::time::Instant;
use zlock_core::kit::{SessionKey, repeat};
use zlock_core::{Created, DeletionNotice, ErrorKind, Label, NodeId, Result};

use super::listing;
use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::Operation;
use crate::session::begin::beat;
use crate::session::shared::session_id;

/// Creates a node, or finds it if an earlier attempt created it.
///
/// The server creates a node with the same ID once at most, so an attempt of unknown outcome is repeated.
pub(crate) async fn create(
    mut operation: Operation<'_>,
    label: Label,
    node_id: &NodeId,
    data: &[u8],
) -> Result<Created> {
    operation.budget.check_node(node_id, data)?;
    if operation.shared.sessions.own().contains(node_id) {
        let error = operation.budget.refuse(ErrorKind::Unexpected);
        return Err(error.with_message("a node with this ID exists already"));
    }
    let mut create = Create { node_id, label, data, lost_in: None };
    repeat!(operation.budget, |session| create.attempt(&mut operation, session))
}

/// The state between the attempts at a create.
struct Create<'a> {
    node_id: &'a NodeId,
    label: Label,
    data: &'a [u8],
    /// The session in which a create of unknown outcome was sent.
    lost_in: Option<SessionKey>,
}

impl Create<'_> {
    async fn attempt(
        &mut self,
        operation: &mut Operation<'_>,
        session: SessionKey,
    ) -> Result<Created, Failure> {
        if self.lost_in.is_some_and(|lost_in| lost_in != session) {
            // What was created in an earlier session is gone, because it was ended before this session began.
            (self.lost_in, operation.budget.ambiguous) = (None, false);
        }
        let attempted = self.append(operation, session).await;
        self.lost_in = operation.budget.ambiguous.then_some(session);
        attempted
    }

    async fn append(&self, operation: &mut Operation<'_>, session: SessionKey) -> Result<Created, Failure> {
        let (shared, until) = (operation.shared, operation.budget.deadline());
        let live = shared.live(session)?;
        shared.sessions.connected(session, until).await?;
        let link = shared.sessions.run_until_ended(session, until, shared.pool.get()).await??;
        let (id, ttl, is_sync) = (session_id(session), shared.options.ttl_millis(), shared.is_sync());
        // Only the nodes that the decision needs.
        let is_whole = !self.label.is_exclusive();
        let hint = live.hints.get(&operation.path);
        // At rest, the session is renewed with the create. That proves until when it lives.
        let renews = shared.sessions.session().deadline.is_none();
        let (text, node_id) = (self.label.to_string(), self.node_id.as_str());
        let params: Params<'_> =
            &[&id, &operation.path, &text, &node_id, &self.data, &hint, &is_whole, &ttl, &renews, &is_sync];
        let with = operation.sent_with(session);
        live.creates.sent(self.node_id, link.number);
        let sent = Instant::now();
        let answer = shared.send_over(session, until, ready(Ok(link)), &statement::CREATE, params).await;
        let rows = operation.budget.record(answer)?;
        live.creates.answered(self.node_id);
        // Until the caller knows the node.
        operation.budget.ambiguous = true;
        let proof = renews.then(|| sent + shared.options.life());
        let deletion = own(operation, session, self.node_id, proof).await?;
        let mut listed = listing::parse(&rows)?;
        operation.note(&live, session, &listed, with, is_whole);
        let seq = listed.iter().find(|node| node.id == node_id).ok_or(Failure::Malformed)?.seq;
        if operation.clear_overdue(session, &listed).await {
            listed = Box::pin(operation.list(session, seq, (!is_whole).then_some(2))).await?;
        }
        operation.budget.ambiguous = false;
        let node = listing::node(node_id, self.label, seq, id);
        let mut queue = listing::queue(&listed).into_vec();
        if !queue.iter().any(|listed| listed.id == node.id) {
            queue.push(node.clone());
        }
        Ok(Created::new(node, zlock_core::Queue::linear(queue), session.epoch, deletion))
    }
}

/// Adds the node, whose create was just answered: from here on, the backend reports its deletion.
pub(crate) async fn own(
    operation: &Operation<'_>,
    session: SessionKey,
    node_id: &NodeId,
    proof: Option<Instant>,
) -> Result<DeletionNotice, Failure> {
    let shared: &Arc<_> = operation.shared;
    if let Some(deadline) = proof {
        return Ok(shared.sessions.insert_own(session, node_id, deadline)?);
    }
    if let Some(deletion) = shared.sessions.insert_own_if_active(session, node_id)? {
        return Ok(deletion);
    }
    // The session was put at rest while the create was on its way.
    let (sent, until) = (Instant::now(), operation.budget.deadline());
    let beaten = Box::pin(beat(shared, session, false));
    if shared.sessions.run_until_ended(session, until, beaten).await??.is_none() {
        shared.sessions.lose(session);
        return Err(zlock_core::kit::Interrupted::SessionLost.into());
    }
    Ok(shared.sessions.insert_own(session, node_id, sent + shared.options.life())?)
}
