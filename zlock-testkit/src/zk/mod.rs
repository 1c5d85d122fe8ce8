//! What tests of ZooKeeper share.

mod meter;
mod relay;
mod store;

use std::fmt::Display;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;
use zlock::{Guard, InterProcessMutex};
use zlock_core::LockPath;
use zlock_zk::{ZkBackend, ZkOptions};
use zookeeper_client::{Acls, Client, CreateMode};

pub use self::meter::{Counts, FOREVER, Meter, cost};
pub use self::relay::{Relay, operation};
pub use self::store::ZkStore;
pub use crate::backends::{
    connected, create, lost_and_gone, path, record_states, release, suspended, token, watch,
};
use crate::{FaultProxy, ZooKeeper};

/// A session timeout for tests about sessions. A link counts as dead after 0.8 seconds of silence.
pub const SESSION: Duration = Duration::from_secs(4);

/// A session that outlives most tests: its heartbeats are tens of seconds apart.
pub const LONG: Duration = Duration::from_secs(120);

/// Returns the options of a backend.
#[must_use]
pub fn options(hosts: &str) -> ZkOptions {
    ZkOptions::new(hosts.split(',')).with_session_timeout(SESSION)
}

/// Connects a backend.
///
/// # Panics
/// Panics if that fails.
pub async fn backend(hosts: &str) -> ZkBackend {
    ZkBackend::connect(options(hosts)).await.unwrap()
}

/// Connects a client with the facade's own function.
///
/// # Panics
/// Panics if that fails.
pub async fn connect(hosts: impl Display, session: Duration) -> zlock::Client {
    let url = format!("zk://{hosts}?session_timeout={}ms", session.as_millis());
    zlock::connect(&url).await.unwrap()
}

/// Connects a client, and returns its mutex for this path.
///
/// # Panics
/// Panics if the client does not connect.
pub async fn mutex(hosts: impl Display, session: Duration, path: &str) -> InterProcessMutex {
    connect(hosts, session).await.mutex(path).unwrap()
}

/// Starts a waiter. Returns when it has joined the queue.
pub async fn wait_behind(mutex: &InterProcessMutex, observer: &Observer, before: usize) -> JoinHandle<Guard> {
    let waiter = mutex.clone();
    let waiting = tokio::spawn(async move { waiter.acquire().await.unwrap() });
    observer.wait_for_children(mutex.path().as_str(), before + 1).await;
    waiting
}

/// Starts a server with these parents, whose counters are set as if that number of children had been created.
///
/// # Panics
/// Panics if the server does not start.
pub async fn server_that_counted_to(counters: &[(&str, i32)]) -> ZooKeeper {
    let server = ZooKeeper::builder().without_digests().start().await;
    let observer = Observer::connect(server.connect_string()).await;
    for (parent, _) in counters {
        observer.make(parent).await;
    }
    server.set_counters(counters).await;
    server
}

/// Returns the numbers of the path's children, as the server wrote them.
///
/// # Panics
/// Panics if a child has no number.
pub async fn numbers(observer: &Observer, path: &str) -> Vec<i32> {
    let number = |name: &str| name.rsplit_once("lock-").unwrap().1.parse().unwrap();
    observer.children(path).await.iter().map(|name| number(name)).collect()
}

/// ZooKeeper's own view, to inspect and change the tree.
#[derive(Clone, Debug)]
pub struct Observer(pub Client);

impl Observer {
    /// Connects.
    ///
    /// # Panics
    /// Panics if that fails.
    pub async fn connect(hosts: impl Display) -> Self {
        let connector = Client::connector().with_session_timeout(LONG);
        Observer(connector.connect(&hosts.to_string()).await.unwrap())
    }

    /// Returns the children as the server has them. None of a missing parent.
    ///
    /// # Panics
    /// Panics if the server does not answer.
    pub async fn children(&self, path: &str) -> Vec<String> {
        self.0.sync("/").await.unwrap();
        match self.0.list_children(path).await {
            Ok(names) => names,
            Err(zookeeper_client::Error::NoNode) => Vec::new(),
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// Waits until the path has this many children.
    pub async fn wait_for_children(&self, path: &str, count: usize) {
        while self.children(path).await.len() != count {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Creates a node by hand, with its ancestors. It stays when the session ends.
    ///
    /// # Panics
    /// Panics if the server refuses it.
    pub async fn make(&self, path: &str) {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        self.0.mkdir(path, &options).await.unwrap();
    }

    /// Deletes a node.
    ///
    /// # Panics
    /// Panics if it does not exist.
    pub async fn remove(&self, path: &str) {
        self.0.delete(path, None).await.unwrap();
    }
}

/// Connects a client of the library, to inspect and change the tree.
///
/// # Panics
/// Panics if that fails.
pub async fn observer(hosts: &str) -> Client {
    Observer::connect(hosts).await.0
}

/// Returns the children as stored at the server.
///
/// # Panics
/// Panics if the server does not answer.
pub async fn names(observer: &Client, path: &LockPath) -> Vec<String> {
    Observer(observer.clone()).children(path.as_str()).await
}

/// Creates a path and its ancestors.
///
/// # Panics
/// Panics if the server refuses it.
pub async fn mkdir(observer: &Client, path: &LockPath) {
    Observer(observer.clone()).make(path.as_str()).await;
}

/// A backend behind a proxy, and an observer with a direct connection.
#[derive(Debug)]
pub struct Linked {
    /// Between the backend and the server.
    pub proxy: FaultProxy,
    /// The backend.
    pub backend: ZkBackend,
    /// A client of the library.
    pub observer: Client,
}

/// Connects a backend through a proxy.
///
/// # Panics
/// Panics if that fails.
pub async fn linked(server: &ZooKeeper) -> Linked {
    linked_with(server, |options| options).await
}

/// Connects a backend with other options through a proxy.
///
/// # Panics
/// Panics if that fails.
pub async fn linked_with(server: &ZooKeeper, with: impl FnOnce(ZkOptions) -> ZkOptions) -> Linked {
    let proxy = FaultProxy::start_zookeeper(server.addr()).await;
    let backend = ZkBackend::connect(with(options(&proxy.connect_string()))).await.unwrap();
    let observer = observer(&server.connect_string()).await;
    Linked { proxy, backend, observer }
}
