//! A real PostgreSQL as a store under test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::Client;
use zlock_core::{CoordinationBackend, LockPath};
use zlock_postgres::{PostgresBackend, PostgresOptions};
use zlock_suite::{Connection, Links, Store};

use crate::{Cut, FaultProxy, Flow, PostgresServer, postgres_or_skip};

/// Long enough for a busy machine.
const TTL: Duration = Duration::from_secs(3);

/// The timeout of sessions beside operations of at most a second.
const LONG_TTL: Duration = Duration::from_secs(12);

/// A real server, and a proxy in front of it for each connection.
pub struct PostgresStore {
    server: PostgresServer,
    ttl: Duration,
    /// The timeout of operations, if it is not the default.
    operation: Option<Duration>,
    observer: Client,
    /// One proxy for each connection; their order gives the keys.
    links: Mutex<Vec<Arc<FaultProxy>>>,
    /// The backends that are not dropped.
    backends: Mutex<Vec<Weak<PostgresBackend>>>,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("server", &self.server).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Uses the server that all tests of this process share. Returns `None` to skip the test.
    ///
    /// # Panics
    /// Panics where [`postgres_or_skip`] does.
    pub async fn shared() -> Option<Self> {
        let server = postgres_or_skip().await?.clone();
        // The observer needs the schema, and a backend creates it.
        drop(super::backend(&server).await);
        let observer = super::observer(&server).await;
        let (links, backends) = Default::default();
        Some(PostgresStore { server, ttl: TTL, operation: None, observer, links, backends })
    }

    /// Like [`shared`](Self::shared), with operations that take at most a second, and longer sessions.
    ///
    /// # Panics
    /// Panics where [`shared`](Self::shared) does.
    pub async fn impatient() -> Option<Self> {
        let store = PostgresStore::shared().await?;
        Some(PostgresStore { ttl: LONG_TTL, operation: Some(Duration::from_secs(1)), ..store })
    }

    fn options(&self, proxy: &FaultProxy) -> PostgresOptions {
        let options = super::options(&proxy.connect_string()).with_ttl(self.ttl);
        match self.operation {
            Some(time) => options.with_operation_timeout(time),
            None => options,
        }
    }

    fn connection(&self, backend: PostgresBackend, proxy: FaultProxy) -> Connection {
        let mut links = self.links.lock().unwrap();
        links.push(Arc::new(proxy));
        let backend = Arc::new(backend);
        self.backends.lock().unwrap().push(Arc::downgrade(&backend));
        Connection { backend, key: links.len() - 1 }
    }

    fn link(&self, connection: &Connection) -> Arc<FaultProxy> {
        self.links.lock().unwrap()[connection.key].clone()
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn connect(&self) -> Connection {
        let proxy = FaultProxy::start(self.server.addr()).await;
        let backend = PostgresBackend::connect(self.options(&proxy)).await.unwrap();
        // The first operation makes a connection for operations. Faults then happen to requests and answers.
        backend.children(&self.root(), None).await.unwrap();
        self.connection(backend, proxy)
    }

    fn root(&self) -> LockPath {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        LockPath::new(format!("/conformance/{}", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap()
    }

    fn session_timeout(&self) -> Duration {
        self.ttl
    }

    /// Looks as a client does, which marks sessions that are overdue, and removes the nodes of dead ones.
    async fn names(&self, parent: &LockPath) -> Vec<String> {
        super::sweep(&self.observer, parent).await;
        super::names(&self.observer, parent).await
    }

    /// A value, since no other program writes nodes.
    async fn put(&self, parent: &LockPath, name: &str) {
        let sql = "INSERT INTO zlock.value SELECT n, hashtextextended($1, 0), $1, '', n FROM nextval('zlock.number') n";
        self.observer.execute(sql, &[&format!("{parent}/{name}")]).await.unwrap();
    }

    async fn remove(&self, parent: &LockPath, name: &str) {
        let sql = "DELETE FROM zlock.node WHERE path = $1 AND id::text = $2";
        self.observer.execute(sql, &[&parent.as_str(), &name]).await.unwrap();
        let sql = "DELETE FROM zlock.member WHERE path = $1 AND name = $2";
        self.observer.execute(sql, &[&parent.as_str(), &name]).await.unwrap();
        let sql = "DELETE FROM zlock.value WHERE path = $1 OR starts_with(path, $1 || '/')";
        self.observer.execute(sql, &[&format!("{parent}/{name}")]).await.unwrap();
    }

    async fn remove_parent(&self, _: &LockPath) {}

    /// Also breaks the connection, since an idle client asks for nothing.
    async fn expire(&self, connection: &Connection) {
        super::end_session(&self.observer, connection.session_events().current().id).await;
        self.link(connection).cut(Cut::Fin);
    }

    /// The watches are those of the clients, which poll the server.
    async fn watches(&self, _: &LockPath) -> Option<usize> {
        let backends = self.backends.lock().unwrap();
        Some(backends.iter().filter_map(Weak::upgrade).map(|backend| backend.watches()).sum())
    }

    /// A client that deletes a node sees those behind it, and notifies their clients.
    fn watches_by_request(&self) -> bool {
        false
    }

    fn links(&self) -> Option<&dyn Links> {
        Some(self)
    }
}

#[async_trait]
impl Links for PostgresStore {
    async fn connect_cut(&self) -> Connection {
        let proxy = FaultProxy::start(self.server.addr()).await;
        proxy.refuse().await;
        self.connection(PostgresBackend::connect_lazy(self.options(&proxy)).unwrap(), proxy)
    }

    async fn cut(&self, connection: &Connection) {
        let link = self.link(connection);
        link.refuse().await;
        link.cut(Cut::Fin);
    }

    async fn freeze(&self, connection: &Connection) {
        self.link(connection).freeze().await;
    }

    async fn mute(&self, connection: &Connection) {
        self.link(connection).to_client(Flow::Swallow);
    }

    async fn heal(&self, connection: &Connection) {
        self.link(connection).heal().await;
    }
}
