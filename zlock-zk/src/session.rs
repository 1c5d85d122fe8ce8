//! The session as the operations see it: who owns the nodes, and the way to send a request.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use zlock_core::{Background, CloseReason, ErrorKind, OwnNodes, SessionId, SessionPublisher, SessionState};
use zookeeper_client::{Client, Error};

use crate::call::Calls;
use crate::config::ZkOptions;
use crate::contents::OwnContents;
use crate::error::Failure;

/// One session with the ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) epoch: u64,
    pub(crate) id: SessionId,
}

/// A live session and the client object that is it.
///
/// Only the manager and requests under way own the client: the session ends when the last owner lets go of
/// it. So an operation keeps a [`Lease`] between its requests, never this.
pub(crate) struct Live {
    pub(crate) lease: Lease,
    pub(crate) client: Client,
    /// How often the connection was interrupted, plus one if the session is not the backend's first: each
    /// may have brought us to a server that is behind what we were told before.
    interruptions: AtomicU64,
    /// The interruptions that a `sync` was answered after.
    synced: AtomicU64,
}

impl Live {
    pub(crate) fn new(lease: Lease, client: Client) -> Self {
        let first = u64::from(lease.epoch > 1);
        Live { lease, client, interruptions: AtomicU64::new(first), synced: AtomicU64::new(0) }
    }

    pub(crate) fn interrupted(&self) {
        self.interruptions.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the backend and its manager share.
pub(crate) struct Shared {
    pub(crate) options: ZkOptions,
    pub(crate) publisher: SessionPublisher,
    pub(crate) background: Background,
    pub(crate) own: OwnNodes,
    pub(crate) contents: OwnContents,
    current: watch::Sender<Option<Arc<Live>>>,
    calls: Calls,
    /// The backend's sessions that are over, the last ones.
    past: Mutex<VecDeque<SessionId>>,
}

/// How many past sessions are remembered: nobody deletes a node that was made so many sessions ago.
const PAST: usize = 1000;

impl Shared {
    pub(crate) fn new(options: ZkOptions) -> Self {
        Shared {
            options,
            publisher: SessionPublisher::new(),
            background: Background::new(),
            own: OwnNodes::default(),
            contents: OwnContents::default(),
            current: watch::Sender::new(None),
            past: Mutex::default(),
            calls: Calls::default(),
        }
    }

    /// Begins or ends a session for the operations.
    pub(crate) fn set_current(&self, live: Option<Arc<Live>>) {
        self.calls.take_back(|| drop(self.current.send_replace(live)));
    }

    /// Ends a session for the operations.
    pub(crate) fn end(&self, lease: Lease) {
        self.publisher.lose(lease.epoch);
        {
            let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
            past.push_back(lease.id);
            let surplus = past.len().saturating_sub(PAST);
            past.drain(..surplus);
        }
        self.set_current(None);
        self.forget();
    }

    fn forget(&self) {
        self.own.clear();
        self.contents.retain(&self.own);
    }

    /// Whether this is a session of ours that is over, and so are its nodes.
    pub(crate) fn is_over(&self, id: SessionId) -> bool {
        let current = self.publisher.current();
        current.id == id && current.state == SessionState::Lost
            || self.past.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    /// The whole of the end of the backend, as far as it is local.
    pub(crate) fn close(&self, reason: CloseReason) {
        self.publisher.close(reason);
        self.background.close();
        self.forget();
        self.set_current(None);
    }

    /// Why there is no session and none will come; `None` while there may be one.
    pub(crate) fn closed(&self) -> Option<Failure> {
        match self.publisher.current().state {
            SessionState::Closed(CloseReason::AuthFailed) => Some(Failure::AuthFailed),
            SessionState::Closed(_) => Some(Failure::Closed),
            _ => None,
        }
    }

    fn is_live(&self, lease: Lease) -> bool {
        let session = self.publisher.current();
        session.epoch == lease.epoch && session.is_live()
    }

    /// Waits for a live session.
    pub(crate) async fn lease(&self, until: Instant) -> Result<Lease, Failure> {
        let mut current = self.current.subscribe();
        loop {
            if let Some(closed) = self.closed() {
                return Err(closed);
            }
            let lease = current.borrow_and_update().as_ref().map(|live| live.lease);
            if let Some(lease) = lease.filter(|lease| self.is_live(*lease)) {
                return Ok(lease);
            }
            match timeout_at(until, current.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Failure::Closed),
                Err(_) => return Err(Failure::TimedOut),
            }
        }
    }

    /// Waits, unless the backend is closed first.
    pub(crate) async fn pause(&self, until: Instant) -> Result<(), Failure> {
        let mut events = self.publisher.subscribe();
        let closed = async {
            while self.closed().is_none() {
                events.changed().await;
            }
        };
        match timeout_at(until, closed).await {
            Ok(()) => Err(self.closed().unwrap_or(Failure::Closed)),
            Err(_) => Ok(()),
        }
    }

    /// Sends what `call` asks for in this session, and waits for its answer. The library would wait for ever
    /// while it is not connected, and send the request whenever it is again.
    ///
    /// The request is sent at the first poll, so that the order of polls is the order on the wire.
    ///
    /// # Cancel safety
    /// The request may still take effect.
    pub(crate) async fn request<T, F>(
        &self,
        lease: Lease,
        until: Instant,
        call: impl FnOnce(Arc<Live>) -> F,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let mut current = self.current.subscribe();
        let begun = self.calls.begin(|| {
            let live = current.borrow_and_update().clone().filter(|live| live.lease == lease);
            // Past its deadline it is no longer ours to use, even if the manager has not come to end it yet.
            live.filter(|_| self.is_live(lease)).map(call)
        });
        let Some(begun) = begun else { return Err(self.over()) };
        tokio::select! {
            biased;
            answer = poll_fn(|cx| begun.poll(cx)) => answer.map_err(|error| self.refused(lease, error)),
            _ = current.wait_for(|live| live.as_ref().is_none_or(|live| live.lease != lease)) => Err(self.over()),
            () = sleep_until(until) => Err(Failure::TimedOut),
        }
    }

    /// An operation may hear of the session's end before the manager does; until that one runs, nobody may
    /// try again in vain.
    fn refused(&self, lease: Lease, error: Error) -> Failure {
        let failure = Failure::Zk(error);
        if failure.verdict().kind == ErrorKind::SessionLost {
            self.publisher.lose(lease.epoch);
        }
        failure
    }

    fn over(&self) -> Failure {
        self.closed().unwrap_or(Failure::Over)
    }
}

/// How far a read must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// What this client was told before. A server may be behind that only after the connection was interrupted.
    Told,
    /// All that any server was told before.
    Latest,
}

/// Brings the server that we are connected to up to date, if need be. The request goes out at once: call it
/// right before a read and await both together, which costs one message more and no round trip.
pub(crate) fn catch_up(
    live: &Live,
    freshness: Freshness,
) -> impl Future<Output = Result<(), Error>> + Send + '_ {
    let interruptions = live.interruptions.load(Ordering::Relaxed);
    let behind = live.synced.load(Ordering::Relaxed) < interruptions;
    let sync = (behind || freshness == Freshness::Latest).then(|| live.client.sync("/"));
    async move {
        if let Some(sync) = sync {
            sync.await?;
            live.synced.fetch_max(interruptions, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("options", &self.options)
            .field("session", &self.publisher.current())
            .field("own", &self.own.len())
            .finish_non_exhaustive()
    }
}
