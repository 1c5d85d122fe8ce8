//! The session as the operations see it: who owns the nodes, and the way to send a request.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use zlock_core::{
    Background, CloseReason, Error, ErrorKind, NodeId, OwnNodes, SessionId, SessionPublisher, SessionState,
};
use zookeeper_client as zk;
use zookeeper_client::Client;

use crate::call::{Call, Calls};
use crate::config::ZkOptions;
use crate::contents::OwnContents;
use crate::error::Failure;
use crate::home::Gate;
use crate::watchers::Watchers;

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
    pub(crate) staleness: Arc<Staleness>,
    pub(crate) watchers: Arc<Watchers>,
    /// The [`own_id`] up to which the last heartbeat listed the own nodes.
    listed_up_to: Mutex<Option<NodeId>>,
}

/// Tracks whether the connected server may lag behind what this client has already seen.
#[derive(Debug)]
pub(crate) struct Staleness {
    /// The number of interruptions and of answers from other servers, plus one if the session is not the backend's
    /// first.
    suspicions: AtomicU64,
    /// The suspicions that a `sync` was answered after.
    synced: AtomicU64,
}

impl Staleness {
    /// From now on the server may be behind, until a `sync` that is sent later is answered.
    pub(crate) fn suspect(&self) {
        self.suspicions.fetch_add(1, Ordering::Relaxed);
    }
}

/// What own nodes are known by: the beginning of the node's path at the server, which no relabel changes. So their order
/// is that of the paths.
pub(crate) fn own_id(parent: &str, node_id: &NodeId) -> NodeId {
    NodeId::new(format!("{parent}/_c_{node_id}"))
}

impl Live {
    pub(crate) fn new(lease: Lease, client: Client, watchers: Arc<Watchers>) -> Self {
        let first = u64::from(lease.epoch > 1);
        let staleness = Staleness { suspicions: AtomicU64::new(first), synced: AtomicU64::new(0) };
        Live { lease, client, staleness: Arc::new(staleness), watchers, listed_up_to: Mutex::default() }
    }

    pub(crate) fn listed_up_to(&self) -> Option<NodeId> {
        self.listed_up_to.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_listed_up_to(&self, id: Option<NodeId>) {
        *self.listed_up_to.lock().unwrap_or_else(PoisonError::into_inner) = id;
    }
}

/// What the backend and its manager share.
pub(crate) struct Shared {
    pub(crate) options: ZkOptions,
    /// Where the client library's tasks run, and ours.
    pub(crate) runtime: Handle,
    pub(crate) gate: Arc<Gate>,
    pub(crate) publisher: SessionPublisher,
    pub(crate) background: Background,
    pub(crate) own: OwnNodes,
    pub(crate) contents: OwnContents,
    current: watch::Sender<Option<Arc<Live>>>,
    calls: Calls,
    /// What the last attempt at a new session has come to, while there is none.
    pub(crate) no_session: watch::Sender<Option<Arc<Error>>>,
    /// The backend's sessions that are over, the last ones.
    past: Mutex<VecDeque<SessionId>>,
}

/// How many past sessions are remembered: nobody deletes a node that was made so many sessions ago.
const PAST: usize = 1000;

impl Shared {
    pub(crate) fn new(options: ZkOptions, runtime: Handle) -> Self {
        Shared {
            options,
            runtime,
            gate: Arc::default(),
            publisher: SessionPublisher::new(),
            background: Background::new(),
            own: OwnNodes::default(),
            contents: OwnContents::default(),
            current: watch::Sender::new(None),
            no_session: watch::Sender::new(None),
            past: Mutex::default(),
            calls: Calls::default(),
        }
    }

