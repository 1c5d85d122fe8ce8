//! Values, on the mem server.

mod server;

use async_trait::async_trait;
use zlock_core::kit::{Interrupted, WriteAttempts};
use zlock_core::{
    Consistency, ErrorKind, GuardNode, LockPath, Result, Value, Values, Version, Watch, WriteOutcome,
};

use crate::armed::Arming;
use crate::backend::MemBackend;
use crate::operation::Operation;
use crate::request::{Answer, Request, ValueWrite};

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
        let mut operation = self.operation("write_value", path);
        operation.budget.check_size(data)?;
        // Requests arrive in the order in which they are sent. So one that is given up cannot arrive after the next one.
        let receipt = self.shared.receipts.take(&(), path).await;
        let mut attempts = WriteAttempts::default();
        let deletes = guard.and_then(|guard| guard.deletes.as_ref());
        let _hidden = deletes.map(|node| self.shared.sessions.own().hide(&node.id));
        loop {
            let session = operation.budget.session().await?;
            if !attempts.begin(session, expected, operation.budget.ambiguous) {
                return Err(operation.budget.fail(Interrupted::SessionLost));
            }
            let (path, data, guard) = (path.clone(), data.to_vec(), guard.cloned());
            let write = ValueWrite { path, expected, data, guard, receipt: (receipt.number, receipt.id) };
            match operation.ask_in(session, Request::WriteValue(Box::new(write))).await {
                Ok(Answer::WroteValue(outcome)) if attempts.is_conclusive(&outcome) => {
                    if let (WriteOutcome::Written(_), Some(node)) = (&outcome, deletes) {
                        self.shared.sessions.own().remove(&node.id);
                    }
                    return Ok(outcome);
                }
                Ok(Answer::WroteValue(_)) => return Err(operation.budget.fail(Interrupted::SessionLost)),
                Ok(answer) => return Err(not_a_value(&mut operation, &answer)),
                Err(failure) => operation.budget.retry(failure).await?,
            }
        }
    }
}

fn value(operation: &mut Operation<'_>, answer: Answer) -> Result<Option<Value>> {
    match answer {
        Answer::Value(value) => Ok(value),
        answer => Err(not_a_value(operation, &answer)),
    }
}

fn not_a_value(operation: &mut Operation<'_>, answer: &Answer) -> zlock_core::Error {
    match answer {
        Answer::NoValue => {
            let message = "the node is not a value, because it is a member's, a lock's or the parent of one";
            operation.budget.error(ErrorKind::InvalidArgument).with_message(message)
        }
        answer => operation.unexpected(answer),
    }
}
