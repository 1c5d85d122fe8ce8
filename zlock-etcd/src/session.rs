//! The session as the operations see it: who owns the nodes, and the way to send a request.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use etcd_client::Client;
use tokio::runtime::Handle;
use tokio::time::Instant;
use zlock_core::kit::{Failure as _, OwnContents, SessionKey, Sessions};
use zlock_core::{CloseReason, ErrorKind, NodeId};

use crate::config::EtcdOptions;
use crate::connect::Endpoints;
use crate::contents::Contents;
use crate::error::Failure;
use crate::listings::Listings;
use crate::pace::Pace;
use crate::stream::Watches;

/// The ID of a session as the client library takes it: that of its lease.
pub(crate) fn lease_id(lease: SessionKey) -> i64 {
    lease.id.get().cast_signed()
}

/// What is known of the current session's fence.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    /// The revision at which it was last raised, as far as we know; 0 if never.
    raised: AtomicI64,
}

/// What the backend and its manager share.
pub(crate) struct Shared {
    pub(crate) options: EtcdOptions,
    pub(crate) sessions: Sessions<Fence>,
    /// Of nodes whose label may be changed.
    pub(crate) contents: OwnContents<Contents>,
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) watches: Watches,
    pub(crate) listings: Listings,
    pub(crate) pace: Pace,
}

/// What operations say when the manager has given up.
const REFUSED: &str = "the server refused the credentials, or a permission that the session needs";

/// What an own node is known by in `Sessions::own`: the whole key, since that is what a lease lists.
pub(crate) fn own_id(key: &str) -> NodeId {
    NodeId::new(key)
}

impl Shared {
    pub(crate) fn new(options: EtcdOptions, runtime: Handle) -> Self {
        let endpoints = Arc::new(Endpoints::new(options.clone(), runtime.clone()));
        Shared {
            sessions: Sessions::new(REFUSED),
            contents: OwnContents::default(),
            watches: Watches::new(endpoints.clone(), options.answer_time(), runtime),
            listings: Listings::default(),
            pace: Pace::default(),
            endpoints,
            options,
        }
    }

    /// Ends a session for the operations.
    pub(crate) fn end(&self, lease: SessionKey) {
        self.sessions.end(lease);
    }

    /// The whole of the end of the backend, as far as it is local.
    pub(crate) fn close(&self, reason: CloseReason) {
        self.sessions.close(reason);
    }

    /// The fence as it was last seen in this session.
    pub(crate) fn fence(&self, lease: SessionKey) -> i64 {
        self.sessions.get(lease).map_or(0, |fence| fence.raised.load(Ordering::Relaxed))
    }

    /// The fence was seen to have been raised at this revision.
    pub(crate) fn saw_fence(&self, lease: SessionKey, revision: i64) {
        if let Some(fence) = self.sessions.get(lease) {
            fence.raised.fetch_max(revision, Ordering::Relaxed);
        }
    }

    /// Sends what `call` asks for in this session, to one server, and waits for its answer.
    ///
    /// # Cancel safety
    /// The request may still take effect, at any later time.
    pub(crate) async fn request<T, F>(
        &self,
        lease: SessionKey,
        until: Instant,
        call: impl FnOnce(Arc<Client>) -> F + Send + 'static,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        self.within(lease, until, self.endpoints.ask(self.options.answer_time(), call)).await
    }

    /// Asks as soon as the session is connected, and waits for the answer as long as the session and the time last.
    pub(crate) async fn within<T>(
        &self,
        lease: SessionKey,
        until: Instant,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        self.sessions.connected(lease, until).await?;
        let answer = self.sessions.run_until_ended(lease, until, answer).await?;
        // An operation may hear of the session's end before the manager does; until that one runs, nobody may
        // try again in vain.
        match &answer {
            // Nor need the next keep-alive be waited for to know that there is a connection again.
            Ok(_) => {
                self.sessions.publisher().resume(lease.epoch);
            }
            Err(failure) if failure.classify().kind == ErrorKind::SessionLost => {
                self.sessions.publisher().lose(lease.epoch);
            }
            Err(_) => {}
        }
        answer
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("options", &self.options)
            .field("session", &self.sessions.publisher().current())
            .field("own", &self.sessions.own().len())
            .finish_non_exhaustive()
    }
}
