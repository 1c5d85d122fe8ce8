//! Values, on the mem server.

mod server;

use std::sync::Arc;

use async_trait::async_trait;
use zlock_core::kit::{Budget, Receipt, Receipts, SessionKey, ValueStore, ValueWrite, write_value};
use zlock_core::{Consistency, GuardNode, LockPath, Result, Value, Values, Version, Watch, WriteOutcome};

use crate::armed::Arming;
use crate::backend::MemBackend;
use crate::error::Failure;
use crate::operation::Operation;
use crate::request::{self, Answer, Request};
use crate::session::Shared;

#[async_trait]
impl Values for MemBackend {
    async fn value(&self, path: &LockPath, _: Consistency) -> Result<Option<Value>> {
        let mut operation = self.operation("value", path);
        let (_, answer) = operation.ask(|| Request::Value { path: path.clone(), watcher: None }).await?;
        value(&mut operation, answer)
    }

    async fn value_with_watch(&self, path: &LockPath) -> Result<(Option<Value>, Watch)> {
        let mut operation = self.operation("value_with_watch", path);
        let mut armed = Arming::default();
        let request =
            || Request::Value { path: path.clone(), watcher: Some(armed.renew(&self.shared.server)) };
        let (session, answer) = operation.ask(request).await?;
        Ok((value(&mut operation, answer)?, armed.watch(&self.shared, session)))
    }

    async fn write_value(
        &self,
        path: &LockPath,
        expected: Option<Version>,
        data: &[u8],
        guard: Option<&GuardNode>,
    ) -> Result<WriteOutcome> {
        write_value(&self.shared, self.operation("write_value", path), expected, data, guard).await
    }
}

fn value(operation: &mut Operation<'_>, answer: Answer) -> Result<Option<Value>> {
    match answer {
        Answer::Value(value) => Ok(value),
        answer => Err(operation.unexpected(&answer)),
    }
}

/// Requests arrive in the order in which they are sent, so nothing needs to be voided.
impl ValueStore for Shared {
    type Operation<'a> = Operation<'a>;
    type Live = ();
    type Known = ();
    type Failure = Failure;

    fn receipts(&self, session: SessionKey) -> Option<Arc<Receipts<()>>> {
        self.sessions.get(session).map(|_| self.receipts.clone())
    }

    fn budget<'o, 'a>(operation: &'o mut Self::Operation<'a>) -> &'o mut Budget<'a, ()> {
        &mut operation.budget
    }

    async fn write(
        &self,
        write: &mut ValueWrite<'_, Self::Operation<'_>>,
        receipt: &mut Receipt<()>,
    ) -> Result<Option<WriteOutcome>, Failure> {
        let ValueWrite { operation, expected, data, guard } = write;
        let (path, data, guard) = (operation.budget.path().clone(), data.to_vec(), guard.cloned());
        let of_write = (receipt.number, receipt.id);
        let write = request::ValueWrite { path, expected: *expected, data, guard, receipt: of_write };
        match operation.ask_in(receipt.session, Request::WriteValue(Box::new(write))).await? {
            Answer::WroteValue(outcome) => Ok(Some(outcome)),
            answer => Err(Failure::unexpected(&answer)),
        }
    }
}
