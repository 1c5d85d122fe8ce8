//! A real MariaDB as a store under test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use zlock_core::{CoordinationBackend, Groups as _, LockPath, Values as _, Watch};
use zlock_mysql::{MysqlBackend, MysqlOptions};
use zlock_suite::{Connection, Links, Store};

use crate::proxied::ProxiedLinks;
use crate::{Cut, FaultProxy, MariaDb, mariadb_or_skip};

/// Long enough for a busy machine.
const TTL: Duration = Duration::from_secs(3);

/// The timeout of sessions beside operations of at most a second.
const LONG_TTL: Duration = Duration::from_secs(12);

/// A real server, and a proxy in front of it for each connection.
pub struct MysqlStore {
    server: MariaDb,
    ttl: Duration,
    /// The timeout of operations, if it is not the default.
    operation: Option<Duration>,
    links: ProxiedLinks,
    backends: Backends,
    /// Looks at the sessions of dead clients, as any client that waits does.
    watcher: tokio::sync::Mutex<Option<(MysqlBackend, Watch)>>,
}

/// The backends of a store, of which some may be dropped.
#[derive(Clone, Default)]
struct Backends(Arc<Mutex<Vec<Weak<MysqlBackend>>>>);

impl Backends {
    fn add(&self, backend: MysqlBackend) -> Arc<MysqlBackend> {
        let backend = Arc::new(backend);
        self.0.lock().unwrap().push(Arc::downgrade(&backend));
        backend
    }
}

impl std::fmt::Debug for MysqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MysqlStore").field("server", &self.server).finish_non_exhaustive()
    }
}

impl MysqlStore {
    /// Uses the server that all tests of this process share. Returns `None` to skip the test.
    ///
    /// # Panics
    /// Panics where [`mariadb_or_skip`] does.
    pub async fn shared() -> Option<Self> {
        Self::new(TTL, None).await
    }

    /// Like [`shared`](Self::shared), with operations that take at most a second, and longer sessions.
    ///
    /// # Panics
    /// Panics where [`shared`](Self::shared) does.
    pub async fn impatient() -> Option<Self> {
        Self::new(LONG_TTL, Some(Duration::from_secs(1))).await
    }

    async fn new(ttl: Duration, operation: Option<Duration>) -> Option<Self> {
        let server = mariadb_or_skip().await?.clone();
        // Whoever looks at the tables needs them, and a backend creates them.
        drop(super::backend(&server).await);
        let (address, backends) = (server.addr(), Backends::default());
        let lazy = backends.clone();
        let links = ProxiedLinks::new(
            move || FaultProxy::start(address),
            move |proxy| lazy.add(MysqlBackend::connect_lazy(options(proxy, ttl, operation)).unwrap()),
        );
        let watcher = tokio::sync::Mutex::default();
        Some(MysqlStore { server, ttl, operation, links, backends, watcher })
    }
}

/// The timeout of operations is the default if `operation` is `None`.
fn options(proxy: &FaultProxy, ttl: Duration, operation: Option<Duration>) -> MysqlOptions {
    let options = super::options(&proxy.connect_string()).with_ttl(ttl);
    match operation {
        Some(time) => options.with_operation_timeout(time),
        None => options,
    }
}

#[async_trait]
impl Store for MysqlStore {
    async fn connect(&self) -> Connection {
        let proxy = self.links.proxy().await;
        let options = options(&proxy, self.ttl, self.operation);
        let backend = MysqlBackend::connect(options).await.unwrap();
        // The first write and the first read make what they need. Faults then happen to requests and answers.
        backend.leave(&self.root()).await.unwrap();
        backend.children(&self.root(), None).await.unwrap();
        self.links.add(self.backends.add(backend), proxy)
    }

    fn root(&self) -> LockPath {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        LockPath::new(format!("/conformance/{}", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap()
    }

    fn session_timeout(&self) -> Duration {
        self.ttl
    }

    /// Looks as a client does, which ends the sessions of dead ones.
    async fn names(&self, parent: &LockPath) -> Vec<String> {
        let mut watcher = self.watcher.lock().await;
        let backend = match watcher.take() {
            Some((backend, _)) => backend,
            None => super::backend(&self.server).await,
        };
        let (_, watch) = backend.children_with_watch(parent).await.unwrap();
        *watcher = Some((backend, watch));
        super::names(&self.server, parent).await
    }

    /// A value, since no other program writes nodes.
    async fn put(&self, parent: &LockPath, name: &str) {
        let path = LockPath::new(format!("{parent}/{name}")).unwrap();
        super::backend(&self.server).await.write_value(&path, None, b"", None).await.unwrap();
    }

    async fn remove(&self, parent: &LockPath, name: &str) {
        super::remove(&self.server, parent, name).await;
    }

    async fn remove_parent(&self, _: &LockPath) {}

    /// Also breaks the connection, since an idle client asks for nothing.
    async fn expire(&self, connection: &Connection) {
        super::end_session(&self.server, connection.session_events().current().id).await;
        self.links.of(connection).cut(Cut::Fin);
    }

    /// The watches are those of the clients, which poll the server.
    async fn watches(&self, _: &LockPath) -> Option<usize> {
        let backends = self.backends.0.lock().unwrap();
        Some(backends.iter().filter_map(Weak::upgrade).map(|backend| backend.watches()).sum())
    }

    /// A client that deletes a node sees those behind it, and notifies their clients.
    fn watches_by_request(&self) -> bool {
        false
    }

    fn links(&self) -> Option<&dyn Links> {
        Some(&self.links)
    }
}
