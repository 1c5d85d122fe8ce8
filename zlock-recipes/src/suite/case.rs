//! Runs one case, and checks what it leaves behind.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use zlock_core::conformance::{Connection, Links, Store};
use zlock_core::{LockPath, Result, Session, SessionState};

use super::fault::Faulty;
use super::{Call, Faults, GuardOf, Mutual, Side};
use crate::{Client, ClientBuilder, Lock};

/// Longer than any case takes, for calls that must not hang.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Runs a case on a store, under a timeout, and checks that it left nothing behind. `None` is an unavailable store: the case
/// is skipped, and the caller must have reported that to the user.
pub async fn run<S: Store>(store: Option<S>, paused: bool, name: &str, case: impl AsyncFnOnce(&Case<'_>)) {
    let Some(store) = store else { return };
    let limit = Duration::from_secs(300) + 10 * store.session_timeout();
    let _watchdog = Watchdog::start(name, if paused { Duration::from_secs(120) } else { limit + LONG });
    let ended = timeout(limit, async {
        let run = Case::new(&store, paused);
        case(&run).await;
        run.look_behind().await;
    });
    assert!(ended.await.is_ok(), "{name} hangs: not done after {limit:?}");
}

/// Ends the whole process when a case keeps its thread busy forever: its timeout never fires then, especially on a paused
/// clock, which does not advance meanwhile.
struct Watchdog {
    /// Dropped when the case has ended.
    _alive: Sender<()>,
}

impl Watchdog {
    fn start(name: &str, limit: Duration) -> Self {
        let (_alive, ended) = channel();
        let name = name.to_owned();
        std::thread::spawn(move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                // Bypasses the test harness, which keeps the output of a test until the test ends.
                let _ = writeln!(
                    std::io::stderr().lock(),
                    "\n{name} blocks its runtime: aborting after {limit:?}"
                );
                std::process::abort();
            }
        });
        Watchdog { _alive }
    }
}

/// The environment of a case: a store, its own root, and the clients that it opened.
pub struct Case<'a> {
    /// The store under test.
    pub store: &'a dyn Store,
    /// `true` if the clock is paused, so that times are exact.
    pub paused: bool,
    root: LockPath,
    opened: Mutex<Vec<Client>>,
    paths: Mutex<Vec<LockPath>>,
}

/// A client with its own session, like another process.
#[derive(Debug)]
pub struct Process {
    /// The client.
    pub client: Client,
    /// Its backend, as the store knows it.
    pub connection: Connection,
    /// The faults of its calls.
    pub faults: Arc<Faults>,
}

impl Process {
    /// Returns a snapshot of the session.
    #[must_use]
    pub fn session(&self) -> Session {
        self.client.session_events().current()
    }
}

impl<'a> Case<'a> {
    fn new(store: &'a dyn Store, paused: bool) -> Self {
        Case { store, paused, root: store.root(), opened: Mutex::default(), paths: Mutex::default() }
    }

    /// Creates a client.
    pub async fn process(&self) -> Process {
        self.process_with(|builder| builder).await
    }

    /// Creates a client with its own settings.
    pub async fn process_with(&self, settings: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Process {
        let connection = self.store.connect().await;
        let faults = Arc::<Faults>::default();
        let faulty = Faulty { inner: connection.backend.clone(), faults: faults.clone() };
        let client = settings(Client::builder(faulty)).build();
        lock(&self.opened).push(client.clone());
        Process { client, connection, faults }
    }

    /// Creates clients.
    pub async fn processes<const N: usize>(&self) -> [Process; N] {
        let mut processes = Vec::with_capacity(N);
        for _ in 0..N {
            processes.push(self.process().await);
        }
        processes.try_into().expect("N of them")
    }

    /// Returns the path of a lock under this case's root. It is checked when the case is over.
    pub fn path(&self, name: &str) -> LockPath {
        let path = self.root.join(name).expect("a case's path");
        lock(&self.paths).push(path.clone());
        path
    }

    /// Returns a lock under this case's root.
    pub fn lock<M: Mutual>(&self, process: &Process, name: &str) -> M::Lock {
        let path = self.path(name);
        lock(&self.paths).extend(M::paths(&path));
        M::at(&process.client, path.as_str()).expect("a lock")
    }

    /// Returns the case's root.
    pub fn root(&self) -> &LockPath {
        &self.root
    }

    /// Returns the store's links.
    pub fn links(&self) -> &'a dyn Links {
        self.store.links().expect("the groups of links need Store::links")
    }

