//! A real etcd as a store under test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Client, DeleteOptions};
use zlock_core::LockPath;
use zlock_etcd::{EtcdBackend, EtcdOptions};
use zlock_suite::{Connection, Links, Store};

use crate::proxied::ProxiedLinks;
use crate::{Etcd, FaultProxy, etcd_or_skip, have_etcd};

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
    links: ProxiedLinks,
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
        Some(EtcdStore::new(server.clone(), false, TTL, None).await)
    }

    /// Starts a separate server, whose watches can be counted. Returns `None` to skip the test.
    ///
    /// # Panics
    /// Panics where [`have_etcd`] does.
    pub async fn alone() -> Option<Self> {
        if !have_etcd() {
            return None;
        }
        Some(EtcdStore::new(Etcd::start().await, true, TTL, None).await)
    }

    /// Like [`shared`](Self::shared), with operations that take at most a second, and longer sessions.
    ///
    /// # Panics
    /// Panics where [`shared`](Self::shared) does.
    pub async fn impatient() -> Option<Self> {
        let server = etcd_or_skip().await?;
        Some(EtcdStore::new(server.clone(), false, LONG_TTL, Some(Duration::from_secs(1))).await)
    }

    async fn new(server: Etcd, alone: bool, ttl: Duration, operation: Option<Duration>) -> Self {
        let observer = super::observer(&server.connect_string()).await;
        let address = server.addr();
        let links = ProxiedLinks::new(
            move || FaultProxy::start(address),
            move |proxy| Arc::new(EtcdBackend::connect_lazy(options(proxy, ttl, operation)).unwrap()),
        );
        EtcdStore { server, alone, ttl, operation, observer, links }
    }
}

/// The timeout of operations is the default if `operation` is `None`.
fn options(proxy: &FaultProxy, ttl: Duration, operation: Option<Duration>) -> EtcdOptions {
    let options = EtcdOptions::new([proxy.connect_string()]).with_ttl(ttl);
    match operation {
        Some(time) => options.with_operation_timeout(time),
        None => options,
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn connect(&self) -> Connection {
        let proxy = self.links.proxy().await;
        let options = options(&proxy, self.ttl, self.operation);
        self.links.add(Arc::new(EtcdBackend::connect(options).await.unwrap()), proxy)
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
        Some(&self.links)
    }
}
