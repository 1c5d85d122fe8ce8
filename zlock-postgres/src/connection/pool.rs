//! The connections that operations share.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use zlock_core::Mutex;

use crate::config::PostgresOptions;
use crate::connection::dial::dial;
use crate::connection::link::Link;
use crate::error::Failure;

/// The most connections that operations use. The flushes of one connection follow one another.
const MAX: usize = 4;

/// The time after a failure in which no further connection is tried: the server may allow no more.
const PAUSE: Duration = Duration::from_secs(1);

/// A few connections, made on demand.
pub(crate) struct Pool {
    options: PostgresOptions,
    runtime: Handle,
    /// The time for one connection to be made.
    limit: Duration,
    state: Mutex<State>,
    /// Notified when an attempt at a connection has ended.
    dialled: Notify,
}

#[derive(Default)]
struct State {
    links: Vec<Arc<Link>>,
    is_dialling: bool,
    /// The number of attempts that have failed, and the failure of the last one until somebody takes it.
    failed: u64,
    failure: Option<Failure>,
    is_closed: bool,
    /// The time from which a further connection may be tried.
    not_before: Option<Instant>,
}

impl Pool {
    pub(crate) fn new(options: PostgresOptions, limit: Duration, runtime: Handle) -> Arc<Self> {
        Arc::new(Pool { options, runtime, limit, state: Mutex::default(), dialled: Notify::new() })
    }

    /// Returns a connection without a request in flight, or that with the fewest.
    ///
    /// # Cancel safety
    /// Safe: a connection under way is made for the next caller.
    pub(crate) async fn get(self: &Arc<Self>) -> Result<Arc<Link>, Failure> {
        let failed = self.state.lock().failed;
        loop {
            let dialled = self.dialled.notified();
            let mut dialled = pin!(dialled);
            dialled.as_mut().enable();
            if let Some(link) = self.open() {
                return Ok(link);
            }
            {
                let mut state = self.state.lock();
                if state.failed != failed || state.is_closed {
                    return Err(state.failure.take().unwrap_or(Failure::NoLink));
                }
                self.dial(&mut state);
            }
            dialled.await;
        }
    }

    /// Makes a connection in the background, one at a time.
    fn dial(self: &Arc<Self>, state: &mut State) {
        let waits = !state.links.is_empty() && state.not_before.is_some_and(|time| Instant::now() < time);
        if state.is_dialling || state.is_closed || waits {
            return;
        }
        state.is_dialling = true;
        let pool = self.clone();
        self.runtime.spawn(async move {
            let dialled = dial(&pool.options, &pool.runtime, pool.limit, None).await;
            let mut state = pool.state.lock();
            state.is_dialling = false;
            match dialled {
                Ok(link) if !state.is_closed => state.links.push(Arc::new(link)),
                Ok(_) => {}
                Err(failure) => {
                    tracing::debug!(?failure, "no further connection");
                    state.failed += 1;
                    state.failure = Some(failure);
                    state.not_before = Some(Instant::now() + PAUSE);
                }
            }
            drop(state);
            pool.dialled.notify_waiters();
        });
    }

    /// Returns this connection if it is still open.
    pub(crate) fn find(&self, number: usize) -> Option<Arc<Link>> {
        self.state.lock().links.iter().find(|link| link.number == number && link.is_open()).cloned()
    }

    fn open(self: &Arc<Self>) -> Option<Arc<Link>> {
        let mut state = self.state.lock();
        state.links.retain(|link| link.is_open());
        let link = state.links.iter().min_by_key(|link| link.in_flight())?.clone();
        if link.in_flight() > 0 && state.links.len() < MAX {
            self.dial(&mut state);
        }
        Some(link)
    }

    /// Drops the connections. Each is closed when its requests in flight are answered.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.links.clear();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("links", &self.state.lock().links).finish_non_exhaustive()
    }
}
