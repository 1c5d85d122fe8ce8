//! The writes of a session that wait to be sent, or for their answers.

use std::collections::BTreeMap;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use zlock_core::Mutex;

use crate::lanes::{Fit, Lanes};
use crate::ledger::{Fault, Outcome, Scope, Tx, Write};

/// The requests of one session.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) state: Mutex<State>,
    pub(crate) added: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) lanes: Lanes<Scope>,
    pub(crate) items: BTreeMap<u64, Item>,
}

#[derive(Debug)]
pub(crate) struct Item {
    /// `None` while it is in flight.
    pub(crate) tx: Option<Tx>,
    pub(crate) bytes: usize,
    pub(crate) until: Instant,
    pub(crate) busy: u32,
    /// Whether a batch with it was refused.
    pub(crate) is_alone: bool,
    pub(crate) reply: oneshot::Sender<Result<Outcome, Fault>>,
}

impl Requests {
    /// Sends a transaction, and waits for its outcome. One that is busy is not sent again if that may take longer than `until`, since its
    /// outcome would be unknown then.
    ///
    /// # Cancel safety
    /// It is not sent any more, or may still take effect; but not after a later request about one of its scopes was answered.
    pub(crate) async fn send(&self, tx: Tx, until: Instant) -> Result<Outcome, Fault> {
        let (reply, outcome) = oneshot::channel();
        let bytes = tx.then.iter().map(bytes).sum();
        {
            let state = &mut *self.state.lock();
            let number = state.lanes.push(tx.scopes().cloned());
            state.items.insert(number, Item { tx: Some(tx), bytes, until, busy: 0, is_alone: false, reply });
        }
        self.added.notify_one();
        outcome.await.unwrap_or_else(|_| Err(Fault::NotSent("the session has ended".into())))
    }

    /// Returns `true` if a request about this scope may still take effect.
    pub(crate) fn concerns(&self, scope: &Scope) -> bool {
        self.state.lock().lanes.concerns(scope)
    }

    /// Returns `true` if nothing is unanswered.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.lock().lanes.is_idle()
    }
}

fn bytes(write: &Write) -> usize {
    match write {
        Write::Append { key, data, .. } => key.len() + data.len(),
        Write::Update { key, data, .. } => key.len() + data.as_ref().map_or(0, Vec::len),
        Write::Receipt { .. } | Write::Delete { .. } => 0,
    }
}

/// Returns whether one more request fits into a batch. The first one always does.
pub(crate) fn fits(items: &BTreeMap<u64, Item>, batch: usize, bytes: usize) -> impl FnMut(u64) -> Fit {
    let (mut taken, mut size, mut is_alone) = (0, 0, false);
    move |number| {
        let Some(item) = items.get(&number).filter(|item| !item.reply.is_closed()) else { return Fit::Gone };
        if taken > 0 && (taken >= batch || size + item.bytes > bytes || is_alone || item.is_alone) {
            return Fit::Full;
        }
        (taken, size, is_alone) = (taken + 1, size + item.bytes, item.is_alone);
        Fit::Fits
    }
}

pub(crate) fn reply_all(items: &mut BTreeMap<u64, Item>, numbers: Vec<u64>, fault: &Fault) {
    for item in numbers.into_iter().filter_map(|number| items.remove(&number)) {
        // Fails if the caller has gone.
        let _ = item.reply.send(Err(fault.clone()));
    }
}
