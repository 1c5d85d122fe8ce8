//! A real ZooKeeper as a store under test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::sleep;
use zlock_core::LockPath;
use zlock_suite::{Connection, Links, Store};
use zlock_zk::{ZkBackend, ZkOptions};
use zookeeper_client::{Acls, Client, CreateMode, Error};

use crate::{Cut, FaultProxy, Flow, ZooKeeper, have_zookeeper, zookeeper_or_skip};

/// The shortest session timeout that works on a busy machine.
const SESSION: Duration = Duration::from_secs(5);

/// The session timeout beside operations of at most a second.
const LONG_SESSION: Duration = Duration::from_secs(12);

/// A real server, and a proxy in front of it for each connection.
pub struct ZkStore {
    server: ZooKeeper,
    /// Whether no other test uses the server.
    alone: bool,
    session: Duration,
    /// The timeout of operations, if it is not the default.
    operation: Option<Duration>,
    observer: Client,
    /// One proxy for each connection; their order gives the keys.
    links: Mutex<Vec<Arc<FaultProxy>>>,
}

impl std::fmt::Debug for ZkStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZkStore").field("server", &self.server).finish_non_exhaustive()
    }
}

impl ZkStore {
    /// Uses the server that all tests of this process share. Returns `None` to skip the test.
    ///
    /// # Panics
    /// Panics where [`zookeeper_or_skip`] does.
    pub async fn shared() -> Option<Self> {
        let server = zookeeper_or_skip().await?;
        Some(ZkStore::new(server.clone(), false).await)
    }

    /// Starts a separate server. Returns `None` to skip the test.
    ///
    /// # Panics
    /// Panics where [`have_zookeeper`] does.
    pub async fn alone() -> Option<Self> {
        if !have_zookeeper() {
            return None;
        }
        Some(ZkStore::new(ZooKeeper::start().await, true).await)
    }

    /// Like [`shared`](Self::shared), with operations that take at most a second, and longer sessions.
    ///
    /// # Panics
    /// Panics where [`shared`](Self::shared) does.
    pub async fn impatient() -> Option<Self> {
        let store = ZkStore::shared().await?;
        Some(ZkStore { session: LONG_SESSION, operation: Some(Duration::from_secs(1)), ..store })
    }

    async fn new(server: ZooKeeper, alone: bool) -> Self {
        let observer = super::observer(&server.connect_string()).await;
        ZkStore { server, alone, session: SESSION, operation: None, observer, links: Mutex::default() }
    }

    fn options(&self, proxy: &FaultProxy) -> ZkOptions {
        let options = ZkOptions::new([proxy.connect_string()]).with_session_timeout(self.session);
        match self.operation {
            Some(time) => options.with_operation_timeout(time),
            None => options,
        }
    }

    fn connection(&self, backend: ZkBackend, proxy: FaultProxy) -> Connection {
        let mut links = self.links.lock().unwrap();
        links.push(Arc::new(proxy));
        Connection { backend: Arc::new(backend), key: links.len() - 1 }
    }

    fn link(&self, connection: &Connection) -> Arc<FaultProxy> {
        self.links.lock().unwrap()[connection.key].clone()
    }

    async fn word(&self, word: &str) -> String {
        self.server.four_letter_word(word).await.unwrap()
    }
}

#[async_trait]
impl Store for ZkStore {
    async fn connect(&self) -> Connection {
        let proxy = FaultProxy::start_zookeeper(self.server.addr()).await;
        self.connection(ZkBackend::connect(self.options(&proxy)).await.unwrap(), proxy)
    }

    fn root(&self) -> LockPath {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        LockPath::new(format!("/conformance/{}", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap()
    }

    fn session_timeout(&self) -> Duration {
        self.session
    }

    async fn names(&self, parent: &LockPath) -> Vec<String> {
        super::names(&self.observer, parent).await
    }

    async fn put(&self, parent: &LockPath, name: &str) {
        let path = format!("{parent}/{name}");
        let anyone = Acls::anyone_all();
        loop {
            self.observer.mkdir(parent.as_str(), &CreateMode::Container.with_acls(anyone)).await.unwrap();
            match self.observer.create(&path, b"", &CreateMode::Persistent.with_acls(anyone)).await {
                Err(Error::NoNode) => {}
                Err(error) => panic!("{path}: {error}"),
                Ok(_) => return,
            }
        }
    }

    async fn remove(&self, parent: &LockPath, name: &str) {
        let path = format!("{parent}/{name}");
        for below in self.observer.list_children(&path).await.unwrap_or_default() {
            self.observer.delete(&format!("{path}/{below}"), None).await.unwrap();
        }
        self.observer.delete(&path, None).await.unwrap();
    }

    async fn remove_parent(&self, parent: &LockPath) {
        match self.observer.delete(parent.as_str(), None).await {
            Ok(()) | Err(Error::NoNode | Error::NotEmpty) => {}
            Err(error) => panic!("{parent}: {error}"),
        }
    }

    /// By silence, which is the only way without the session's password.
    async fn expire(&self, connection: &Connection) {
        let id = format!("{:#x}", connection.session_events().current().id.get());
        let link = self.link(connection);
        link.freeze().await;
        while self.word("dump").await.contains(&id) {
            sleep(Duration::from_millis(20)).await;
        }
        link.cut(Cut::Reset);
        link.heal().await;
    }

    /// The server's list of watches omits those on children, and its counter includes the watches of all clients.
    async fn watches(&self, parent: &LockPath) -> Option<usize> {
        if self.alone {
            return Some(self.server.mntr().await["watch_count"] as usize);
        }
        let below = format!("{parent}/");
        let (mut count, mut counts) = (0, false);
        for line in self.word("wchp").await.lines() {
            match line.strip_prefix('\t') {
                None => counts = line == parent.as_str() || line.starts_with(&below),
                Some(_) => count += usize::from(counts),
            }
        }
        Some(count)
    }

    fn links(&self) -> Option<&dyn Links> {
        Some(self)
    }
}

#[async_trait]
impl Links for ZkStore {
    async fn connect_cut(&self) -> Connection {
        let proxy = FaultProxy::start_zookeeper(self.server.addr()).await;
        proxy.refuse().await;
        self.connection(ZkBackend::connect_lazy(self.options(&proxy)).unwrap(), proxy)
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
        let link = self.link(connection);
        link.heal().await;
    }
}
