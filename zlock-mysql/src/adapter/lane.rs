//! A connection for the writes of a session.

use std::collections::BTreeSet;
use std::fmt;
use std::slice;
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::Value;
use serde_json::{Map, json};
use zlock_core::SessionId;
use zlock_ledger::tables::{Names, Step, id, kind_number, outcomes, steps, stripe};
use zlock_ledger::{Fault, Lane, Outcome, Tx};

use super::calm::hex;
use crate::connection::link::Link;
use crate::connection::rows::done;
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

pub(super) const EXECUTE: &str = "CALL zlock_execute(?, ?, ?, ?, ?, ?)";

type Outcomes = Vec<Result<Outcome, Fault>>;

impl MysqlLane {
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

#[async_trait]
impl Lane for MysqlLane {
    async fn transact(&self, txs: &[Tx]) -> Result<Outcomes, Fault> {
        if self.wire == 0 {
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
