//! Runs one case, and checks what it leaves behind.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock_core::{CoordinationBackend, LockPath, NodeIds};
use zlock_recipes::Client;

use crate::{Links, Store};

/// Longer than any case takes, for calls that must not hang.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Long enough for a request to a server that answers, and short compared with a session timeout.
pub(crate) const MOMENT: Duration = Duration::from_millis(200);

/// One byte more than the data of a node or a value may have.
pub(crate) const TOO_MUCH: usize = 1_000_001;

/// Waits for what must not hang.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(LONG, future).await.unwrap_or_else(|_| panic!("not after {LONG:?}: {what}"))
}

/// Waits for something while no server answers, by a paused clock. Returns the time that it took by that clock, which does not
/// depend on how busy the machine is.
///
/// # Panics
/// Panics if the clock is paused already, or the runtime has several threads.
pub async fn timed<T>(wait: impl Future<Output = T>) -> (T, Duration) {
    tokio::time::pause();
    let began = Instant::now();
    let output = wait.await;
    let took = began.elapsed();
    tokio::time::resume();
    (output, took)
}

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

/// The environment of a case: a store, its own root, and the backends and clients that it opened.
pub struct Case<'a> {
    /// The store under test.
    pub store: &'a dyn Store,
    /// `true` if the clock is paused, so that times are exact.
    pub paused: bool,
    pub(crate) node_ids: NodeIds,
    root: LockPath,
    paths: Mutex<Vec<LockPath>>,
    /// Nodes that a case has created at the server.
    pub(crate) by_hand: Mutex<Vec<(LockPath, String)>>,
    /// Backends that a case uses directly. Their nodes may outlast the case.
    pub(crate) backends: Mutex<Vec<Weak<dyn CoordinationBackend>>>,
    pub(crate) clients: Mutex<Vec<Client>>,
}

impl<'a> Case<'a> {
    fn new(store: &'a dyn Store, paused: bool) -> Self {
        Case {
            store,
            paused,
            node_ids: NodeIds::random(),
            root: store.root(),
            paths: Mutex::default(),
            by_hand: Mutex::default(),
            backends: Mutex::default(),
            clients: Mutex::default(),
        }
    }

    /// Returns the path of a lock under this case's root. It is checked when the case is over.
    pub fn path(&self, name: &str) -> LockPath {
        let path = self.root.join(name).expect("a case's path");
        self.uses([path.clone()]);
        path
    }

    /// Returns the path of a value under this case's root. The value is removed after the case.
    pub fn value(&self, name: &str) -> LockPath {
        let (path, value) = (self.root.join(name).expect("a case's path"), (self.root.clone(), name.into()));
        let mut by_hand = lock(&self.by_hand);
        if !by_hand.contains(&value) {
            by_hand.push(value);
        }
        path
    }

    /// Adds paths that are checked when the case is over.
    pub(crate) fn uses(&self, paths: impl IntoIterator<Item = LockPath>) {
        lock(&self.paths).extend(paths);
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

    /// Clients leave no node and no watch while they are open, and backends none once they are closed.
    async fn look_behind(&self) {
        let clients = std::mem::take(&mut *lock(&self.clients));
        let backends = std::mem::take(&mut *lock(&self.backends));
        let paths = std::mem::take(&mut *lock(&self.paths));
        let paths: BTreeSet<_> = paths.into_iter().collect();
        for client in &clients {
            let what = format!("nothing to remove: {client:?}");
            self.until(&what, async || client.pending_cleanups() == 0).await;
        }
        if backends.is_empty() {
            self.no_node_left(&paths, "before any client is closed").await;
        }
        // A client's backend may keep a watch on a path that no other client has used.
        let may_stay = if clients.is_empty() { 0 } else { paths.len() };
        let few = async || self.store.watches(&self.root).await.is_none_or(|left| left <= may_stay);
        self.until(&format!("no watch left but {may_stay}"), few).await;
        for backend in backends.iter().filter_map(Weak::upgrade) {
            backend.close().await.expect("close");
        }
        for client in clients {
            client.close().await.expect("close");
        }
        let by_hand = std::mem::take(&mut *lock(&self.by_hand));
        for (parent, name) in by_hand {
            // A value may never have been written.
            if self.store.names(&parent).await.contains(&name) {
                self.store.remove(&parent, &name).await;
            }
        }
        self.no_node_left(&paths, "at the end").await;
    }

    async fn no_node_left(&self, paths: &BTreeSet<LockPath>, when: &str) {
        for path in paths {
            let what = format!("no node left under {path} {when}");
            self.until(&what, async || self.store.names(path).await.is_empty()).await;
        }
    }
}

impl std::fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("root", &self.root).finish_non_exhaustive()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
