//! The task of a backend, which keeps a session alive and begins the next one when it is lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use zlock_core::kit::{Attempts, Closing, Failure as _, Interrupted, SessionKey, Task};
use zlock_core::{Close, CloseReason, Error, ErrorKind, SessionId};

use crate::error::Failure;
use crate::session::begin::{self, Begun, REST};
use crate::session::poller::poll_forever;
use crate::session::shared::{Live, Shared};

/// The pause before a request that was refused or not answered is repeated; it grows with the number of failures.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest such pause, as a multiple of the first.
const MOST_PAUSES: u32 = 10;

/// The reason why a session is no longer kept alive.
enum End {
    /// The session is over: the server said so, or the deadline has passed.
    Lost,
    /// The server refused to keep it alive until its deadline passed.
    Refused,
    /// The backend was closed or dropped.
    Closed,
}

/// The session that is kept alive.
pub(crate) struct ActiveSession {
    session: SessionKey,
    begun: Begun,
}

pub(crate) struct Manager {
    shared: Arc<Shared>,
    closing: Closing,
}

/// Establishes the first session, within the connect timeout. Fails early if waiting is pointless.
pub(crate) async fn connect(shared: &Arc<Shared>) -> Result<Begun, Error> {
    let options = &shared.options;
    let until = Instant::now() + options.kit.connect_timeout;
    let mut last = None;
    let mut attempts = Attempts::first();
    let attempts = async {
        loop {
            attempts.pause().await;
            match begin::begin(shared, time(shared, &attempts)).await {
                Err(failure) if failure.classify().retryable => {
                    tracing::debug!(?failure, "no session yet");
                    attempts.failed(matches!(failure, Failure::Silent));
                    last = Some(failure);
                }
                answer => return answer,
            }
        }
    };
    let failed = |kind| options.kit.connect_error(kind);
    tokio::select! {
        biased;
        begun = attempts => begun.map_err(|failure| {
            let kind = failure.classify().kind;
            failure.explain(failed(kind))
        }),
        () = sleep_until(until) => {
            let unavailable = failed(ErrorKind::Unavailable);
            let within = options.kit.connect_timeout;
            Err(match last {
                Some(failure) => failure.explain(unavailable),
                None => unavailable.with_message(format!("no session within {within:?}")),
            })
        }
    }
}

/// Returns how long the next attempt at a session waits.
fn time(shared: &Shared, attempts: &Attempts) -> Duration {
    let options = &shared.options;
    attempts.time(options.answer_time() * 2, options.kit.connect_timeout)
}

impl Manager {
    pub(crate) fn new(shared: Arc<Shared>, closing: Closing) -> Self {
        Manager { shared, closing }
    }

    /// Makes a new session the current one. `None` if the backend is closed.
    pub(crate) fn begin(&self, begun: Begun) -> Option<ActiveSession> {
        let (id, sessions) = (SessionId::new(begun.id.cast_unsigned()), &self.shared.sessions);
        let (session, _) =
            sessions.begin(id, begun.sent + self.shared.options.life(), |_| Live::default())?;
        // It owns nothing yet.
        sessions.rest(session);
        tracing::info!(session = %id, epoch = session.epoch, ttl = ?self.shared.options.ttl, "session established");
        Some(ActiveSession { session, begun })
    }

    /// Connects for as long as that takes, then [runs](Self::run).
    pub(crate) async fn start(mut self) -> Close {
        // No session has owned any node.
        let Some(begun) = self.reconnect(None, Attempts::first()).await else { return Close::Ended };
        let id = begun.id;
        match self.begin(begun) {
            Some(session) => self.run(Some(session)).await,
            None => self.end(id).await,
        }
    }

    /// Keeps sessions until the backend is closed or the credentials are refused. Returns whether the server has confirmed the
    /// end of the last one.
    pub(crate) async fn run(mut self, first: Option<ActiveSession>) -> Close {
        let mut next = first;
        while let Some(session) = next {
            let mut id = session.begun.id;
            next = match self.serve(session).await {
                End::Lost => {
                    let begun = self.reconnect(Some(id), Attempts::after_loss()).await;
                    begun.and_then(|begun| {
                        // Also if the backend was closed meanwhile.
                        id = begun.id;
                        self.begin(begun)
                    })
                }
                End::Refused | End::Closed => None,
            };
            if next.is_none() {
                return self.end(id).await;
            }
        }
        Close::Pending
    }

    /// Keeps one session alive until it ends.
    async fn serve(&mut self, session: ActiveSession) -> End {
        let end = self.keep(&session).await;
        let SessionKey { epoch, id } = session.session;
        match end {
            End::Lost => tracing::warn!(session = %id, epoch, "session lost"),
            End::Refused => tracing::error!(session = %id, epoch, "credentials or permission refused"),
            End::Closed => tracing::info!(session = %id, epoch, "session closed"),
        }
        self.shared.end(session.session);
        end
    }

