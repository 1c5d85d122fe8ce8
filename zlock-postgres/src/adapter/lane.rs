//! A connection for the writes of a session.

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::runtime::Handle;
use zlock_core::SessionId;
use zlock_ledger::tables::{Batch, Found, Names, id, kind_number, outcomes, steps, stripe};
use zlock_ledger::{Fault, Lane, Outcome, Tx};

use super::changes::Changes;
use super::hints::Hints;
use super::rows::{done, entry, get, key};
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

/// The status of an answer in quiet time.
const QUIET: i32 = 4;

/// The status of an answer of deletes that did not notify all who wait.
const MISSED: i32 = 6;

impl PostgresLane {
    /// Executes a batch of nodes. Deletes alone notify those who wait for them.
    async fn queue(&self, txs: &[Tx], batch: Batch<'_>) -> Result<Outcomes, Failure> {
        let (session, lane) = (id(self.session), self.lane);
        let gone = column(&batch.gone, |gone| gone.id.as_slice());
        let is_alone = batch.new.is_empty();
        let rows = if is_alone {
            let stripes = column(&batch.gone, |gone| gone.stripe);
            let params: Params<'_> = &[&session, &lane, &gone, &stripes];
            match self.link.ask(self.time, &statements::DELETE, params).await {
                // The server has no room for notifications, since somebody does not receive them.
                Err(full) if full.code() == Some("54000") => return self.execute(txs).await,
                answer => answer?,
            }
        } else {
            let new = &batch.new;
            let params: Params<'_> = &[
                &session,
                &lane,
                &gone,
                &column(new, |new| new.id.as_slice()),
                &column(new, |new| new.scope.as_slice()),
                &column(new, |new| new.stripe),
                &column(new, |new| new.path),
                &column(new, |new| new.key),
                &column(new, |new| new.label),
                &column(new, |new| new.data),
                &column(new, |new| new.floor),
                &column(new, |new| new.limit),
            ];
            self.link.ask(self.time, &statements::APPEND, params).await?
        };
        let (mut is_quiet, mut has_missed, mut found, mut going) = (false, false, Vec::new(), Vec::new());
        for row in &rows {
            match get(row, 0)? {
                QUIET => is_quiet = true,
                MISSED => has_missed = true,
                status => {
                    let one = Found { status, of: key(row, 1)?, entry: entry(row, 2, false)? };
                    if status == 0 && one.entry.key != one.of && get(row, 9)? {
                        let scope = batch.scope(txs, &one.of).ok_or(Failure::Malformed)?;
                        going.push((scope, one.entry.key.clone()));
                    }
                    found.push(one);
                }
            }
        }
        let outcomes = batch.done(txs, found, is_quiet).ok_or(Failure::Malformed)?;
        if !is_alone || has_missed {
            self.wake(txs, &outcomes);
        }
        // What it waits for may be gone before anybody sees it wait.
        for (scope, key) in going {
            self.hints.give(self.session, scope, &key);
        }
        Ok(outcomes)
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

fn column<'a, R, T>(rows: &'a [R], value: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
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
