//! The calm connection of a client, which all that need it share.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use zlock_core::SessionId;

use crate::ledger::{Calm as _, Fault, Ledger, OnHint};
use crate::opening::Opening;
use crate::shared::Shared;

/// The time after which the connection is closed if nothing needs it.
const IDLE: Duration = Duration::from_secs(60);

impl<L: Ledger> Shared<L> {
    /// Returns the calm connection, which is made if there is none. With a session, it receives the hints for it.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn calm(&self, session: Option<SessionId>) -> Result<Arc<L::Calm>, Fault> {
        let opening = self.current(session);
        let opened = timeout(self.options.connection_time(), opening.opened.clone()).await;
        let opened = opened.unwrap_or_else(|_| Err(Fault::NotSent("no connection".into())));
        if opened.is_err() {
            self.give_up(&opening);
        }
        opened
    }

    /// Returns the current connection, or begins to open one.
    fn current(&self, session: Option<SessionId>) -> Arc<Opening<L::Calm>> {
        let (opening, last) = {
            let mut connected = self.calm.lock();
            (connected.used, connected.uses) = (Some(Instant::now()), connected.uses + 1);
            if let Some(opening) = &connected.opening
                && (session.is_none() || session == connected.hints)
            {
                return opening.clone();
            }
            let (ledger, hub) = (self.ledger.clone(), self.hub.clone());
            let on_hint: OnHint = Arc::new(move |hint| hub.hint(hint));
            let opening = Arc::new(Opening::new(async move { ledger.calm(session, on_hint).await }));
            connected.hints = session;
            (opening.clone(), connected.opening.replace(opening))
        };
        if let Some(last) = last {
            last.close();
        }
        self.hub.unhinted();
        opening
    }

    /// Records that a session has begun over the calm connection, which receives its hints from now on.
    pub(crate) fn has_begun(&self, session: SessionId) {
        self.calm.lock().hints = Some(session);
    }

    /// Waits for the answer to a request over the calm connection. A connection that does not answer is given up.
    pub(crate) async fn ask<R>(
        &self,
        calm: &Arc<L::Calm>,
        limit: Duration,
        answer: impl Future<Output = Result<R, Fault>>,
    ) -> Result<R, Fault> {
        let silent = |_| Err(Fault::Unknown(format!("no response within {limit:?}")));
        let answer = timeout(limit, answer).await.unwrap_or_else(silent);
        if let Err(Fault::Unknown(_) | Fault::NotSent(_)) = &answer {
            calm.close();
            let opening = self.calm.lock().opening.clone().filter(|opening| opening.is(calm));
            if let Some(opening) = opening {
                self.give_up(&opening);
            }
            self.doubt.notify_one();
        }
        answer
    }

    /// Gives up a connection. Returns `false` if it is not the current one.
    fn give_up(&self, given_up: &Arc<Opening<L::Calm>>) -> bool {
        given_up.close();
        self.calm.lock().opening.take_if(|opening| Arc::ptr_eq(opening, given_up)).is_some()
    }

    /// Waits until the calm connection breaks. Waits forever if there is none.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn broken(&self) {
        let opening = self.calm.lock().opening.clone();
        if let Some(opening) = opening
            && let Some(Ok(calm)) = opening.opened.peek()
        {
            calm.closed().await;
            if self.give_up(&opening) {
                return;
            }
        }
        pending().await
    }

    /// Returns how often the calm connection was asked for, if there is none now.
    pub(crate) fn uses_of_none(&self) -> Option<u64> {
        let connected = self.calm.lock();
        connected.opening.is_none().then_some(connected.uses)
    }

    /// Closes the calm connection if it was asked for once since then.
    pub(crate) fn close_after_one_use(&self, uses_before: u64) {
        let is_idle = self.hub.len() == 0;
        let idle = {
            let mut connected = self.calm.lock();
            let is_idle = is_idle && connected.uses == uses_before + 1;
            if is_idle { connected.opening.take() } else { None }
        };
        if let Some(idle) = idle {
            idle.close();
        }
    }

    /// Closes the calm connection if nothing has needed it for a while.
    pub(crate) fn close_idle(&self) {
        let is_idle = self.calm.lock().used.is_none_or(|used| used.elapsed() >= IDLE);
        let idle = if is_idle && self.hub.len() == 0 { self.calm.lock().opening.take() } else { None };
        if let Some(idle) = idle {
            idle.close();
        }
    }
}
