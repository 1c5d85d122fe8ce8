//! ZooKeeper's part of the session loop of `zlock_core::kit`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use zlock_core::kit::{Begun, Options, Over, SessionKey, SessionStore, Sessions, first_session};
use zlock_core::probe::{Probe, Protocol};
use zlock_core::{Close, CloseReason, Error, ErrorKind, Result, SessionId};
use zookeeper_client::{SessionState, StateWatcher};

use crate::config::DEFAULT_PORT;
use crate::error::Failure;
use crate::session::connect::{Established, connector, longest, patience, see_through, time, turn};
use crate::session::heartbeat::{Beat, Heartbeat, interval};
use crate::session::states::States;
use crate::session::{Live, Shared};
use crate::watches::watchers::Watchers;

/// The sessions of a backend, for the loop that keeps them.
pub(crate) struct ZkSessions {
    shared: Arc<Shared>,
    /// The number of failed attempts at the next session: the groups of servers take turns.
    failed: AtomicUsize,
}

impl ZkSessions {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        ZkSessions { shared, failed: AtomicUsize::new(0) }
    }
}

/// What keeps a session.
pub(crate) struct Kept {
    states: StateWatcher,
    /// The timeout that the server granted.
    timeout: Duration,
    /// The time at which the last request of its beginning was sent.
    sent: Instant,
}

impl SessionStore for ZkSessions {
    type Granted = Established;
    type Kept = Kept;
    type Live = Live;
    type Failure = Failure;

    fn sessions(&self) -> &Sessions<Live> {
        &self.shared.sessions
    }

    fn options(&self) -> &Options {
        &self.shared.options.kit
    }

