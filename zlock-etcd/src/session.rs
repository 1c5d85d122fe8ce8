//! The session as the operations see it: who owns the nodes, and the way to send a request.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use etcd_client::Client;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use zlock_core::{
    Background, CloseReason, Error, ErrorKind, NodeId, OwnNodes, SessionId, SessionPublisher, SessionState,
};

use crate::config::EtcdOptions;
use crate::connect::Endpoints;
use crate::contents::OwnContents;
use crate::error::Failure;
use crate::listings::Listings;
use crate::stream::Watches;
use crate::watch::Pace;

/// One session with the cluster: an etcd lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) epoch: u64,
    pub(crate) id: SessionId,
}

impl Lease {
    /// The id as the client library takes it.
    pub(crate) fn raw(self) -> i64 {
        self.id.get().cast_signed()
    }
}

/// A live session.
#[derive(Debug)]
struct Live {
    lease: Lease,
    /// The revision at which the fence was last raised, as far as we know; 0 if never.
    fence: AtomicI64,
}

/// What the backend and its manager share.
pub(crate) struct Shared {
    pub(crate) options: EtcdOptions,
    pub(crate) publisher: SessionPublisher,
    pub(crate) background: Background,
    /// By whole key, since that is what a lease lists.
    pub(crate) own: OwnNodes,
    pub(crate) contents: OwnContents,
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) watches: Watches,
    pub(crate) listings: Listings,
    pub(crate) pace: Pace,
    current: watch::Sender<Option<Arc<Live>>>,
    /// What the last attempt at a new session has come to, while there is none.
    pub(crate) no_session: watch::Sender<Option<Arc<Error>>>,
    /// The backend's sessions that are over, the last ones.
    past: Mutex<VecDeque<SessionId>>,
}

/// How many past sessions are remembered: nobody deletes a node that was made so many sessions ago.
const PAST: usize = 1000;

/// What an own node is known by in [`Shared::own`].
pub(crate) fn own_id(key: &str) -> NodeId {
    NodeId::new(key)
}

impl Shared {
    pub(crate) fn new(options: EtcdOptions, runtime: Handle) -> Self {
        let endpoints = Arc::new(Endpoints::new(options.clone(), runtime.clone()));
        Shared {
            publisher: SessionPublisher::new(),
            background: Background::new(),
            own: OwnNodes::default(),
            contents: OwnContents::default(),
            watches: Watches::new(endpoints.clone(), options.answer_time(), runtime),
            listings: Listings::default(),
            pace: Pace::default(),
            endpoints,
            options,
            current: watch::Sender::new(None),
            no_session: watch::Sender::new(None),
            past: Mutex::default(),
        }
    }

    /// Begins a session for the operations.
    pub(crate) fn begin(&self, lease: Lease) {
        self.current.send_replace(Some(Arc::new(Live { lease, fence: AtomicI64::new(0) })));
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
        self.current.send_replace(None);
        self.own.clear();
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
        self.own.clear();
        self.current.send_replace(None);
    }

    /// Why there is no session and none will come; `None` while there may be one.
    pub(crate) fn closed(&self) -> Option<Failure> {
        match self.publisher.current().state {
            SessionState::Closed(CloseReason::AuthFailed) => Some(Failure::AuthFailed),
            SessionState::Closed(_) => Some(Failure::Closed),
            _ => None,
        }
    }

    /// Waits for a live session.
    pub(crate) async fn lease(&self, until: Instant) -> Result<Lease, Failure> {
        let mut current = self.current.subscribe();
        loop {
            if let Some(closed) = self.closed() {
                return Err(closed);
            }
            let lease = current.borrow_and_update().as_ref().map(|live| live.lease);
            let session = self.publisher.current();
            if let Some(lease) = lease
                && session.epoch == lease.epoch
                && session.is_live()
            {
                return Ok(lease);
            }
            match timeout_at(until, current.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Failure::Closed),
                Err(_) => return Err(Failure::TimedOut),
            }
        }
    }

    /// The fence as it was last seen in this session.
    pub(crate) fn fence(&self, lease: Lease) -> i64 {
        let current = self.current.borrow();
        let live = current.as_ref().filter(|live| live.lease == lease);
        live.map_or(0, |live| live.fence.load(Ordering::Relaxed))
    }

    /// The fence was seen to have been raised at this revision.
    pub(crate) fn saw_fence(&self, lease: Lease, revision: i64) {
        if let Some(live) = self.current.borrow().as_ref().filter(|live| live.lease == lease) {
            live.fence.fetch_max(revision, Ordering::Relaxed);
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

    /// Sends what `call` asks for in this session, to one server, and waits for its answer.
    ///
    /// # Cancel safety
    /// The request may still take effect, at any later time.
    pub(crate) async fn request<T, F>(
        &self,
        lease: Lease,
        until: Instant,
        call: impl FnOnce(Arc<Client>) -> F + Send + 'static,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        self.within(lease, until, self.endpoints.ask(self.options.answer_time(), call)).await
    }

    /// Waits for an answer as long as the session and the time last.
    pub(crate) async fn within<T>(
        &self,
        lease: Lease,
        until: Instant,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut current = self.current.subscribe();
        let over = |live: &Option<Arc<Live>>| live.as_ref().is_none_or(|live| live.lease != lease);
        if over(&current.borrow_and_update()) {
            return Err(self.over());
        }
        let answer = async {
            tokio::select! {
                biased;
                answer = answer => answer,
                _ = current.wait_for(over) => Err(self.over()),
            }
        };
        let answer = timeout_at(until, answer).await.unwrap_or(Err(Failure::TimedOut));
        // An operation may hear of the session's end before the manager does; until that one runs, nobody may
        // try again in vain.
        match &answer {
            // Nor need the next keep-alive be waited for to know that there is a connection again.
            Ok(_) => {
                self.publisher.resume(lease.epoch);
            }
            Err(failure) if failure.verdict().kind == ErrorKind::SessionLost => {
                self.publisher.lose(lease.epoch);
            }
            Err(_) => {}
        }
        answer
    }

    fn over(&self) -> Failure {
        self.closed().unwrap_or(Failure::Over)
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
