//! The task of a backend, which keeps a session alive and begins the next one when it is lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use zlock_core::kit::{Attempts, Closing, SessionKey, Task};
use zlock_core::{Close, CloseReason, Error, ErrorKind, SessionId};
use zookeeper_client::{SessionState, StateWatcher};

use crate::session::connect::{Established, reconnect};
use crate::session::heartbeat::{Beat, Heartbeat, interval};
use crate::session::states::States;
use crate::session::{Live, Shared};
use crate::watches::watchers::Watchers;

/// The reason why a session is no longer kept alive.
enum End {
    /// The session is over: the server said so, or the deadline has passed.
    Lost,
    /// The server refuses the credentials.
    AuthFailed,
    /// The backend was closed or dropped.
    Closed(Close),
}

/// The session that is kept alive.
pub(crate) struct ActiveSession {
    live: Arc<Live>,
    states: StateWatcher,
    /// The timeout that the server granted.
    timeout: Duration,
    /// The time at which the last request of its beginning was sent.
    sent: Instant,
}

pub(crate) struct Manager {
    shared: Arc<Shared>,
    closing: Closing,
}

impl Manager {
    pub(crate) fn new(shared: Arc<Shared>, closing: Closing) -> Self {
        Manager { shared, closing }
    }

    /// Makes a new session the current one. `None` if the backend is closed.
    pub(crate) fn begin(&self, established: Established) -> Option<ActiveSession> {
        let Established { client, touches, deadline, sent } = established;
        let timeout = client.session_timeout();
        let id = SessionId::new(client.session_id().0.cast_unsigned());
        let states = client.state_watcher();
        let shared = Arc::downgrade(&self.shared);
        let watchers = Watchers::new(self.shared.runtime.clone(), move || {
            let shared = shared.clone();
            async move {
                let shared = shared.upgrade().ok_or_else(|| Error::new(ErrorKind::Closed, "connect"))?;
                Ok(reconnect(&shared, &mut Attempts::first(), drop).await?.client)
            }
        });
        let live = |session| Live::new(session, client, watchers, touches);
        let (session, live) = self.shared.sessions.begin(id, deadline, live)?;
        tracing::info!(session = %id, epoch = session.epoch, ?timeout, "session established");
        // No change of state follows if the connection is already broken.
        if states.peek_state() != SessionState::SyncConnected {
            self.shared.sessions.suspend(session);
        }
        Some(ActiveSession { live, states, timeout, sent })
    }

    /// Connects for as long as that takes, then [runs](Self::run).
    pub(crate) async fn start(mut self) -> Close {
        match self.reconnect(Attempts::first()).await.and_then(|established| self.begin(established)) {
            Some(session) => self.run(Some(session)).await,
            // No session has owned any node.
            None => Close::Ended,
        }
    }

    /// Keeps sessions until the backend is closed or the credentials are refused. Returns whether the server
    /// has confirmed the end of the last one.
    pub(crate) async fn run(mut self, first: Option<ActiveSession>) -> Close {
        let mut next = first;
        while let Some(session) = next {
            next = match self.serve(session).await {
                End::Lost => {
                    let next = self.reconnect(Attempts::after_loss()).await;
                    next.and_then(|established| self.begin(established))
                }
                End::AuthFailed => None,
                End::Closed(close) => return close,
            };
        }
        Close::Pending
    }

    /// Keeps one session alive until it ends, and drops its client.
    async fn serve(&mut self, mut session: ActiveSession) -> End {
        let end = match self.keep(&mut session).await {
            // Another thread may have closed the backend at any moment.
            End::Lost if self.shared.sessions.closed().is_some() => End::Closed(Close::Pending),
            end => end,
        };
        let ActiveSession { live, states, .. } = session;
        let SessionKey { epoch, id } = live.session;
        match end {
            End::Lost => tracing::warn!(session = %id, epoch, "session lost"),
            End::AuthFailed => {
                tracing::error!(session = %id, epoch, "credentials refused");
                // Before the end of the session is published, which would look like an ordinary loss.
                self.shared.close(CloseReason::AuthFailed);
            }
            End::Closed(_) => tracing::info!(session = %id, epoch, "session closed"),
        }
        self.shared.end(live.session);
        // When its last owner drops the client, it closes the session at the server as soon as it can reach one: the nodes of
        // a lost session are removed as soon as the connection is restored. Requests in flight drop the client by themselves,
        // now that the session is no longer the current one.
        drop(live);
        if matches!(end, End::Closed(_)) && states.peek_state() == SessionState::SyncConnected {
            let close = confirmation(states).await;
            if close == Close::Pending {
                tracing::warn!(session = %id, "the server has not confirmed the end of the session in time");
            }
            return End::Closed(close);
        }
        end
    }

