//! A real ZooKeeper as a store under test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::sleep;
use zlock_core::LockPath;
use zlock_suite::{Connection, Links, Store};

use zlock_zk::{ZkBackend, ZkOptions};
use zookeeper_client::{Acls, Client, CreateMode, Error};

use crate::proxied::ProxiedLinks;
use crate::{Cut, FaultProxy, ZooKeeper, have_zookeeper, zookeeper_or_skip};

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
    links: ProxiedLinks,
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
        Some(ZkStore::new(server.clone(), false, SESSION, None).await)
    }

    /// Starts a separate server. Returns `None` to skip the test.
    ///
    /// # Panics
    /// Panics where [`have_zookeeper`] does.
    pub async fn alone() -> Option<Self> {
        if !have_zookeeper() {
            return None;
        }
        Some(ZkStore::new(ZooKeeper::start().await, true, SESSION, None).await)
    }

    /// Like [`shared`](Self::shared), with operations that take at most a second, and longer sessions.
    ///
    /// # Panics
    /// Panics where [`shared`](Self::shared) does.
    pub async fn impatient() -> Option<Self> {
        let server = zookeeper_or_skip().await?;
        Some(ZkStore::new(server.clone(), false, LONG_SESSION, Some(Duration::from_secs(1))).await)
    }

    async fn new(server: ZooKeeper, alone: bool, session: Duration, operation: Option<Duration>) -> Self {
        let observer = super::observer(&server.connect_string()).await;
        let address = server.addr();
        let links = ProxiedLinks::new(
            move || FaultProxy::start_zookeeper(address),
            move |proxy| Arc::new(ZkBackend::connect_lazy(options(proxy, session, operation)).unwrap()),
        );
        ZkStore { server, alone, session, operation, observer, links }
    }

    async fn word(&self, word: &str) -> String {
        self.server.four_letter_word(word).await.unwrap()
    }
}

/// The timeout of operations is the default if `operation` is `None`.
fn options(proxy: &FaultProxy, session: Duration, operation: Option<Duration>) -> ZkOptions {
    let options = ZkOptions::new([proxy.connect_string()]).with_session_timeout(session);
    match operation {
        Some(time) => options.with_operation_timeout(time),
        None => options,
    }
}

#[async_trait]
impl Store for ZkStore {
    async fn connect(&self) -> Connection {
        let proxy = self.links.proxy().await;
        let options = options(&proxy, self.session, self.operation);
        self.links.add(Arc::new(ZkBackend::connect(options).await.unwrap()), proxy)
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
        let link = self.links.of(connection);
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
        Some(&self.links)
    }
}
