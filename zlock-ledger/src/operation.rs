//! What all operations have in common: their budget, and the way of a request.

use std::sync::Arc;

use tokio::time::Instant;
use zlock_core::kit::{Budget, Interrupted, SessionKey};
use zlock_core::{DeletionNotice, LockPath, NodeId};

use crate::hub::Watching;
use crate::keeper::beat;
use crate::ledger::{Calm as _, Entry, Fault, Kind, Ledger, Outcome, Range, Read, Scope, Tx};
use crate::shared::{Live, Shared};

/// A running operation.
pub(crate) struct Operation<'a, L: Ledger> {
    pub(crate) shared: &'a Arc<Shared<L>>,
    /// What it is about.
    pub(crate) scope: Scope,
    pub(crate) budget: Budget<'a, Live>,
    /// When it began, among the changes of the own nodes.
    pub(crate) mark: u64,
}

impl<'a, L: Ledger> Operation<'a, L> {
    pub(crate) fn new(
        shared: &'a Arc<Shared<L>>,
        name: &'static str,
        kind: Kind,
        path: &'a LockPath,
    ) -> Self {
        let budget = Budget::new(&shared.sessions, &shared.options, name, path);
        Operation {
            shared,
            scope: shared.scope(kind, path),
            budget,
            mark: shared.sessions.own().mark_of_look(),
        }
    }

    /// Executes a transaction, and records if its outcome is unknown.
    ///
    /// # Cancel safety
    /// It may still take effect, but not after a later one of the session about the same scope was answered.
    pub(crate) async fn transact(&mut self, session: SessionKey, tx: Tx) -> Result<Outcome, Fault> {
        let (shared, until) = (self.shared, self.budget.deadline());
        let live = shared.live(session)?;
        shared.sessions.connected(session, until).await?;
        let answer = shared.sessions.run_until_ended(session, until, live.requests.send(tx, until)).await;
        let answer = shared.judge(session, answer.unwrap_or_else(|interrupted| Err(interrupted.into())));
        self.budget.record(answer)
    }

    /// Executes a transaction that gives the session an entry, and adds that to what it owns. At rest, a heartbeat is sent beside it: from
    /// then on the session has its short timeout, and the answer proves how long it lives.
    ///
    /// Returns `None` instead of the notice if the entry is not the session's.
    pub(crate) async fn own(
        &mut self,
        session: SessionKey,
        id: &NodeId,
        key: &str,
        tx: Tx,
    ) -> Result<(Outcome, Option<DeletionNotice>), Fault> {
        let shared = self.shared;
        let live = shared.live(session)?;
        live.known.lock().insert(id.clone(), (self.scope.clone(), key.to_owned()));
        let _wakes = Wakes { shared, session, live: live.clone() };
        let proof = async {
            match shared.sessions.session().deadline {
                Some(_) if !live.rests() => Ok(None),
                _ => prove(shared, session, &live).await.map(Some),
            }
        };
        let (outcome, proof) = tokio::join!(self.transact(session, tx), proof);
        let outcome = outcome?;
        let is_own = |entry: &Entry| entry.owner == Some(session.id);
        let there = outcome.failed.as_ref().map_or(outcome.written.first(), |(_, found)| Some(found));
        if !there.and_then(Option::as_ref).is_some_and(is_own) {
            live.known.lock().remove(id);
            return Ok((outcome, None));
        }
        // Until the caller knows the entry.
        self.budget.ambiguous = true;
        let deletion = match shared.sessions.insert_own_if_active(session, id)? {
            Some(deletion) => deletion,
            None => {
                let until = self.budget.deadline();
                let deadline = match proof? {
                    Some(deadline) => deadline,
                    // The session was put at rest while the request was on its way.
                    None => {
                        shared
                            .sessions
                            .run_until_ended(session, until, prove(shared, session, &live))
                            .await??
                    }
                };
                shared.sessions.insert_own(session, id, deadline)?
            }
        };
        self.budget.ambiguous = false;
        Ok((outcome, Some(deletion)))
    }

    /// Reads entries over the calm connection.
    pub(crate) async fn read(
        &self,
        session: SessionKey,
        range: Range,
        data: bool,
    ) -> Result<Vec<Entry>, Fault> {
        let (shared, until) = (self.shared, self.budget.deadline());
        shared.sessions.connected(session, until).await?;
        let floor = shared.live(session)?.floors.lock().get(&self.scope);
        let read = Read { scope: self.scope.clone(), range, floor, data };
        let answer = async {
            let calm = shared.calm(Some(session.id)).await?;
            shared.ask(&calm, shared.answer_time(), calm.read(session.id, &read)).await
        };
        let answer = shared.sessions.run_until_ended(session, until, answer).await?;
        shared.judge(session, answer)
    }

    /// Arms a watch on an entry or on the whole scope, and reads it.
    pub(crate) async fn watch(
        &self,
        session: SessionKey,
        key: Option<&str>,
        data: bool,
    ) -> Result<(Vec<Entry>, Watching), Fault> {
        let watching = self.shared.hub.arm(&self.scope, key);
        let range = key.map_or(Range::All, |key| Range::Key(key.to_owned()));
        let entries = self.read(session, range, data).await?;
        self.watches(session, &watching, &entries);
        Ok((entries, watching))
    }

    /// Records what was read of what is watched, and looks at the sessions that it depends on from now on.
    pub(crate) fn watches(&self, session: SessionKey, watching: &Watching, entries: &[Entry]) {
        self.shared.wants(&watching.read(entries, session.id));
        self.shared.suspects.notify_one();
    }
}

/// An operation that may send a heartbeat with the short timeout. If the session is still at rest when it ends, the next heartbeat is due
/// at once, since nothing else would renew the session within that timeout.
struct Wakes<'a, L: Ledger> {
    shared: &'a Shared<L>,
    session: SessionKey,
    live: Arc<Live>,
}

impl<L: Ledger> Drop for Wakes<'_, L> {
    fn drop(&mut self) {
        let now = self.shared.sessions.session();
        if now.deadline.is_none() && now.epoch == self.session.epoch && self.live.was_woken() {
            self.shared.doubt.notify_one();
        }
    }
}

/// Sends a heartbeat that shows that the session lives. Returns the instant until which it does.
async fn prove<L: Ledger>(shared: &Shared<L>, session: SessionKey, live: &Live) -> Result<Instant, Fault> {
    match beat(shared, session, live, false).await {
        Ok((_, sent)) => Ok(sent + shared.life()),
        Err(Fault::SessionOver) => {
            shared.sessions.lose(session);
            Err(Interrupted::SessionLost.into())
        }
        Err(fault) => Err(fault),
    }
}