    async fn keep(&mut self, session: &ActiveSession) -> End {
        let epoch = session.session.epoch;
        let shared = self.shared.clone();
        let mut events = shared.sessions.events();
        tokio::select! {
            biased;
            () = self.closing.wait() => End::Closed,
            _ = events.over(epoch) => match shared.sessions.closed() {
                None => End::Lost,
                Some(Interrupted::AuthFailed(_)) => End::Refused,
                Some(_) => End::Closed,
            },
            () = keep_alive(&shared, session) => End::Lost,
            never = poll_forever(&shared, session.session) => match never {},
        }
    }

    /// Ends the old session at the server, if there is one, and then begins another, retrying without a limit. `None` when
    /// that has become pointless.
    ///
    /// The order matters: once a session begins, nothing that was sent in the previous one can take effect.
    async fn reconnect(&mut self, old: Option<i64>, mut attempts: Attempts) -> Option<Begun> {
        let shared = self.shared.clone();
        let options = &shared.options;
        let attempts = async {
            loop {
                attempts.pause().await;
                let time = time(&shared, &attempts);
                let attempt = async {
                    if let Some(old) = old {
                        match begin::end(&shared, old, time).await {
                            // The others remove it when the user's transaction has ended.
                            Ok(()) | Err(Failure::Fenced) => {}
                            Err(failure) => return Err(failure),
                        }
                    }
                    begin::begin(&shared, time).await
                };
                match attempt.await {
                    Ok(begun) => return Some(begun),
                    Err(failure) if failure.classify().kind == ErrorKind::NotAuthorized => {
                        tracing::error!(?failure, "no further session");
                        shared.close(CloseReason::AuthFailed);
                        return None;
                    }
                    Err(failure) => {
                        attempts.failed(matches!(failure, Failure::Silent));
                        let error = options.kit.connect_error(failure.classify().kind);
                        let error = failure.explain(error);
                        shared.sessions.attempt_failed(error);
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = self.closing.wait() => None,
            begun = attempts => begun,
        }
    }

    /// Ends a session at the server if the server can be reached. Only the server's answer is a confirmation.
    async fn end(&self, id: i64) -> Close {
        let limit = self.shared.options.answer_time();
        let end = async {
            loop {
                match begin::end(&self.shared, id, limit).await {
                    Ok(()) => return Close::Ended,
                    Err(failure) if !failure.classify().retryable => return Close::Pending,
                    Err(_) => sleep(PAUSE).await,
                }
            }
        };
        let close = timeout(Task::CLOSE_TIMEOUT, end).await.unwrap_or(Close::Pending);
        if close == Close::Pending {
            let session = SessionId::new(id.cast_unsigned());
            tracing::warn!(%session, "the session could not be ended at the server in time");
        }
        self.shared.heart.close();
        self.shared.pool.close();
        close
    }
}

/// Keeps the session alive, and returns when it is over.
async fn keep_alive(shared: &Shared, session: &ActiveSession) {
    let ActiveSession { session, begun } = *session;
    let (sessions, options) = (&shared.sessions, &shared.options);
    let mut at_rest = true;
    let mut due = begun.sent + REST / 3;
    let mut failures = 0_u32;
    let mut last = begun.sent;
    loop {
        tokio::select! {
            biased;
            () = sleep_until(due) => {}
            // The create has renewed the session.
            () = sessions.active(session), if at_rest && failures == 0 => {
                (at_rest, due) = (false, Instant::now() + options.ttl / 3);
                continue;
            }
            () = shared.heart.broken(), if failures == 0 => {}
            () = shared.doubt.notified(), if failures == 0 => {}
        }
        at_rest = sessions.rest(session);
        let sent = Instant::now();
        match begin::beat(shared, session, at_rest).await {
            Ok(Some(rests)) => {
                (failures, last, at_rest) = (0, sent, rests);
                due = sent + if at_rest { REST } else { options.ttl } / 3;
                sessions.set_refused(session, false);
                let lives = at_rest || sessions.extend(session, sent, sent + options.life());
                if !lives || !sessions.resume(session) {
                    return;
                }
            }
            Ok(None) => return,
            Err(failure) => {
                sessions.set_refused(session, failure.classify().kind == ErrorKind::NotAuthorized);
                failures += 1;
                due = Instant::now() + PAUSE * failures.min(MOST_PAUSES);
                tracing::debug!(?failure, failures, "no response to a heartbeat");
                sessions.suspend(session);
                // A session with a deadline ends by that deadline.
                if failures == 1 && at_rest {
                    last = sent;
                }
                if at_rest && last + options.life() <= Instant::now() {
                    sessions.give_up(session);
                }
            }
        }
    }
}

/// The manager ends with the backend, or is dropped with its runtime. From then on, the session is not kept alive.
impl Drop for Manager {
    fn drop(&mut self) {
        self.shared.close(CloseReason::Requested);
    }
}