    fn files(&self) -> Option<impl FnOnce() -> Result<(), String> + Send + 'static> {
        let options = self.shared.options.clone();
        options.has_files().then_some(move || options.check_contents())
    }

    async fn servers(&self) -> Result<Vec<String>, Failure> {
        self.shared.servers().await.map(|groups| groups.concat()).map_err(Failure::NoWay)
    }

    fn probe(&self, servers: Vec<String>) -> Option<Probe> {
        Some(self.options().probe(Protocol::ZooKeeper, DEFAULT_PORT, &servers))
    }

    fn patience(&self) -> (Duration, Duration) {
        let timeout = self.options().session_timeout;
        (patience(timeout), longest(timeout))
    }

    /// The old session needs no end: the library closes it as soon as it can reach a server, and its requests stay in it.
    async fn begin(&self, _: Option<SessionId>, patience: Duration) -> Result<Begun<Established>, Failure> {
        let (shared, failed) = (&self.shared, self.failed.fetch_add(1, Ordering::Relaxed));
        let groups = shared.known_servers();
        let group = groups.get(failed % groups.len().max(1)).cloned().unwrap_or_default();
        let patience = time(&shared.options, patience);
        let connector = connector(&shared.options, patience).await.map_err(Failure::NoWay)?;
        let limit = turn(self.options().connect_timeout, groups.len());
        let established = timeout(limit, see_through(shared, patience, connector, group)).await;
        let established = established.unwrap_or(Err(zookeeper_client::Error::Timeout))?;
        self.failed.store(0, Ordering::Relaxed);
        let Established { client, deadline, .. } = &established;
        Ok(Begun {
            id: SessionId::new(client.session_id().0.cast_unsigned()),
            timeout: client.session_timeout(),
            deadline: *deadline,
            granted: established,
        })
    }

    fn publish(&self, key: SessionKey, granted: Established) -> (Live, Kept) {
        let Established { client, touches, sent, .. } = granted;
        let kept = Kept { states: client.state_watcher(), timeout: client.session_timeout(), sent };
        let shared = Arc::downgrade(&self.shared);
        let watchers = Watchers::new(self.shared.runtime.clone(), move || {
            let shared = shared.clone();
            async move {
                let shared = shared.upgrade().ok_or_else(|| Error::new(ErrorKind::Closed, "connect"))?;
                Ok(first_session(&ZkSessions::new(shared)).await?.granted.client)
            }
        });
        (Live::new(key, client, watchers, touches), kept)
    }

    async fn keep(&self, key: SessionKey, kept: &mut Kept) -> Over {
        let (shared, Kept { states, timeout, sent }) = (&self.shared, kept);
        let Some(live) = shared.sessions.get(key) else { return Over::Closed };
        let mut connected = states.peek_state() == SessionState::SyncConnected;
        // No change of state follows if the connection is already broken.
        if !connected {
            shared.sessions.suspend(key);
        }
        let mut changes = States::new(states.clone());
        let mut next = *sent + interval(*timeout);
        let mut heartbeat: Option<Heartbeat> = None;
        let mut beats: u32 = 0;
        loop {
            tokio::select! {
                biased;
                state = changes.changed() => {
                    Heartbeat::abandon(&mut heartbeat);
                    live.staleness.suspect();
                    match state {
                        SessionState::SyncConnected => {
                            connected = true;
                            live.touches.lock().resume(changes.connected());
                            if !shared.sessions.resume(key) {
                                return Over::Lost;
                            }
                            next = Instant::now();
                        }
                        // The session reconnected with the password from its beginning. The next one reads the file, and
                        // if that is refused, too, it is the last.
                        SessionState::AuthFailed if shared.options.has_password_file() => return Over::Lost,
                        SessionState::AuthFailed => return Over::Refused,
                        state if state.is_terminated() => return Over::Lost,
                        _ => {
                            connected = false;
                            shared.sessions.suspend(key);
                        }
                    }
                }
                answered = Heartbeat::answer(&mut heartbeat) => {
                    heartbeat = None;
                    if let Some((sent, beat)) = answered
                        && !renew(shared, &live, sent, beat)
                    {
                        return Over::Lost;
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

    fn lost(&self, key: SessionKey) {
        self.shared.end(key);
    }

    fn close(&self, reason: CloseReason) {
        self.shared.close(reason);
    }

    /// Waits for the server's answer to the end of a session, which the library requests when its last owner drops the client. The
    /// requests in flight drop it by themselves, now that the session is no longer the current one.
    ///
    /// With that answer, the library reports `Closed`. It reports `Disconnected` if the connection breaks before, and `Expired`
    /// also based on its own clock, without an answer of a server.
    async fn end(&self, _: SessionId, kept: Option<&mut Kept>) -> Result<Close, Failure> {
        let Some(Kept { states, .. }) = kept else { return Ok(Close::Pending) };
        match states.peek_state() {
            SessionState::Closed => return Ok(Close::Ended),
            SessionState::SyncConnected => {}
            _ => return Ok(Close::Pending),
        }
        loop {
            let state = states.changed().await;
            if state.is_terminated() {
                return Ok(if state == SessionState::Closed { Close::Ended } else { Close::Pending });
            }
        }
    }
}

/// Moves the deadline of a session after a heartbeat was answered. Returns `false` if the session is over.
fn renew(shared: &Shared, live: &Live, sent: Instant, beat: Beat) -> bool {
    // Until the deadline is set, the session's first own node cannot be added.
    let mut touches = live.touches.lock();
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

#[cfg(test)]
mod tests {
    use tokio::runtime::Handle;
    use zlock_core::kit::Task;
    use zlock_testkit::{Cut, FaultProxy, limit, zookeeper_or_skip};

    use super::*;
    use crate::config::ZkOptions;

    async fn becomes(states: &mut StateWatcher, state: SessionState) {
        while states.changed().await != state {}
    }

    /// Another thread closes the backend before the session loop handles an event of the session.
    #[tokio::test]
    async fn a_session_that_was_closed_meanwhile_is_ended_at_the_server() {
        limit(async {
            let Some(server) = zookeeper_or_skip().await else { return };
            let proxy = FaultProxy::start_zookeeper(server.addr()).await;
            let shared = Arc::new(Shared::new(ZkOptions::new([proxy.connect_string()]), Handle::current()));
            let task = Task::connect(ZkSessions::new(shared.clone())).await.unwrap();
            let key = shared.sessions.current_key().unwrap();
            let mut states = shared.sessions.get(key).unwrap().client.state_watcher();
            proxy.refuse().await;
            proxy.cut(Cut::Fin);
            becomes(&mut states, SessionState::Disconnected).await;
            proxy.heal().await;
            becomes(&mut states, SessionState::SyncConnected).await;
            shared.close(CloseReason::Requested);
            assert_eq!(task.close().await, Close::Ended);
        })
        .await;
    }
}
