//! The server: its state under one mutex, and the code that drives it.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, Weak};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use zlock_core::kit::sleep_until;
use zlock_core::{Mutex, SessionId};

use crate::fault::{Fate, Faults};
use crate::link::ClientId;
use crate::request::{Answer, Request, Sent};
use crate::state::{Refused, State, Work};

/// An embedded coordination server, whose store the backends of one process share.
///
/// Each [`connect`](Self::connect) creates another client with its own session, so one test can simulate many
/// processes. Cheap to clone. The store lives as long as a handle or a backend exists.
///
/// # Examples
/// ```
/// use zlock::Client;
/// use zlock::mem::MemServer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// let server = MemServer::new();
/// let (one, two) = (Client::new(server.connect()), Client::new(server.connect()));
/// let guard = one.mutex("/app/orders/42")?.acquire().await?;
/// assert!(two.mutex("/app/orders/42")?.try_acquire().await?.is_none());
/// # guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemServer(pub(crate) Arc<Server>);

impl MemServer {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        MemServer(Arc::new(Server::new()))
    }

    /// Returns the store with this name in this process, creating it if necessary. `mem://name` connects to it.
    #[must_use]
    pub fn named(name: &str) -> Self {
        static NAMED: Mutex<BTreeMap<String, Weak<Server>>> = Mutex::new(BTreeMap::new());
        let mut named = NAMED.lock();
        if let Some(server) = named.get(name).and_then(Weak::upgrade) {
            return MemServer(server);
        }
        let server = MemServer::new();
        named.retain(|_, server| server.strong_count() > 0);
        named.insert(name.into(), Arc::downgrade(&server.0));
        server
    }
}

impl Default for MemServer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sessions: Vec<_> = self.0.lock().sessions.keys().copied().collect();
        f.debug_struct("MemServer").field("sessions", &sessions).finish_non_exhaustive()
    }
}

pub(crate) struct Server {
    state: Mutex<State>,
    pub(crate) faults: Faults,
    next_watch: AtomicU64,
    /// Wakes the clock if an event is due earlier than expected.
    earlier: Arc<Notify>,
    clock: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    fn new() -> Self {
        Server {
            state: Mutex::new(State::new()),
            faults: Faults::default(),
            next_watch: AtomicU64::new(0),
            earlier: Arc::new(Notify::new()),
            clock: Mutex::new(None),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn next_watch(&self) -> u64 {
        self.next_watch.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request, in call order with the client's other requests. No answer arrives if the connection breaks.
    pub(crate) fn send(
        self: &Arc<Self>,
        client: ClientId,
        session: Option<SessionId>,
        request: Request,
    ) -> Result<oneshot::Receiver<Answer>, Refused> {
        let (to, answer) = oneshot::channel();
        let sent = {
            let mut state = self.lock();
            let now = state.now();
            state.send(client, Sent { session, request, to }, now)
        };
        self.pump();
        sent.map(|()| answer)
    }

    /// Changes the state directly, and handles the consequences.
    pub(crate) fn with<T>(self: &Arc<Self>, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let value = {
            let mut state = self.lock();
            let now = state.now();
            change(&mut state, now)
        };
        self.pump();
        value
    }

    /// Executes all requests that have arrived, and delivers all messages that are due by now.
    ///
    /// Only one caller at a time does this, on behalf of all, so that requests are served in order and a fault hook may call
    /// the server.
    fn pump(self: &Arc<Self>) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.pumping, true) {
            return;
        }
        loop {
            let now = state.now();
            match state.next(now) {
                Some(Work::Arrived(client, sent)) => {
                    drop(state);
                    let fate = catch_unwind(AssertUnwindSafe(|| self.faults.fate(client, &sent)));
                    state = self.lock();
                    let fate = fate.unwrap_or_else(|panic| {
                        state.pumping = false;
                        resume_unwind(panic)
                    });
                    if fate != Fate::LoseRequest {
                        *state.counts.entry(sent.request.operation()).or_default() += 1;
                        let now = state.now();
                        state.execute(client, sent, fate == Fate::LoseAnswer, now);
                    }
                }
                Some(Work::Deliver(deliveries)) => {
                    drop(state);
                    for delivery in deliveries {
                        delivery.deliver();
                    }
                    state = self.lock();
                }
                None => break,
            }
        }
        state.pumping = false;
        let wake = std::mem::take(&mut state.wake_clock);
        drop(state);
        if wake {
            self.earlier.notify_one();
        }
        self.keep_clock();
    }

    /// Starts the clock if there is none, or if the runtime on which it ran has ended.
    fn keep_clock(self: &Arc<Self>) {
        let mut clock = self.clock.lock();
        if clock.as_ref().is_some_and(|clock| !clock.is_finished()) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            *clock = Some(runtime.spawn(tick(Arc::downgrade(self), self.earlier.clone())));
        }
    }

    /// Executes everything that is due, and returns when the next event is.
    fn elapse(self: &Arc<Self>) -> Option<Instant> {
        {
            let mut state = self.lock();
            state.armed = None;
            state.mark_all();
        }
        self.pump();
        let mut state = self.lock();
        state.armed = state.next_due();
        state.armed
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.earlier.notify_one();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}

/// The server's clock, which lets sessions expire and delayed messages arrive without a request.
async fn tick(server: Weak<Server>, earlier: Arc<Notify>) {
    while let Some(next) = server.upgrade().map(|server| server.elapse()) {
        tokio::select! {
            biased;
            () = earlier.notified() => {}
            () = sleep_until(next) => {}
        }
    }
}
