//! The receipt that a write leaves, so that it is executed once at most, and not at all once it was given up.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock_core::kit::{Failure as _, Receipt, SessionKey};

use super::read::settled;
use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::Operation;
use crate::session::shared::{Shared, session_id};

/// The pause between two attempts to void an abandoned write.
const PAUSE: Duration = Duration::from_millis(100);

/// The receipt of one operation, in the session of its last attempt.
///
/// If the outcome of a request is unknown when this is dropped, the write is voided. Until then, later operations on the path wait.
pub(crate) struct WriteReceipt {
    shared: Arc<Shared>,
    used: Option<Used>,
    was_unknown: bool,
}

struct Used {
    session: SessionKey,
    receipt: Receipt<(), ()>,
    /// With the prefix.
    path: String,
    /// Whether a request with the receipt may still be executed.
    is_unknown: bool,
}

impl Used {
    /// The row of the receipt, and the number of the write.
    fn numbers(&self) -> (i32, i64) {
        (i32::try_from(self.receipt.number).unwrap_or(i32::MAX), self.receipt.id.cast_signed())
    }
}

impl WriteReceipt {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        WriteReceipt { shared, used: None, was_unknown: false }
    }

    /// Waits for a receipt, and until no abandoned write of the value can take effect. Returns the slot and the write to send
    /// with a request that is sent now.
    pub(crate) async fn send(
        &mut self,
        operation: &Operation<'_>,
        session: SessionKey,
    ) -> Result<(i32, i64), Failure> {
        let used = match &mut self.used {
            Some(used) if used.session == session => used,
            used => {
                let (live, path) = (operation.shared.live(session)?, operation.path.clone());
                let taken = live.receipts.take(&(), operation.budget.path());
                let (sessions, deadline) = (&operation.shared.sessions, operation.budget.deadline());
                let receipt = sessions.run_until_ended(session, deadline, taken).await?;
                used.insert(Used { session, receipt, path, is_unknown: false })
            }
        };
        settled(operation, session).await?;
        self.was_unknown = std::mem::replace(&mut used.is_unknown, true);
        Ok(used.numbers())
    }

    /// Records that the request has failed.
    pub(crate) fn failed(&mut self, failure: &Failure) {
        self.settle(self.was_unknown || failure.classify().ambiguous);
    }

    /// Records that the request is answered. Unless it was executed, an earlier one may still be.
    pub(crate) fn answered(&mut self, was_executed: bool) {
        self.settle(self.was_unknown && !was_executed);
    }

    fn settle(&mut self, is_unknown: bool) {
        if let Some(used) = &mut self.used {
            used.is_unknown = is_unknown;
        }
    }
}

impl Drop for WriteReceipt {
    fn drop(&mut self) {
        if let Some(mut used) = self.used.take().filter(|used| used.is_unknown) {
            used.receipt.abandon();
            self.shared.runtime.spawn(void(self.shared.clone(), used));
        }
    }
}

/// Raises the receipt until that is answered, or the session is over.
async fn void(shared: Arc<Shared>, used: Used) {
    let (id, (slot, write), path) = (session_id(used.session), used.numbers(), &used.path);
    while shared.sessions.get(used.session).is_some() {
        let until = Instant::now() + shared.options.answer_time();
        let params: Params<'_> = &[&id, path, &slot, &write];
        match shared.send(used.session, until, &statement::VOID_WRITE, params).await {
            Ok(_) => return,
            Err(failure) => tracing::debug!(%path, ?failure, "an abandoned write is not void yet"),
        }
        sleep(PAUSE).await;
    }
}
