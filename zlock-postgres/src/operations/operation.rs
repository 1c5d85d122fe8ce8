//! One operation of a backend: its budget, and what several operations do.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_postgres::Row;
use zlock_core::kit::{Budget, SessionKey};
use zlock_core::{LockPath, NodeId, Result};

use crate::connection::link::Params;
use crate::connection::statement::{self, Statement};
use crate::error::Failure;
use crate::operations::listing::{self, Listed};
use crate::session::death::suspect;
use crate::session::shared::{Live, Shared, session_id};
use crate::watches::seen::SeenNode;

/// A running operation on the queue of one path.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    /// With the prefix.
    pub(crate) path: String,
    pub(crate) budget: Budget<'a, Live>,
}

/// What a request was sent with, so that what its answer shows can be relied on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentWith {
    listener: Option<usize>,
    mark: u64,
}

impl<'a> Operation<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>, name: &'static str, path: &'a LockPath) -> Self {
        let budget = Budget::new(&shared.sessions, &shared.options.kit, name, path);
        Operation { shared, path: shared.path(path), budget }
    }

    /// Sends a read.
    pub(crate) async fn read(
        &self,
        session: SessionKey,
        statement: &'static Statement,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Failure> {
        self.shared.send(session, self.budget.deadline(), statement, params).await
    }

    /// Sends a write, and records if its outcome is unknown.
    pub(crate) async fn write(
        &mut self,
        session: SessionKey,
        statement: &'static Statement,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Failure> {
        let answer = self.shared.send(session, self.budget.deadline(), statement, params).await;
        self.budget.record(answer)
    }

    /// Sends a write that changes a queue, and wakes who waits for that. Returns its outcome: 0 if it took effect, 1 if there is
    /// no such node, 3 if it is also confirmed.
    pub(crate) async fn change(
        &mut self,
        event: char,
        node_id: &NodeId,
        answer: Result<Vec<Row>, Failure>,
    ) -> Result<i32, Failure> {
        let rows = self.budget.record(answer)?;
        let row = rows.first().ok_or(Failure::Malformed)?;
        let outcome: i32 = row.try_get(0).map_err(Failure::Postgres)?;
        let wake: Option<Vec<i64>> = row.try_get(1).map_err(Failure::Postgres)?;
        if let Some(wake) = wake.filter(|wake| !wake.is_empty()) {
            self.shared.wake(event, node_id.as_str(), &wake).await;
        }
        if outcome == 2 { Err(Failure::Fenced) } else { Ok(outcome) }
    }

    /// Lists the queue up to a number: all of it, or only the last nodes. Removes the nodes of dead sessions.
    pub(crate) async fn list(
        &self,
        session: SessionKey,
        up_to: i64,
        limit: Option<i64>,
    ) -> Result<Vec<Listed>, Failure> {
        let live = self.shared.live(session)?;
        let (id, is_sync) = (session_id(session), self.shared.is_sync());
        loop {
            let (hint, sent) = (live.hints.get(&self.path), self.sent_with(session));
            let params: Params<'_> = &[&id, &self.path, &hint, &up_to, &limit, &is_sync];
            let listed = listing::parse(&self.read(session, &statement::CHILDREN, params).await?)?;
            self.note(&live, session, &listed, sent, limit.is_none());
            if !self.clear_overdue(session, &listed).await {
                return Ok(listed);
            }
        }
    }

    /// To be taken before a listing is requested.
    pub(crate) fn sent_with(&self, session: SessionKey) -> SentWith {
        SentWith { listener: self.shared.heart.listens(session), mark: self.shared.watches.mark() }
    }

    /// Remembers what a listing shows.
    pub(crate) fn note(
        &self,
        live: &Live,
        session: SessionKey,
        listed: &[Listed],
        sent: SentWith,
        is_whole: bool,
    ) {
        if let [head, ..] = listed
            && (is_whole || listed.len() == 1)
        {
            live.hints.note(&self.path, head.seq);
        }
        let own = session_id(session);
        let last_own = listed.iter().rposition(|node| node.owner == own).unwrap_or(0);
        let now = Instant::now();
        for (node, at) in listed.iter().zip(0..).filter(|(node, _)| node.owner != own) {
            if let Some((beat, ttl)) = node.beat.filter(|_| at + 1 == last_own) {
                self.shared.observed.note(node.owner, beat, ttl, now);
            }
            if let Some(listener) = sent.listener.filter(|_| at < last_own) {
                let seen = SeenNode { label: node.label.clone(), listener, mark: sent.mark };
                self.shared.seen.note(&node.id, seen);
            }
        }
    }

    /// Marks the sessions that are overdue, and removes the nodes of those that are over. Returns `true` if there are any.
    pub(crate) async fn clear_overdue(&self, session: SessionKey, listed: &[Listed]) -> bool {
        let own = session_id(session);
        let mut suspects: Vec<_> = listed
            .iter()
            .filter(|node| node.is_suspect && node.owner != own)
            .map(|node| node.owner)
            .collect();
        suspects.sort_unstable();
        suspects.dedup();
        let mut is_any_over = false;
        for owner in suspects {
            match suspect(self.shared, owner).await {
                Ok(is_over) => is_any_over |= is_over,
                // The listing is right all the same.
                Err(failure) => tracing::debug!(?failure, "an overdue session is left"),
            }
        }
        is_any_over
    }

    /// Handles a node that was looked up and does not exist: if it was an own node, another client deleted it, since the session
    /// lives.
    pub(crate) fn missed(&self, node_id: &NodeId) {
        if self.shared.sessions.own().contains(node_id) {
            tracing::warn!(%node_id, "an own node was deleted by another client");
            self.shared.sessions.own().report_deleted(node_id);
        }
    }

    /// Returns the failure with which the operation ends, because its node no longer exists.
    pub(crate) fn node_deleted(&mut self, node_id: &NodeId) -> Failure {
        self.missed(node_id);
        self.budget.ambiguous = false;
        Failure::NodeDeleted
    }
}
