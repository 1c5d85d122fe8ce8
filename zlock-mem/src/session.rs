//! The session as seen by operations: the owner of the nodes, and the way to send a request.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use zlock_core::kit::{Receipts, SessionKey, Sessions};
use zlock_core::{CloseReason, SessionId};

use crate::error::Failure;
use crate::link::ClientId;
use crate::options::MemOptions;
use crate::request::{Answer, Request};
use crate::server::Server;
use crate::state::Refused;

/// The state that the backend and its session task share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) server: Arc<Server>,
    pub(crate) client: ClientId,
    pub(crate) options: MemOptions,
    pub(crate) sessions: Sessions<()>,
    /// Of writes of values.
    pub(crate) receipts: Arc<Receipts<()>>,
    /// Notified when the connection breaks, or when another attempt may succeed.
    pub(crate) signal: Arc<Notify>,
}

impl Shared {
    pub(crate) fn new(server: Arc<Server>, options: MemOptions) -> Self {
        let signal = Arc::new(Notify::new());
        let client = server.with(|state, _| state.add_client(signal.clone()));
        let (sessions, receipts) = (Sessions::new("the server refuses nobody"), Arc::default());
        Shared { server, client, options, sessions, receipts, signal }
    }

    /// Begins a session whose connect was sent at this instant.
    pub(crate) fn begin(&self, id: SessionId, sent: Instant) {
        if let Some((key, _)) = self.sessions.begin(id, sent + self.options.certain(), |_| ()) {
            tracing::debug!(session = %id, epoch = key.epoch, "session established");
        }
    }

    /// Closes the view, and the session if the server can be reached. Needs neither a runtime nor a clock.
    pub(crate) fn close(&self) -> Option<oneshot::Receiver<Answer>> {
        self.sessions.close(CloseReason::Requested);
        // No session can begin any more.
        let session = self.sessions.last_seen();
        if session.epoch == 0 {
            return None;
        }
        self.server.send(self.client, Some(session.id), Request::Close).ok()
    }

    /// Sends a request. Requests are sent in the order of the calls.
    pub(crate) fn send(
        &self,
        session: SessionKey,
        request: Request,
    ) -> Result<oneshot::Receiver<Answer>, Failure> {
        self.server.send(self.client, Some(session.id), request).map_err(|Refused| {
            self.suspend(session);
            Failure::NotSent
        })
    }

    /// Records that the connection is broken. The session task may have connected again before that, and has to look again.
    fn suspend(&self, session: SessionKey) {
        self.sessions.suspend(session);
        self.signal.notify_one();
    }

    /// Waits for an answer until the session ends or the time has passed. Does not extend the deadline: only the session task
    /// does, which also runs the background jobs. If its runtime is not being driven, the session must end, whatever requests
    /// other runtimes send.
    pub(crate) async fn answer(
        &self,
        session: SessionKey,
        until: Instant,
        mut answer: oneshot::Receiver<Answer>,
    ) -> Result<Answer, Failure> {
        let answer = match answer.try_recv() {
            Err(TryRecvError::Empty) => self.sessions.run_until_ended(session, until, answer).await?.ok(),
            answer => answer.ok(),
        };
        match answer {
            // The session task may learn of it later. Nothing may retry in vain until then.
            Some(Answer::SessionOver) => {
                self.sessions.lose(session);
                Err(self.sessions.interrupted().into())
            }
            answer => answer.ok_or(Failure::Lost),
        }
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn ask(
        &self,
        session: SessionKey,
        until: Instant,
        request: Request,
    ) -> Result<Answer, Failure> {
        let answer = self.send(session, request)?;
        pending_once().await;
        self.answer(session, until, answer).await
    }
}

/// A point at which a caller can be dropped after its request was sent, and has most likely taken effect.
///
/// It is polled twice. Unlike tokio's `yield_now` it does not make the runtime look for events in between.
pub(crate) async fn pending_once() {
    let mut polled = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;
    use zlock_core::{CoordinationBackend, SessionState};

    use crate::MemServer;

    const MS: Duration = Duration::from_millis(1);

    /// A request was refused right before the session task connected again, and its caller says so after that.
    #[tokio::test(start_paused = true)]
    async fn a_late_report_of_a_broken_connection_is_overcome() {
        let backend = MemServer::new().connect();
        let shared = &backend.shared;
        let session = shared.sessions.current_key().unwrap();
        shared.suspend(session);
        sleep(5 * MS).await;
        assert_eq!(backend.session_events().current().state, SessionState::Connected);
    }

    #[tokio::test(start_paused = true)]
    async fn the_link_of_a_client_that_is_gone_is_removed() {
        let server = MemServer::new();
        for _ in 0..3 {
            let backend = server.connect();
            backend.link().cut();
            while !server.sessions().is_empty() {
                sleep(1000 * MS).await;
            }
            drop(backend);
            sleep(MS).await;
        }
        assert_eq!(server.0.lock().links.len(), 0);
    }
}