    /// Returns a number of repetitions: `paused` in paused time, and the smaller `real` in real time, where each takes its
    /// time.
    pub fn many(&self, paused: usize, real: usize) -> usize {
        if self.paused { paused } else { real }
    }

    /// Checks that this much time has passed: exactly in paused time; in real time not less, and not much more.
    pub fn took(&self, began: Instant, expected: Duration) {
        let (took, slack) = (began.elapsed(), Duration::from_millis(if self.paused { 2 } else { 2000 }));
        assert!(took >= expected && took <= expected + slack, "took {took:?}, expected {expected:?}");
    }

    /// Returns how many places are in a queue at the server.
    pub async fn queued(&self, path: &LockPath) -> usize {
        self.store.names(path).await.len()
    }

    /// Waits until this many places are in the queue.
    pub async fn until_queued(&self, path: &LockPath, places: usize) {
        let what = format!("{places} places taken at {path}");
        self.until(&what, async || self.queued(path).await == places).await;
    }

    /// Waits until this many waits of a process have begun: their creates are answered, and they wait for the places ahead of
    /// them. A node at the server does not show that.
    pub async fn until_waiting(&self, process: &Process, waits: usize) {
        let begun = || process.faults.count(Call::Exists) + process.faults.count(Call::ChildrenWithWatch);
        self.until(&format!("{waits} waits have begun"), async || begun() >= waits).await;
    }

    /// Waits for a lock in a task. Returns when the wait's watch is armed. For the head of the queue.
    pub async fn waiting<M: Mutual>(
        &self,
        process: &Process,
        lock: M::Lock,
    ) -> JoinHandle<Result<GuardOf<M>>> {
        let armed = process.faults.hold(M::WAIT, Side::After);
        let waiter = tokio::spawn(async move { lock.acquire().await });
        armed.reached().await;
        waiter
    }

    /// Waits until there is no holder and no waiter, while the clients live.
    pub async fn until_free(&self, path: &LockPath) {
        self.until_queued(path, 0).await;
    }

    /// Waits for a condition that must become true within a session timeout and some time for slow machines.
    pub async fn until(&self, what: &str, mut is: impl AsyncFnMut() -> bool) {
        let limit = 2 * self.store.session_timeout() + Duration::from_secs(10);
        let found = timeout(limit, async {
            while !is().await {
                sleep(Duration::from_millis(5)).await;
            }
        });
        assert!(found.await.is_ok(), "not after {limit:?}: {what}");
    }

    /// Waits until the session is in this state, in an epoch not below this one.
    pub async fn until_session(&self, process: &Process, epoch: u64, state: SessionState) {
        let mut events = process.client.session_events();
        let reached = timeout(3 * self.store.session_timeout() + LONG, async {
            let mut session = events.current();
            while session.epoch < epoch || session.state != state {
                session = events.changed().await;
            }
        });
        assert!(reached.await.is_ok(), "never {state:?} in epoch {epoch}: {:?}", process.session());
    }

    async fn look_behind(&self) {
        let opened = std::mem::take(&mut *lock(&self.opened));
        for client in &opened {
            let what = format!("nothing to remove: {client:?}");
            self.until(&what, async || client.pending_cleanups() == 0).await;
        }
        let paths = std::mem::take(&mut *lock(&self.paths));
        let paths: BTreeSet<_> = paths.into_iter().collect();
        for path in &paths {
            let what = format!("no node left under {path}, before any client is closed");
            self.until(&what, async || self.store.names(path).await.is_empty()).await;
        }
        // A backend may keep a watch on a path that no other client has used.
        let few = async || self.store.watches(&self.root).await.is_none_or(|left| left <= paths.len());
        self.until("no watch left but one for each path", few).await;
        for client in opened {
            client.close().await.expect("close");
        }
    }
}

impl std::fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("root", &self.root).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