    /// Begins or ends a session for the operations.
    pub(crate) fn set_current(&self, live: Option<Arc<Live>>) {
        let mut before = None;
        self.calls.cancel_all(|| before = self.current.send_replace(live));
        if let Some(before) = before {
            before.watchers.close();
        }
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
        F: Future<Output = Result<T, zk::Error>> + Send + 'static,
    {
        let answer = self.begin(lease, call)?.answer(until).await?;
        answer.map_err(|error| self.classify(lease, error))
    }

    /// The watches of this session.
    pub(crate) fn watchers(&self, lease: Lease) -> Result<Arc<Watchers>, Failure> {
        let current = self.current.borrow();
        let live = current.as_ref().filter(|live| live.lease == lease);
        live.map(|live| live.watchers.clone()).ok_or_else(|| self.over())
    }

    /// Waits for `what` in this session.
    pub(crate) async fn within<T>(
        &self,
        lease: Lease,
        until: Instant,
        what: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let mut current = self.current.subscribe();
        tokio::select! {
            biased;
            () = is_over(&mut current, lease) => Err(self.over()),
            output = what => Ok(output),
            () = sleep_until(until) => Err(Failure::TimedOut),
        }
    }

    /// Begins a call in this session.
    pub(crate) fn begin<T, F>(
        &self,
        lease: Lease,
        call: impl FnOnce(Arc<Live>) -> F,
    ) -> Result<UnderWay<'_, T>, Failure>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let mut current = self.current.subscribe();
        let begun = self.calls.begin(|| {
            let live = current.borrow_and_update().clone().filter(|live| live.lease == lease);
            // Past its deadline it is no longer ours to use, even if the manager has not come to end it yet.
            live.filter(|_| self.is_live(lease)).map(call)
        });
        match begun {
            Some(call) => Ok(UnderWay { shared: self, lease, current, call: Some(call), see_through: false }),
            None => Err(self.over()),
        }
    }

    /// Turns an error of the client library into a failure. If it says that the session is over, that is published at
    /// once: until the manager runs, nobody may try again in vain.
    pub(crate) fn classify(&self, lease: Lease, error: zk::Error) -> Failure {
        // What the library says when its runtime ends is no answer.
        if let Some(closed) = self.closed() {
            return closed;
        }
        let failure = Failure::Zk(error);
        if failure.verdict().kind == ErrorKind::SessionLost {
            self.publisher.lose(lease.epoch);
        }
        failure
    }

    pub(crate) fn over(&self) -> Failure {
        self.closed().unwrap_or(Failure::Over)
    }
}

type Current = watch::Receiver<Option<Arc<Live>>>;

/// Waits until this session is no longer the current one.
async fn is_over(current: &mut Current, lease: Lease) {
    let _ = current.wait_for(|live| live.as_ref().is_none_or(|live| live.lease != lease)).await;
}

/// A call that was begun in a session.
pub(crate) struct UnderWay<'a, T: Send + 'static> {
    shared: &'a Shared,
    lease: Lease,
    current: Current,
    call: Option<Call<T>>,
    see_through: bool,
}

impl<T: Send + 'static> UnderWay<'_, T> {
    /// Lets the call go on when this is dropped, until it is answered or the session is over.
    #[must_use]
    pub(crate) fn seen_through(mut self) -> Self {
        self.see_through = true;
        self
    }

    /// Waits for the answer.
    pub(crate) async fn answer(mut self, until: Instant) -> Result<T, Failure> {
        let Some(call) = &self.call else { return Err(self.shared.over()) };
        let answer = tokio::select! {
            biased;
            answer = poll_fn(|cx| call.poll(cx)) => answer,
            () = is_over(&mut self.current, self.lease) => return Err(self.shared.over()),
            () = sleep_until(until) => return Err(Failure::TimedOut),
        };
        self.call = None;
        Ok(answer)
    }
}

impl<T: Send + 'static> Drop for UnderWay<'_, T> {
    fn drop(&mut self) {
        if self.see_through
            && let Some(call) = self.call.take()
        {
            let (lease, mut current) = (self.lease, self.current.clone());
            self.shared.runtime.spawn(async move {
                tokio::select! {
                    biased;
                    () = is_over(&mut current, lease) => {}
                    answer = poll_fn(|cx| call.poll(cx)) => drop(answer),
                }
            });
        }
    }
}

/// How far a read must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// At least what this client has already seen. A server lags behind that only after the connection was interrupted,
    /// or after another server answered.
    Told,
    /// All that any server was told before.
    Latest,
}

/// Brings the server that we are connected to up to date, if need be. The request goes out at once: call it
/// right before a read and await both together, which costs one message more and no round trip.
pub(crate) fn catch_up(
    live: &Live,
    freshness: Freshness,
) -> impl Future<Output = Result<(), zk::Error>> + Send + '_ {
    let staleness = &live.staleness;
    let suspicions = staleness.suspicions.load(Ordering::Relaxed);
    let behind = staleness.synced.load(Ordering::Relaxed) < suspicions;
    let sync = (behind || freshness == Freshness::Latest).then(|| live.client.sync("/"));
    async move {
        if let Some(sync) = sync {
            sync.await?;
            staleness.synced.fetch_max(suspicions, Ordering::Relaxed);
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
