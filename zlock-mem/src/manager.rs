//! The session task: opens sessions, keeps them alive, and notices their end.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use zlock_core::SessionId;
use zlock_core::kit::SessionKey;

use crate::request::{Answer, Request};
use crate::session::Shared;
use crate::state::Refused;

/// The time before a client reconnects after an attempt was lost without a known reason.
const RECONNECT: Duration = Duration::from_millis(100);

/// The time that a connection takes. It is not zero, so that observers of the session see the outage.
const DIAL: Duration = Duration::from_millis(1);

impl Shared {
    /// Connects without waiting if the server answers at once.
    pub(crate) fn connect_now(&self) {
        let sent = Instant::now();
        if let Ok(mut answer) = self.server.send(self.client, None, self.connect_request())
            && let Ok(Answer::Session(id)) = answer.try_recv()
        {
            self.begin(id, sent);
        }
    }

    /// Keeps sessions alive until the backend is closed. The first one may have begun before.
    pub(crate) async fn keep_sessions(&self) {
        let events = self.sessions.events();
        let keep = async {
            loop {
                let session = self.sessions.session();
                if session.epoch > 0 {
                    self.keep(SessionKey { epoch: session.epoch, id: session.id }).await;
                }
                self.establish().await;
            }
        };
        tokio::select! {
            biased;
            () = events.closed() => {}
            () = keep => {}
        }
    }

    fn connect_request(&self) -> Request {
        Request::Connect { timeout: self.options.kit.session_timeout }
    }

    /// Opens the next session; the server closes the previous one.
    async fn establish(&self) {
        loop {
            let sent = Instant::now();
            match self.connect(None, self.connect_request()).await {
                Some(Answer::Session(id)) => return self.begin(id, sent),
                Some(_) => sleep(RECONNECT).await,
                None => {}
            }
        }
    }

    /// Keeps one session alive until it is over.
    async fn keep(&self, session: SessionKey) {
        let mut events = self.sessions.events();
        tokio::select! {
            biased;
            _ = events.ended(session.epoch) => {}
            () = self.beat(session) => {}
        }
        tracing::debug!(session = %session.id, epoch = session.epoch, "session over");
        self.sessions.end(session);
    }

    async fn beat(&self, session: SessionKey) {
        let interval = self.options.interval();
        let mut next = Instant::now() + interval;
        loop {
            tokio::select! {
                biased;
                () = self.signal.notified() => {}
                () = sleep_until(next) => {}
            }
            let mut connected = self.is_connected() && self.sessions.is_connected(session) == Ok(true);
            if connected && Instant::now() >= next {
                next = Instant::now() + interval;
                connected = self.heartbeat(session).await;
            }
            if !connected {
                let resumed = timeout(self.options.kit.session_timeout, self.resume(session)).await;
                // A session with a deadline is over by then.
                if resumed != Ok(true) {
                    return self.sessions.give_up(session);
                }
            }
        }
    }

    /// Sends one heartbeat. Returns `false` if it was not answered in time. The cost for the server is the same whether or
    /// not the session is at rest, but at rest the answer proves nothing on which a holder relies.
    async fn heartbeat(&self, session: SessionKey) -> bool {
        self.sessions.rest(session);
        let (mark, sent) = (self.sessions.own().mark(), Instant::now());
        match self.ask(session, sent + self.options.interval(), Request::Heartbeat).await {
            Ok(Answer::NodeIds(node_ids)) => {
                self.sessions.own().compare(mark, &node_ids);
                // The answer to a request to resume may have been lost with its runtime.
                self.sessions.extend(session, sent, sent + self.options.certain())
                    && self.sessions.resume(session)
            }
            _ => false,
        }
    }

    /// Reconnects with the same session. Returns `false` if the session is over.
    async fn resume(&self, session: SessionKey) -> bool {
        tracing::debug!(session = %session.id, "connection lost");
        self.sessions.suspend(session);
        loop {
            let sent = Instant::now();
            match self.connect(Some(session.id), Request::Resume).await {
                Some(Answer::Done) => {
                    return self.sessions.extend(session, sent, sent + self.options.certain())
                        && self.sessions.resume(session);
                }
                Some(_) => {
                    self.sessions.lose(session);
                    return false;
                }
                None => {}
            }
        }
    }

    /// Makes one attempt at a new connection, after giving up the old one. `None` if it must be repeated.
    async fn connect(&self, session: Option<SessionId>, request: Request) -> Option<Answer> {
        self.hang_up();
        sleep(DIAL).await;
        match self.server.send(self.client, session, request) {
            Err(Refused) => {
                self.signal.notified().await;
                None
            }
            Ok(answer) => match timeout(self.options.interval(), answer).await {
                Ok(Ok(answer)) => Some(answer),
                Ok(Err(_)) => {
                    sleep(RECONNECT).await;
                    None
                }
                Err(_) => None,
            },
        }
    }

    fn is_connected(&self) -> bool {
        self.server.lock().links.get(&self.client).is_some_and(|link| link.connected)
    }

    /// Gives up the connection, with the requests on their way, unless the backend is closed: one of them may then be the
    /// request that ends the session, which this task learns of later.
    fn hang_up(&self) {
        self.server.with(|state, _| {
            if let Some(link) = state.links.get_mut(&self.client)
                && self.sessions.closed().is_none()
            {
                link.hang_up();
            }
        });
    }
}
