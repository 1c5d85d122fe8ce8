//! A real etcd as a store under test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Client, DeleteOptions};
use zlock_core::LockPath;
use zlock_etcd::{EtcdBackend, EtcdOptions};
use zlock_suite::{Connection, Links, Store};

use crate::{Cut, Etcd, FaultProxy, Flow, etcd_or_skip, have_etcd};

/// Long enough for a busy machine.
const TTL: Duration = Duration::from_secs(3);

/// The TTL beside operations of at most a second.
const LONG_TTL: Duration = Duration::from_secs(12);

/// A real server, and a proxy in front of it for each connection.
pub struct EtcdStore {
    server: Etcd,
    /// Whether no other test uses the server.
    alone: bool,
    ttl: Duration,
    /// The timeout of operations, if it is not the default.
    operation: Option<Duration>,
    observer: Client,
    /// One proxy for each connection; their order gives the keys.
    links: Mutex<Vec<Arc<FaultProxy>>>,
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStore").field("server", &self.server).finish_non_exhaustive()
    }
}

impl EtcdStore {
    /// Uses the server that all tests of this process share. Returns `None` to skip the test.
    ///
    /// # Panics
    /// Panics where [`etcd_or_skip`] does.
    pub async fn shared() -> Option<Self> {
        let server = etcd_or_skip().await?;
        Some(EtcdStore::new(server.clone(), false).await)
    }

    /// Starts a separate server, whose watches can be counted. Returns `None` to skip the test.
    ///
    /// # Panics
    /// Panics where [`have_etcd`] does.
    pub async fn alone() -> Option<Self> {
        if !have_etcd() {
            return None;
        }
        Some(EtcdStore::new(Etcd::start().await, true).await)
    }

    /// Like [`shared`](Self::shared), with operations that take at most a second, and longer sessions.
    ///
    /// # Panics
    /// Panics where [`shared`](Self::shared) does.
    pub async fn impatient() -> Option<Self> {
        let store = EtcdStore::shared().await?;
        Some(EtcdStore { ttl: LONG_TTL, operation: Some(Duration::from_secs(1)), ..store })
    }

    async fn new(server: Etcd, alone: bool) -> Self {
        let observer = super::observer(&server.connect_string()).await;
        EtcdStore { server, alone, ttl: TTL, operation: None, observer, links: Mutex::default() }
    }

    fn options(&self, proxy: &FaultProxy) -> EtcdOptions {
        let options = EtcdOptions::new([proxy.connect_string()]).with_ttl(self.ttl);
        match self.operation {
            Some(time) => options.with_operation_timeout(time),
            None => options,
        }
    }

    fn connection(&self, backend: EtcdBackend, proxy: FaultProxy) -> Connection {
        let mut links = self.links.lock().unwrap();
        links.push(Arc::new(proxy));
        Connection { backend: Arc::new(backend), key: links.len() - 1 }
    }

    fn link(&self, connection: &Connection) -> Arc<FaultProxy> {
        self.links.lock().unwrap()[connection.key].clone()
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn connect(&self) -> Connection {
        let proxy = FaultProxy::start(self.server.addr()).await;
        self.connection(EtcdBackend::connect(self.options(&proxy)).await.unwrap(), proxy)
    }

    fn root(&self) -> LockPath {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        LockPath::new(format!("/conformance/{}", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap()
    }

    fn session_timeout(&self) -> Duration {
        self.ttl
    }

    async fn names(&self, parent: &LockPath) -> Vec<String> {
        super::names(&self.observer, parent).await
    }

    async fn put(&self, parent: &LockPath, name: &str) {
        let mut kv = self.observer.kv_client();
        kv.put(format!("{parent}/{name}"), "", None).await.unwrap();
    }

    async fn remove(&self, parent: &LockPath, name: &str) {
        let (key, mut kv) = (format!("{parent}/{name}"), self.observer.kv_client());
        kv.delete(format!("{key}/"), Some(DeleteOptions::new().with_prefix())).await.unwrap();
        kv.delete(key, None).await.unwrap();
    }

    async fn remove_parent(&self, _: &LockPath) {}

    async fn expire(&self, connection: &Connection) {
        super::revoke(&self.observer, &*connection.backend).await;
    }

    /// The server only has a counter of all watches.
    async fn watches(&self, _: &LockPath) -> Option<usize> {
        if self.alone { Some(self.server.metrics().await.watches() as usize) } else { None }
    }

    /// When waits are short, a waiter has two, and the removal of those of a finished waiter may still be in flight.
    fn most_watches(&self, processes: usize) -> usize {
        2 * processes
    }

    fn links(&self) -> Option<&dyn Links> {
        Some(self)
    }
}

#[async_trait]
impl Links for EtcdStore {
    async fn connect_cut(&self) -> Connection {
        let proxy = FaultProxy::start(self.server.addr()).await;
        proxy.refuse().await;
        self.connection(EtcdBackend::connect_lazy(self.options(&proxy)).unwrap(), proxy)
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