    async fn keep(&mut self, session: &mut ActiveSession) -> End {
        let ActiveSession { live, states, timeout, sent } = session;
        let key = live.session;
        let shared = self.shared.clone();
        let mut events = shared.sessions.events();
        let mut connected = states.peek_state() == SessionState::SyncConnected;
        let mut changes = States::new(states.clone());
        let mut next = *sent + interval(*timeout);
        let mut heartbeat: Option<Heartbeat> = None;
        let mut beats: u32 = 0;
        loop {
            tokio::select! {
                biased;
                () = self.closing.wait() => return End::Closed(Close::Pending),
                state = changes.changed() => {
                    Heartbeat::abandon(&mut heartbeat);
                    live.staleness.suspect();
                    match state {
                        SessionState::SyncConnected => {
                            connected = true;
                            live.touches().resume(changes.connected());
                            if !shared.sessions.resume(key) {
                                return End::Lost;
                            }
                            next = Instant::now();
                        }
                        // The session reconnected with the password from its beginning. The next one reads the file, and
                        // if that is refused, too, it is the last.
                        SessionState::AuthFailed if shared.options.has_password_file() => return End::Lost,
                        SessionState::AuthFailed => return End::AuthFailed,
                        state if state.is_terminated() => return End::Lost,
                        _ => {
                            connected = false;
                            shared.sessions.suspend(key);
                        }
                    }
                }
                _ = events.over(key.epoch) => return End::Lost,
                answered = Heartbeat::answer(&mut heartbeat) => {
                    heartbeat = None;
                    if let Some((sent, beat)) = answered
                        && !renew(&shared, live, sent, beat)
                    {
                        return End::Lost;
                    }
                }
                // Another look at the connection. Without it, a connection that takes the place of a silent one would count from
                // the beginning of the silence.
                () = sleep(interval(*timeout) / 4), if connected && heartbeat.is_some() => {}
                () = sleep_until(next), if connected && heartbeat.is_none() => {
                    next = Instant::now() + interval(*timeout);
                    heartbeat = Some(Heartbeat::new(live.clone(), shared.clone(), *timeout, beats));
                    beats = beats.wrapping_add(1);
                }
            }
        }
    }

    /// Retries without a limit. `None` when that has become pointless.
    async fn reconnect(&mut self, mut attempts: Attempts) -> Option<Established> {
        let shared = self.shared.clone();
        let attempts = async {
            loop {
                match reconnect(&shared, &mut attempts, |error| shared.sessions.attempt_failed(error)).await {
                    Ok(established) => return Some(established),
                    Err(error) if error.kind() == ErrorKind::NotAuthorized => {
                        tracing::error!(%error, "no further session");
                        shared.close(CloseReason::AuthFailed);
                        return None;
                    }
                    Err(error) => {
                        shared.sessions.attempt_failed(error);
                        attempts.failed(false);
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = self.closing.wait() => None,
            established = attempts => established,
        }
    }
}

/// Moves the deadline of a session after a heartbeat was answered. Returns `false` if the session is over.
fn renew(shared: &Shared, live: &Live, sent: Instant, beat: Beat) -> bool {
    // Until the deadline is set, the session's first own node cannot be added.
    let mut touches = live.touches();
    if beat == Beat::Write {
        touches.wrote(sent);
    }
    let deadline = if shared.sessions.own().is_empty() {
        touches.deadline_at_rest(sent)
    } else {
        touches.deadline(sent)
    };
    touches.answered(sent);
    shared.sessions.extend(live.session, sent, deadline)
}

/// Waits for the server's answer to the end of a session, which the library requests when its client is dropped.
///
/// With that answer, the library reports `Closed`. It reports `Disconnected` if the connection breaks before, and `Expired`
/// also based on its own clock, without an answer of a server.
async fn confirmation(mut states: StateWatcher) -> Close {
    let answered = async {
        loop {
            let state = states.changed().await;
            if state.is_terminated() {
                return state == SessionState::Closed;
            }
        }
    };
    if timeout(Task::CLOSE_TIMEOUT, answered).await == Ok(true) { Close::Ended } else { Close::Pending }
}

/// The manager ends with the backend, or is dropped with its runtime. From then on, the session is not kept alive.
impl Drop for Manager {
    fn drop(&mut self) {
        self.shared.close(CloseReason::Requested);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::runtime::Handle;
    use zlock_testkit::{Cut, FaultProxy, limit, zookeeper_or_skip};

    use super::*;
    use crate::config::ZkOptions;
    use crate::session::connect::connect;

    async fn becomes(states: &mut StateWatcher, state: SessionState) {
        while states.changed().await != state {}
    }

    /// Another thread closes the backend after the manager has checked whether it is closed, and before it handles an event
    /// of the session.
    #[tokio::test]
    async fn a_session_that_was_closed_meanwhile_is_ended_at_the_server() {
        limit(async {
            let Some(server) = zookeeper_or_skip().await else { return };
            let proxy = FaultProxy::start_zookeeper(server.addr()).await;
            let shared = Arc::new(Shared::new(ZkOptions::new([proxy.connect_string()]), Handle::current()));
            let mut manager = None;
            let _task = Task::spawn(&shared.sessions, |closing| {
                manager = Some(Manager::new(shared.clone(), closing));
                pending()
            });
            let manager = manager.unwrap();
            let session = manager.begin(connect(&shared).await.unwrap()).unwrap();
            let mut states = session.states.clone();
            proxy.refuse().await;
            proxy.cut(Cut::Fin);
            becomes(&mut states, SessionState::Disconnected).await;
            proxy.heal().await;
            becomes(&mut states, SessionState::SyncConnected).await;
            shared.close(CloseReason::Requested);
            assert_eq!(manager.run(Some(session)).await, Close::Ended);
        })
        .await;
    }
}
