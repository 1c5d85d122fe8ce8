//! A connection for the writes of a session.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::slice;
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::Value;
use serde_json::{Map, json};
use zlock_core::SessionId;
use zlock_ledger::tables::{Batch, Found, Names, New, Step, id, kind_number, outcomes, steps, stripe};
use zlock_ledger::{Fault, Lane, Outcome, Tx};

use super::calm::hex;
use crate::connection::link::{Answer, Link};
use crate::connection::rows::{done, entry, get, text};
use crate::error::Failure;

/// A numbered connection of a session.
pub struct MysqlLane {
    pub(super) link: Link,
    /// How long an answer may take.
    pub(super) time: Duration,
    pub(super) session: SessionId,
    pub(super) wire: i32,
    pub(super) lane: i64,
    pub(super) names: Names,
}

/// What a lane sends, prepared when it is opened.
pub(super) const STATEMENTS: [&str; 4] = [APPEND, DELETE, QUEUE, EXECUTE];

const APPEND: &str = "CALL zlock_append(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
const DELETE: &str = "CALL zlock_delete(?, ?, ?, ?)";
const QUEUE: &str = "CALL zlock_queue(?, ?, ?, ?, ?, ?)";
const EXECUTE: &str = "CALL zlock_execute(?, ?, ?, ?, ?, ?)";

/// The status of an answer in quiet time.
const QUIET: i32 = 4;

type Outcomes = Vec<Result<Outcome, Fault>>;

impl MysqlLane {
    /// Executes a batch of nodes. `None` if it is no usual one, and nothing was sent.
    async fn queue(&self, txs: &[Tx], batch: &Batch<'_>) -> Result<Option<Outcomes>, Failure> {
        let (session, lane) = (id(self.session).into(), self.lane.into());
        let answer = match (batch.gone.as_slice(), batch.new.as_slice()) {
            ([], [new]) => {
                let params = vec![
                    session,
                    lane,
                    new.id.as_slice().into(),
                    new.scope.as_slice().into(),
                    new.stripe.into(),
                    new.path.into(),
                    new.key.into(),
                    new.label.into(),
                    new.data.into(),
                    new.floor.into(),
                    new.limit.unwrap_or(i64::MAX).into(),
                ];
                self.link.ask(self.time, APPEND, params).await?
            }
            ([gone], []) => {
                let params = vec![session, lane, gone.id.as_slice().into(), gone.stripe.into()];
                self.link.ask(self.time, DELETE, params).await?
            }
            (_, new) if new.iter().all(|new| new.limit == Some(2)) => {
                let (stripes, gone, new, text) = columns(batch);
                let params = vec![session, lane, stripes.into(), gone.into(), new.into(), Value::Bytes(text)];
                self.link.ask(self.time, QUEUE, params).await?
            }
            _ => return Ok(None),
        };
        read(txs, batch, &answer).map(Some)
    }

    /// Executes transactions of any kind.
    async fn execute(&self, txs: &[Tx]) -> Result<Outcomes, Failure> {
        let steps = steps(self.session, txs);
        let (mut stripes, mut text) = (BTreeSet::new(), Vec::new());
        let described: Vec<_> =
            steps.iter().map(|step| self.describe(step, &mut stripes, &mut text)).collect();
        let params = vec![
            id(self.session).into(),
            self.wire.into(),
            self.lane.into(),
            json!(stripes).to_string().into(),
            json!(described).to_string().into(),
            Value::Bytes(text),
        ];
        let answer = self.link.ask(self.time, EXECUTE, params).await?;
        let done = answer.iter().flatten().map(done).collect::<Result<Vec<_>, _>>()?;
        outcomes(txs, &steps, done).ok_or(Failure::Malformed)
    }

