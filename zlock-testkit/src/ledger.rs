//! The in-memory adapter of the engine for stores without sessions, as a store under test.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use zlock_core::kit::Options;
use zlock_core::{CoordinationBackend as _, Groups as _, LockPath, Values as _, Watch};
use zlock_ledger::mem::{MemLedger, MemLink, MemStore, Settings};
use zlock_ledger::{Kind, LedgerBackend, Scope};
use zlock_suite::{Connection, Links, Store};

/// One store per test.
#[derive(Debug)]
pub struct LedgerStore {
    /// The store.
    pub store: MemStore,
    operation: Duration,
    clients: Mutex<Vec<(MemLink, Weak<LedgerBackend<MemLedger>>)>>,
    /// Looks at the sessions of dead clients, as any client that waits does.
    observer: tokio::sync::Mutex<Option<(LedgerBackend<MemLedger>, Watch)>>,
}

impl LedgerStore {
    /// Returns a store with these settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let (operation, clients) = (Duration::from_secs(15), Mutex::default());
        LedgerStore {
            store: MemStore::new(settings),
            operation,
            clients,
            observer: tokio::sync::Mutex::default(),
        }
    }

    /// Returns a store whose operations take at most a second.
    #[must_use]
    pub fn impatient() -> Self {
        LedgerStore { operation: Duration::from_secs(1), ..LedgerStore::new(Settings::default()) }
    }

    fn options(&self) -> Options {
        let mut options = Options::new(["mem"]);
        options.operation_timeout = self.operation;
        options
    }

    fn add(&self, link: MemLink, backend: LedgerBackend<MemLedger>) -> Connection {
        let (backend, mut clients) = (Arc::new(backend), self.clients.lock().unwrap());
        clients.push((link, Arc::downgrade(&backend)));
        Connection { backend, key: clients.len() - 1 }
    }

    /// Watches a queue.
    async fn observe(&self, parent: &LockPath) {
        let mut observer = self.observer.lock().await;
        let backend = match observer.take() {
            Some((backend, _)) => backend,
            None => LedgerBackend::connect((self.store.ledger(), self.options())).await.unwrap(),
        };
        let (_, watch) = backend.children_with_watch(parent).await.unwrap();
        *observer = Some((backend, watch));
    }

    fn link(&self, connection: &Connection) -> MemLink {
        self.clients.lock().unwrap()[connection.key].0.clone()
    }
}

fn scope(kind: Kind, path: impl ToString) -> Scope {
    Scope { kind, path: path.to_string().into() }
}

#[async_trait]
impl Store for LedgerStore {
    async fn connect(&self) -> Connection {
        let ledger = self.store.ledger();
        let link = ledger.link();
        let backend = LedgerBackend::connect((ledger, self.options())).await.unwrap();
        // The first write opens a lane. Faults then happen to requests and answers.
        backend.leave(&self.root()).await.unwrap();
        self.add(link, backend)
    }

    fn root(&self) -> LockPath {
        LockPath::new("/suite").unwrap()
    }

    fn session_timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    async fn names(&self, parent: &LockPath) -> Vec<String> {
        self.observe(parent).await;
        let mut names = Vec::new();
        for scope in self.store.scopes() {
            let is_parents = *scope.path == *parent.as_str();
            match scope.kind {
                Kind::Queue | Kind::Group if is_parents => {
                    names.extend(self.store.entries(&scope).into_iter().map(|entry| entry.key));
                }
                Kind::Value if !self.store.entries(&scope).is_empty() => {
                    let name = scope.path.strip_prefix(&format!("{parent}/")).map(str::to_owned);
                    names.extend(name);
                }
                _ => {}
            }
        }
        names
    }

    /// A value, since no other program writes nodes.
    async fn put(&self, parent: &LockPath, name: &str) {
        let backend = LedgerBackend::connect((self.store.ledger(), self.options())).await.unwrap();
        let path = LockPath::new(format!("{parent}/{name}")).unwrap();
        backend.write_value(&path, None, b"by hand", None).await.unwrap();
    }

    async fn remove(&self, parent: &LockPath, name: &str) {
        self.store.remove(&scope(Kind::Queue, parent), name);
        self.store.remove(&scope(Kind::Group, parent), name);
        let path = format!("{parent}/{name}");
        for scope in self.store.scopes() {
            if scope.kind == Kind::Value
                && (*scope.path == *path || scope.path.starts_with(&format!("{path}/")))
            {
                self.store.remove(&scope, "");
            }
        }
    }

    async fn remove_parent(&self, _: &LockPath) {}

    /// Also breaks the connections, since an idle client asks for nothing.
    async fn expire(&self, connection: &Connection) {
        self.store.expire(connection.session_events().current().id);
        self.link(connection).reset();
    }

    /// The watches are those of the clients, which poll the store.
    async fn watches(&self, _: &LockPath) -> Option<usize> {
        let clients = self.clients.lock().unwrap();
        Some(
            clients
                .iter()
                .filter_map(|(_, backend)| backend.upgrade())
                .map(|backend| backend.watches())
                .sum(),
        )
    }

    fn links(&self) -> Option<&dyn Links> {
        Some(self)
    }
}

#[async_trait]
impl Links for LedgerStore {
    async fn connect_cut(&self) -> Connection {
        let ledger = self.store.ledger();
        let link = ledger.link();
        link.suspend();
        self.add(link, LedgerBackend::connect_lazy((ledger, self.options())).unwrap())
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
