//! etcd's part of the session loop of `zlock_core::kit`: a session is a lease.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep, timeout};
use zlock_core::kit::{self, Beats, Begun, Options, Over, SessionKey, SessionStore, Sessions, keep_alive};
use zlock_core::probe::{Probe, Protocol};
use zlock_core::{Close, SessionId};

use crate::config::DEFAULT_PORT;
use crate::error::Failure;
use crate::keys::key;
use crate::session::lease::{self, Beat, Beaten, GrantedLease, Keeper, Search};
use crate::session::lease_requests::LeaseRequests;
use crate::session::renewal::Renewal;
use crate::session::{Live, Shared};

/// The sessions of a backend, for the loop that keeps them.
pub(crate) struct Leases {
    shared: Arc<Shared>,
    /// The requests for the next lease. They go on between two attempts.
    requests: Mutex<LeaseRequests>,
}

impl Leases {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let requests = Mutex::new(LeaseRequests::new(&shared));
        Leases { shared, requests }
    }
}

impl SessionStore for Leases {
    type Granted = GrantedLease;
    type Kept = GrantedLease;
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
        self.shared.endpoints.find().await?;
        Ok(self.shared.endpoints.servers().to_vec())
    }

    fn probe(&self, servers: Vec<String>) -> Option<Probe> {
        Some(self.options().probe(Protocol::Etcd, DEFAULT_PORT, &servers))
    }

    /// After the first time, the next server is asked. Twice as long if there is none.
    fn patience(&self) -> (Duration, Duration) {
        let others = if self.shared.endpoints.servers().len() > 1 { 1 } else { 2 };
        (self.shared.options.kit.answer_time() * others, self.options().connect_timeout)
    }

    async fn begin(
        &self,
        old: Option<SessionId>,
        patience: Duration,
    ) -> Result<Begun<GrantedLease>, Failure> {
        if let Some(old) = old {
            lease::revoke(&self.shared.endpoints, old.get().cast_signed(), patience).await?;
        }
        let mut asking = self.requests.lock().await;
        let granted = asking.attempt(patience).await?;
        // The leases of the other requests are revoked.
        *asking = LeaseRequests::new(&self.shared);
        let GrantedLease { id, ttl, sent, .. } = granted;
        let deadline = sent + granted.life();
        Ok(Begun { id: SessionId::new(id.cast_unsigned()), timeout: ttl, deadline, granted })
    }

    fn publish(&self, _: SessionKey, granted: GrantedLease) -> (Live, GrantedLease) {
        (Live::new(granted.ttl, granted.life()), granted)
    }

    async fn keep(&self, lease: SessionKey, granted: &mut GrantedLease) -> Over {
        let (shared, ttl) = (&self.shared, granted.ttl);
        let key = key::fence(shared.options.prefix(), lease.id, 0);
        let limit = shared.options.kit.beat_time();
        let keeper = Keeper::new(shared.endpoints.clone(), granted.id, key, limit);
        let doubt = Notify::new();
        let mut beat = KeepAlive { shared, lease, keeper, doubt: &doubt };
        let beats = Beats::new(granted.sent, granted.life(), ttl / 3);
        tokio::select! {
            biased;
            () = shared.endpoints.history().gone_back(granted.known) => Over::Lost,
            over = keep_alive(&shared.sessions, lease, beats, &mut beat) => over,
            never = look_through(shared, lease, ttl) => match never {},
            never = find_unknown(shared, lease, &doubt, limit) => match never {},
        }
    }

    async fn end(&self, id: SessionId, _: Option<&mut GrantedLease>) -> Result<Close, Failure> {
        let limit = self.shared.options.kit.answer_time();
        lease::revoke(&self.shared.endpoints, id.get().cast_signed(), limit).await?;
        Ok(Close::Ended)
    }
}

/// The keep-alives of a lease.
struct KeepAlive<'a> {
    shared: &'a Shared,
    lease: SessionKey,
    keeper: Keeper,
    /// Notified when the servers may have been restarted, and restored.
    doubt: &'a Notify,
}

impl kit::Beat for KeepAlive<'_> {
    type Failure = Failure;

    /// Sends one keep-alive. Unless the session is at rest, it proves that the lease lives, and finds own nodes that other clients
    /// deleted. A bare answer may be that of a leader that was replaced, and extends nothing.
    async fn beat(&mut self, at_rest: bool, sent: Instant) -> Result<Option<bool>, Failure> {
        let KeepAlive { shared, lease, ref mut keeper, doubt } = *self;
        let search = if at_rest { None } else { Search::begin(shared, lease)? };
        let beat = match at_rest {
            false => Beat::Proof(search.as_ref()),
            true if shared.watches.is_watching() => Beat::Look,
            true => Beat::Bare,
        };
        let beaten = keeper.beat(beat).await.inspect_err(|_| doubt.notify_one())?;
        let Some(Beaten { by, found }) = beaten else { return Ok(None) };
        if let (Some(search), Some(found)) = (search, found)
            // Without an answer, the next keep-alive searches again.
            && let Ok(Err(failure)) =
                timeout(shared.options.kit.beat_time(), search.end(shared, lease, &found)).await
        {
            tracing::debug!(?failure, "the session's nodes could not be looked up");
        }
        if let (Some(by), Some(live)) = (by, shared.sessions.get(lease)) {
            *live.renewal.lock() = Some(Renewal { sent, by });
        }
        Ok(Some(at_rest))
    }

    async fn doubted(&mut self) {
        self.keeper.broken().await;
        self.doubt.notify_one();
    }

    fn servers(&self) -> usize {
        self.shared.endpoints.servers().len()
    }
}

/// Finds places that a restore has brought back, after each doubt and as soon as there is an answer. Never completes.
async fn find_unknown(shared: &Shared, lease: SessionKey, doubt: &Notify, limit: Duration) -> Infallible {
    loop {
        doubt.notified().await;
        while !matches!(timeout(limit, lease::find_unknown(shared, lease)).await, Ok(Ok(()))) {
            sleep(limit).await;
        }
    }
}

/// Repeatedly finds own nodes that other clients deleted, while there are too many for the keep-alives to search. Never
/// completes.
async fn look_through(shared: &Shared, lease: SessionKey, ttl: Duration) -> Infallible {
    loop {
        sleep(ttl / 3).await;
        if shared.sessions.is_connected(lease) != Ok(true) {
            continue;
        }
        if let Err(failure) = lease::look_through(shared, lease).await {
            tracing::debug!(?failure, "the session's nodes could not be listed");
        }
    }
}