    /// Returns a step as the procedure reads it. Texts go to the end of `text`, and the lock of its scope to `stripes`.
    fn describe(
        &self,
        step: &Step<'_>,
        stripes: &mut BTreeSet<i32>,
        text: &mut Vec<u8>,
    ) -> Map<String, serde_json::Value> {
        let scope = self.names.scope(step.scope);
        let stripe = stripe(&scope);
        if step.needs_scope() {
            stripes.insert(stripe);
        }
        let mut put = |part: Option<&[u8]>| {
            part.map(|part| {
                let place = text.len() + 1;
                text.extend_from_slice(part);
                json!([place, part.len()])
            })
        };
        let parts = [
            ("t", Some(json!(step.tx))),
            ("o", Some(json!(step.op))),
            ("i", step.key.map(|key| json!(hex(&self.names.entry(step.scope, key))))),
            ("s", Some(json!(hex(&scope)))),
            ("l", Some(json!(stripe))),
            ("k", Some(json!(kind_number(step.scope.kind)))),
            ("a", step.a.map(|a| json!(a))),
            ("b", step.b.map(|b| json!(b))),
            ("c", step.c.map(|c| json!(c))),
            ("p", put(step.is_append().then_some(step.scope.path.as_bytes()))),
            ("n", put(step.key.filter(|_| step.is_append()).map(str::as_bytes))),
            ("g", put(step.label.map(str::as_bytes))),
            ("d", put(step.data)),
        ];
        parts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// Returns a batch as the procedure reads it: the locks of its scopes, what is deleted, what is appended, and the texts of that.
fn columns(batch: &Batch<'_>) -> (String, String, String, Vec<u8>) {
    let (mut text, mut behind) = (Vec::new(), BTreeMap::<i32, usize>::new());
    let mut describe = |new: &New<'_>| {
        let behind = behind.entry(new.stripe).or_default();
        let mut row = vec![
            json!(hex(&new.id)),
            json!(hex(&new.scope)),
            json!(new.stripe),
            json!(behind),
            json!(new.floor),
        ];
        for part in [new.path, new.key, new.label.as_bytes(), new.data] {
            row.extend([json!(text.len() + 1), json!(part.len())]);
            text.extend_from_slice(part);
        }
        *behind += 1;
        row
    };
    let new: Vec<_> = batch.new.iter().rev().map(&mut describe).collect();
    let gone: Vec<_> = batch.gone.iter().map(|gone| hex(&gone.id)).collect();
    let stripes: BTreeSet<_> =
        batch.new.iter().map(|new| new.stripe).chain(batch.gone.iter().map(|gone| gone.stripe)).collect();
    (json!(stripes).to_string(), json!(gone).to_string(), json!(new).to_string(), text)
}

/// Reads the answer to a batch.
fn read(txs: &[Tx], batch: &Batch<'_>, answer: &Answer) -> Result<Outcomes, Failure> {
    let (mut is_quiet, mut found) = (false, Vec::new());
    for row in answer.iter().flatten() {
        match get(row, 0)? {
            QUIET => is_quiet = true,
            status => found.push(Found { status, of: text(row, 1)?, entry: entry(row, 2)? }),
        }
    }
    batch.done(txs, found, is_quiet).ok_or(Failure::Malformed)
}

#[async_trait]
impl Lane for MysqlLane {
    async fn transact(&self, txs: &[Tx]) -> Result<Outcomes, Fault> {
        if self.wire == 0 {
            if let Some(batch) = Batch::of(&self.names, txs)
                && let Some(outcomes) = self.queue(txs, &batch).await?
            {
                return Ok(outcomes);
            }
            return Ok(self.execute(txs).await?);
        }
        // Each in a transaction of its own, since one that waits in vain fails with all that came before it.
        let mut all = Vec::with_capacity(txs.len());
        for tx in txs {
            all.push(match self.execute(slice::from_ref(tx)).await {
                Ok(outcomes) => outcomes.into_iter().next().unwrap_or(Err(Failure::Malformed.into())),
                Err(failure) => Err(failure.into()),
            });
        }
        Ok(all)
    }
}

impl fmt::Debug for MysqlLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlLane")
            .field("link", &self.link)
            .field("session", &self.session)
            .field("wire", &self.wire)
            .finish_non_exhaustive()
    }
}
