//! The task of a backend, which keeps a session alive and begins the next one when it is lost.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use zlock_core::kit::{Attempts, Closing, Failure as _, Interrupted, SessionKey, Task};
use zlock_core::{Close, CloseReason, Error, ErrorKind, SessionId};

use crate::error::Failure;
use crate::keys::key;
use crate::session::lease::{self, Beat, Beaten, GrantedLease, Keeper, Search};
use crate::session::lease_requests::LeaseRequests;
use crate::session::renewal::{Answerer, Renewal};
use crate::session::{Live, Shared};

/// The pause before a request that a server has refused or not answered is repeated.
const PAUSE: Duration = Duration::from_millis(50);

/// The reason why a session is no longer kept alive.
enum End {
    /// The session is over: the server said so, or the deadline has passed.
    Lost,
    /// The cluster refused to keep it alive until its deadline passed.
    Refused,
    /// The backend was closed or dropped.
    Closed,
}

/// The session that is kept alive.
pub(crate) struct ActiveSession {
    lease: SessionKey,
    granted: GrantedLease,
}

pub(crate) struct Manager {
    shared: Arc<Shared>,
    closing: Closing,
}

/// Establishes the first session, within the connect timeout. Fails early if waiting is pointless.
pub(crate) async fn connect(shared: &Shared) -> Result<GrantedLease, Error> {
    let options = &shared.options;
    let until = Instant::now() + options.kit.connect_timeout;
    if options.has_files() {
        let checked = options.clone();
        options.kit.check_files(until, move || checked.check_contents()).await?;
    }
    let mut last = None;
    let (mut attempts, mut grants) = (Attempts::first(), grants(shared));
    let attempts = async {
        loop {
            attempts.pause().await;
            match grants.attempt(time(shared, &attempts)).await {
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
    let unavailable = || failed(ErrorKind::Unavailable);
    let find = || async { shared.endpoints.find().await.map_err(|failure| failure.explain(unavailable())) };
    let servers = options.kit.find(until, find).await?;
    let probe = options.probe(&servers);
    tokio::select! {
        biased;
        granted = attempts => granted.map_err(|failure| {
            let kind = failure.classify().kind;
            failure.explain(failed(kind))
        }),
        () = probe.hopeless() => Err(unavailable().with_message(probe.causes())),
        () = sleep_until(until) => {
            let error = last.map_or_else(unavailable, |failure| failure.explain(unavailable()));
            Err(error.with_message(probe.no_session_within(options.kit.connect_timeout)))
        }
    }
}

fn grants(shared: &Shared) -> LeaseRequests {
    let options = &shared.options;
    LeaseRequests::new(
        shared.endpoints.clone(),
        options.ttl,
        options.kit.connect_timeout,
        shared.runtime.clone(),
    )
}

/// Returns how long the next attempt at a session waits before the next server is asked. Twice as long if there is none.
fn time(shared: &Shared, attempts: &Attempts) -> Duration {
    let options = &shared.options;
    let others = if shared.endpoints.servers().len() > 1 { 1 } else { 2 };
    attempts.time(options.answer_time() * others, options.kit.connect_timeout)
}

impl Manager {
    pub(crate) fn new(shared: Arc<Shared>, closing: Closing) -> Self {
        Manager { shared, closing }
    }

    /// Makes a new session the current one. `None` if the backend is closed.
    pub(crate) fn begin(&self, granted: GrantedLease) -> Option<ActiveSession> {
        let id = SessionId::new(granted.id.cast_unsigned());
        let deadline = granted.sent + granted.life();
        let (lease, _) =
            self.shared.sessions.begin(id, deadline, |_| Live::new(granted.ttl, granted.life()))?;
        tracing::info!(session = %id, epoch = lease.epoch, ttl = ?granted.ttl, "session established");
        Some(ActiveSession { lease, granted })
    }

    /// Connects for as long as that takes, then [runs](Self::run).
    pub(crate) async fn start(mut self) -> Close {
        // No session has owned any node.
        let Some(granted) = self.reconnect(None, Attempts::first()).await else { return Close::Ended };
        let id = granted.id;
        match self.begin(granted) {
            Some(session) => self.run(Some(session)).await,
            None => self.end(id).await,
        }
    }

    /// Keeps sessions until the backend is closed or the credentials are refused. Returns whether the cluster
    /// has confirmed the end of the last one.
    pub(crate) async fn run(mut self, first: Option<ActiveSession>) -> Close {
        let mut next = first;
        while let Some(session) = next {
            let mut id = session.granted.id;
            next = match self.serve(session).await {
                End::Lost => {
                    let granted = self.reconnect(Some(id), Attempts::after_loss()).await;
                    granted.and_then(|granted| {
                        // Also if the backend was closed meanwhile.
                        id = granted.id;
                        self.begin(granted)
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
        let SessionKey { epoch, id } = session.lease;
        match end {
            End::Lost => tracing::warn!(session = %id, epoch, "session lost"),
            End::Refused => tracing::error!(session = %id, epoch, "credentials or permission refused"),
            End::Closed => tracing::info!(session = %id, epoch, "session closed"),
        }
        self.shared.end(session.lease);
        end
    }

    async fn keep(&mut self, session: &ActiveSession) -> End {
        let epoch = session.lease.epoch;
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
            () = shared.endpoints.history().gone_back(session.granted.known) => End::Lost,
            () = keep_alive(&shared, session) => End::Lost,
            never = look_through(&shared, session) => match never {},
        }
    }

    /// Ends the old session at the server, if there is one, and then begins another, retrying without a limit. `None` when
    /// that has become pointless.
    ///
    /// The order matters: once a session begins, nothing that was sent in the previous one can take effect.
    async fn reconnect(&mut self, old: Option<i64>, mut attempts: Attempts) -> Option<GrantedLease> {
        let shared = self.shared.clone();
        let mut grants = grants(&shared);
        let (endpoints, options) = (&shared.endpoints, &shared.options);
        let mut servers = endpoints.servers();
        let probe = Mutex::new(Arc::new(options.probe(&servers)));
        let current_probe = || probe.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Probes the current servers: before the first lookup in DNS, there are none.
        let probes = async {
            loop {
                let current = current_probe();
                servers = tokio::select! {
                    biased;
                    others = endpoints.servers_but(&servers) => others,
                    never = current.watch() => match never {},
                };
                *probe.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(options.probe(&servers));
            }
        };
        let attempts = async {
            loop {
                attempts.pause().await;
                let attempt = async {
                    endpoints.find().await?;
                    let time = time(&shared, &attempts);
                    if let Some(old) = old {
                        lease::revoke(endpoints, old, time).await?;
                    }
                    grants.attempt(time).await
                };
                match attempt.await {
                    Ok(granted) => return Some(granted),
                    Err(failure) if failure.classify().kind == ErrorKind::NotAuthorized => {
                        tracing::error!(?failure, "no further session");
                        shared.close(CloseReason::AuthFailed);
                        return None;
                    }
                    Err(failure) => {
                        let causes = current_probe().causes();
                        attempts.failed(matches!(failure, Failure::Silent));
                        let error = options.kit.connect_error(failure.classify().kind);
                        // Nothing was sent, so the answers of the hosts are not the reason.
                        let is_ours = matches!(failure, Failure::NoWay(_));
                        let error = failure.explain(error);
                        let error =
                            if is_ours || causes.is_empty() { error } else { error.with_message(causes) };
                        tracing::warn!(%error, "no session yet");
                        shared.sessions.attempt_failed(error);
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = self.closing.wait() => None,
            granted = attempts => granted,
            () = probes => None,
        }
    }

    /// Ends a session at the server if the server can be reached. Only the server's answer is a confirmation.
    async fn end(&self, id: i64) -> Close {
        let limit = self.shared.options.answer_time();
        let revoke = async {
            loop {
                match lease::revoke(&self.shared.endpoints, id, limit).await {
                    Ok(()) => return Close::Ended,
                    Err(failure) if !failure.classify().retryable => return Close::Pending,
                    Err(_) => sleep(PAUSE).await,
                }
            }
        };
        let close = timeout(Task::CLOSE_TIMEOUT, revoke).await.unwrap_or(Close::Pending);
        if close == Close::Pending {
            let session = SessionId::new(id.cast_unsigned());
            tracing::warn!(%session, "the session could not be ended at the server in time");
        }
        close
    }
}

/// Keeps the lease alive, and returns when it is gone.
async fn keep_alive(shared: &Shared, session: &ActiveSession) {
    let ActiveSession { lease, granted } = *session;
    let sessions = &shared.sessions;
    let limit = shared.options.keep_alive_time();
    let key = key::fence(shared.options.prefix(), lease.id, 0);
    let mut keeper = Keeper::new(shared.endpoints.clone(), granted.id, key, limit);
    // The first keep-alive is due at once: its stream shows when the server becomes unreachable. Whether the session stays at
    // rest is decided later.
    let (mut due, mut at_rest) = (Due::now(), false);
    // The number of servers in a row that have failed to answer.
    let mut failures = 0;
    // The servers may have been restarted, and restored, since the session's places were known to be its own.
    let mut is_doubtful = false;
    let mut last = granted.sent;
    loop {
        let mut must_prove = failures > 0;
        tokio::select! {
            biased;
            () = sleep_until(due.at) => {}
            // A create's proof may not last long. A proof follows even if the node is gone by then, because with very short
            // holds a bare keep-alive would follow each of them.
            () = sessions.active(lease), if at_rest => (due.at, must_prove) = (Instant::now(), true),
            () = keeper.broken() => {
                is_doubtful = true;
                sleep_until(due.after_break()).await;
            }
        }
        at_rest = !must_prove && last != granted.sent && sessions.rest(lease);
        let sent = due.send();
        match beat(shared, lease, &mut keeper, at_rest).await {
            Ok(Some(by)) => {
                (failures, last) = (0, sent);
                due.at = sent + granted.ttl / 3;
                sessions.set_refused(lease, false);
                // A bare answer may be that of a leader that was replaced. It extends nothing.
                let lives = at_rest || sessions.extend(lease, sent, sent + granted.life());
                if let (Some(by), Some(live)) = (by, sessions.get(lease)) {
                    live.renewed(Renewal { sent, by });
                }
                if !lives || !sessions.resume(lease) {
                    return;
                }
                if is_doubtful {
                    // Without an answer, the next keep-alive looks again.
                    is_doubtful =
                        !matches!(timeout(limit, lease::find_unknown(shared, lease)).await, Ok(Ok(())));
                }
            }
            Ok(None) => return,
            Err(failure) => {
                sessions.set_refused(lease, failure.classify().kind == ErrorKind::NotAuthorized);
                (failures, is_doubtful) = (failures + 1, true);
                due.at = Instant::now() + PAUSE;
                tracing::debug!(?failure, failures, "no response to a keep-alive");
                // The session is not interrupted while another server may still answer at once.
                if failures >= shared.endpoints.servers().len() {
                    sessions.suspend(lease);
                }
                // A session with a deadline ends by that deadline.
                if last + granted.life() <= Instant::now() {
                    sessions.give_up(lease);
                }
            }
        }
    }
}

/// Sends one keep-alive. Returns the member that has answered, if a create may use that as a proof. Returns `None` if the
/// lease no longer exists.
async fn beat(
    shared: &Shared,
    lease: SessionKey,
    keeper: &mut Keeper,
    at_rest: bool,
) -> Result<Option<Option<Answerer>>, Failure> {
    if at_rest {
        let look = if shared.watches.is_watching() { Beat::Look } else { Beat::Bare };
        return Ok(keeper.beat(look).await?.map(|beaten| beaten.by));
    }
    let search = Search::begin(shared, lease)?;
    let Some(Beaten { by, found }) = keeper.beat(Beat::Proof(search.as_ref())).await? else {
        return Ok(None);
    };
    if let (Some(search), Some(found)) = (search, found)
        // Without an answer, the next keep-alive searches again.
        && let Ok(Err(failure)) = timeout(shared.options.keep_alive_time(), search.end(shared, lease, &found)).await
    {
        tracing::debug!(?failure, "the session's nodes could not be looked up");
    }
    Ok(Some(by))
}

/// The time at which the next keep-alive is due.
struct Due {
    at: Instant,
    /// The time at which the last one was sent.
    sent: Instant,
    /// The number of consecutive keep-alives that were sent early because their stream had ended.
    breaks: u32,
}

impl Due {
    fn now() -> Self {
        let now = Instant::now();
        Due { at: now, sent: now, breaks: 0 }
    }

    /// Returns when to send the next one after the stream has ended: at once, unless it ends repeatedly. A proxy may end it
    /// after each answer.
    fn after_break(&self) -> Instant {
        self.at.min(self.sent + PAUSE * ((1 << self.breaks.min(16)) - 1))
    }

    /// Records that one is sent now.
    fn send(&mut self) -> Instant {
        self.sent = Instant::now();
        self.breaks = if self.sent < self.at { self.breaks + 1 } else { 0 };
        self.sent
    }
}

/// Repeatedly finds own nodes that other clients deleted, while there are too many for the keep-alives to search. Never
/// completes.
async fn look_through(shared: &Shared, session: &ActiveSession) -> Infallible {
    loop {
        sleep(session.granted.ttl / 3).await;
        if shared.sessions.is_connected(session.lease) != Ok(true) {
            continue;
        }
        if let Err(failure) = lease::look_through(shared, session.lease).await {
            tracing::debug!(?failure, "the session's nodes could not be listed");
        }
    }
}

/// The manager ends with the backend, or is dropped with its runtime. From then on, the session is not kept alive.
impl Drop for Manager {
    fn drop(&mut self) {
        self.shared.close(CloseReason::Requested);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many keep-alives are sent in a minute if their stream ends this long after each answer.
    async fn sent_in_a_minute(stream: Duration) -> u32 {
        let (began, mut due, mut sent) = (Instant::now(), Due::now(), 0);
        while began.elapsed() < Duration::from_secs(60) {
            due.at = due.send() + Duration::from_secs(10);
            sent += 1;
            sleep(stream).await;
            sleep_until(due.after_break()).await;
        }
        sent
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_ends_after_each_answer_costs_little() {
        assert_eq!(sent_in_a_minute(Duration::from_millis(1)).await, 27);
        assert_eq!(sent_in_a_minute(Duration::from_secs(9)).await, 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_ends_is_begun_again_at_once() {
        let mut due = Due::now();
        due.at = due.send() + Duration::from_secs(10);
        sleep(Duration::from_secs(1)).await;
        assert!(due.after_break() <= Instant::now());
    }
}
