//! Mem as a store under test.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use zlock_core::LockPath;
use zlock_mem::{MemLink, MemOptions, MemServer};
use zlock_suite::{Connection, Links, Store};

pub use crate::backends::watch;

/// One server per test.
#[derive(Debug, Default)]
pub struct MemStore {
    /// The server.
    pub server: MemServer,
    options: MemOptions,
    /// How long a request is on its way.
    way: Duration,
    links: Mutex<Vec<MemLink>>,
}

impl MemStore {
    /// Returns a store whose operations take at most a second.
    #[must_use]
    pub fn impatient() -> Self {
        let options = MemOptions::default().with_operation_timeout(Duration::from_secs(1));
        MemStore { options, ..MemStore::default() }
    }

    /// Returns a store whose requests take a millisecond, so that clients have requests under way at the same time, and a fault can
    /// meet each of them.
    #[must_use]
    pub fn distant() -> Self {
        MemStore { way: Duration::from_millis(1), ..MemStore::default() }
    }

    fn link(&self, connection: &Connection) -> MemLink {
        self.links.lock().unwrap()[connection.key].clone()
    }
}

#[async_trait]
impl Store for MemStore {
    async fn connect(&self) -> Connection {
        let backend = self.server.connect_with(self.options.clone());
        let mut links = self.links.lock().unwrap();
        let link = backend.link();
        link.delay(self.way, Duration::ZERO);
        links.push(link);
        Connection { backend: Arc::new(backend), key: links.len() - 1 }
    }

    fn root(&self) -> LockPath {
        LockPath::new("/suite").unwrap()
    }

    fn session_timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    async fn names(&self, parent: &LockPath) -> Vec<String> {
        self.server.names(parent)
    }

    async fn put(&self, parent: &LockPath, name: &str) {
        self.server.put(parent, name, b"by hand");
    }

    async fn remove(&self, parent: &LockPath, name: &str) {
        self.server.remove(parent, name);
    }

    async fn remove_parent(&self, parent: &LockPath) {
        self.server.remove_parent(parent);
    }

    async fn expire(&self, connection: &Connection) {
        self.link(connection).expire();
    }

    async fn watches(&self, parent: &LockPath) -> Option<usize> {
        Some(self.server.watches_under(parent))
    }

    fn links(&self) -> Option<&dyn Links> {
        Some(self)
    }
}

#[async_trait]
impl Links for MemStore {
    async fn connect_cut(&self) -> Connection {
        self.server.stop();
        let connection = self.connect().await;
        self.link(&connection).suspend();
        self.server.start();
        connection
    }

    async fn cut(&self, connection: &Connection) {
        self.link(connection).suspend();
    }

    async fn freeze(&self, connection: &Connection) {
        self.link(connection).cut();
    }

    async fn mute(&self, connection: &Connection) {
        self.link(connection).mute();
    }

    async fn heal(&self, connection: &Connection) {
        self.link(connection).heal();
    }
}
