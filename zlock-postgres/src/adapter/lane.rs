//! A connection for the writes of a session.

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::runtime::Handle;
use zlock_core::SessionId;
use zlock_ledger::tables::{Names, Step, id, kind_number, outcomes, steps, stripe};
use zlock_ledger::{Fault, Lane, Outcome, Tx};

use super::changes::Changes;
use super::hints::Hints;
use super::queue::Batch;
use super::rows::done;
use super::statements;
use crate::connection::link::{Link, Params};
use crate::error::Failure;

/// A numbered connection of a session.
pub struct PostgresLane {
    pub(super) link: Arc<Link>,
    pub(super) runtime: Handle,
    /// How long an answer may take.
    pub(super) time: Duration,
    pub(super) session: SessionId,
    pub(super) wire: i32,
    pub(super) lane: i64,
    pub(super) names: Names,
    pub(super) hints: Arc<Hints>,
}

type Outcomes = Vec<Result<Outcome, Fault>>;

impl PostgresLane {
    /// Executes a batch of nodes. Deletes alone notify those who wait for them.
    async fn queue(&self, txs: &[Tx], batch: Batch<'_>) -> Result<Outcomes, Failure> {
        let (session, lane) = (id(self.session), self.lane);
        let is_alone = batch.id.is_empty();
        let rows = if is_alone {
            let params: Params<'_> = &[&session, &lane, &batch.gone, &batch.gone_stripe];
            match self.link.ask(self.time, &statements::DELETE, params).await {
                // The server has no room for notifications, since somebody does not receive them.
                Err(full) if full.code() == Some("54000") => return self.execute(txs).await,
                answer => answer?,
            }
        } else {
            let params: Params<'_> = &[
                &session,
                &lane,
                &batch.gone,
                &batch.id,
                &batch.scope,
                &batch.stripe,
                &batch.path,
                &batch.key,
                &batch.label,
                &batch.data,
                &batch.floor,
                &batch.limit,
            ];
            self.link.ask(self.time, &statements::APPEND, params).await?
        };
        let done = batch.done(txs, &rows)?;
        if !is_alone || done.has_missed {
            self.wake(txs, &done.outcomes);
        }
        // What it waits for may be gone before anybody sees it wait.
        for (scope, key) in done.going {
            self.hints.give(self.session, scope, &key);
        }
        Ok(done.outcomes)
    }

    /// Executes transactions of any kind.
    async fn execute(&self, txs: &[Tx]) -> Result<Outcomes, Failure> {
        let steps = steps(self.session, txs);
        let scopes: Vec<_> = steps.iter().map(|step| self.names.scope(step.scope)).collect();
        let ids = column(&steps, |step| step.key.map(|key| self.names.entry(step.scope, key)));
        let params: Params<'_> = &[
            &id(self.session),
            &self.wire,
            &self.lane,
            &column(&steps, |step| i32::try_from(step.tx).unwrap_or(i32::MAX)),
            &column(&steps, |step| step.op),
            &ids,
            &scopes,
            &scopes.iter().map(|scope| stripe(scope)).collect::<Vec<_>>(),
            &column(&steps, |step| kind_number(step.scope.kind)),
            &column(&steps, |step| step.scope.path.as_bytes()),
            &column(&steps, |step| step.key.map(str::as_bytes)),
            &column(&steps, |step| step.a),
            &column(&steps, |step| step.b),
            &column(&steps, |step| step.c),
            &column(&steps, |step| step.label),
            &column(&steps, |step| step.data),
        ];
        let rows = self.link.ask(self.time, &statements::EXECUTE, params).await?;
        let done = rows.iter().map(done).collect::<Result<Vec<_>, _>>()?;
        let outcomes = outcomes(txs, &steps, done).ok_or(Failure::Malformed)?;
        self.wake(txs, &outcomes);
        Ok(outcomes)
    }

    /// Notifies other clients in a transaction of its own, for which nobody waits.
    fn wake(&self, txs: &[Tx], outcomes: &[Result<Outcome, Fault>]) {
        let changes = Changes::new(&self.names, txs, outcomes);
        if changes.is_empty() {
            return;
        }
        let (link, session, time) = (self.link.clone(), id(self.session), self.time);
        self.runtime.spawn(async move {
            let Changes { scope, stripe, created, payload, updated, update } = changes;
            let params: Params<'_> = &[&session, &scope, &stripe, &created, &payload, &updated, &update];
            if let Err(failure) = link.ask(time, &statements::WAKE, params).await {
                // Waiters look from time to time.
                tracing::debug!(?failure, "waiters are not notified");
            }
        });
    }
}

fn column<'a, T>(steps: &[Step<'a>], value: impl Fn(Step<'a>) -> T) -> Vec<T> {
    steps.iter().copied().map(value).collect()
}

#[async_trait]
impl Lane for PostgresLane {
    async fn transact(&self, txs: &[Tx]) -> Result<Outcomes, Fault> {
        if self.wire == 0 {
            return Ok(match Batch::of(&self.names, txs) {
                Some(batch) => self.queue(txs, batch).await?,
                None => self.execute(txs).await?,
            });
        }
        // Each in a transaction of its own, since one that waits in vain fails with all that came before it.
        let each = join_all(txs.iter().map(|tx| self.execute(slice::from_ref(tx)))).await;
        let only = |outcomes: Outcomes| outcomes.into_iter().next().unwrap_or(Err(Failure::Malformed.into()));
        Ok(each.into_iter().map(|outcome| outcome.map_or_else(|failure| Err(failure.into()), only)).collect())
    }
}

impl fmt::Debug for PostgresLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresLane")
            .field("link", &self.link)
            .field("session", &self.session)
            .field("wire", &self.wire)
            .finish_non_exhaustive()
    }
}
