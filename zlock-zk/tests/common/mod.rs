//! Helpers shared by the tests.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests; each file uses some of it"
)]

pub mod zk_store;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock_core::{CoordinationBackend, Created, Label, LockPath, NodeId, NodeIds, SessionState};
use zlock_testkit::FaultProxy;
use zlock_zk::{ZkBackend, ZkOptions};
use zookeeper_client::{Acls, Client, CreateMode};

/// The session timeout of these tests. A link counts as dead after 0.8 s of silence.
pub const SESSION: Duration = Duration::from_secs(4);

pub fn options(hosts: &str) -> ZkOptions {
    ZkOptions::new(hosts.split(',')).with_session_timeout(SESSION)
}

pub async fn backend(hosts: &str) -> ZkBackend {
    ZkBackend::connect(options(hosts)).await.unwrap()
}

/// A separate client, to inspect and change the tree.
pub async fn observer(hosts: &str) -> Client {
    Client::connector().with_session_timeout(Duration::from_secs(60)).connect(hosts).await.unwrap()
}

/// A path that no other test of this process uses.
pub fn path(name: &str) -> LockPath {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    LockPath::new(format!("/{name}-{}/lock", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap()
}

pub fn token() -> NodeId {
    NodeIds::random().next()
}

pub async fn create(backend: &ZkBackend, path: &LockPath, label: Label) -> Created {
    backend.create_ephemeral_sequential(path, label, &token(), b"data").await.unwrap()
}

/// Returns the children as stored at the server.
pub async fn names(observer: &Client, path: &LockPath) -> Vec<String> {
    observer.sync("/").await.unwrap();
    observer.list_children(path.as_str()).await.unwrap_or_default()
}

/// Creates a path and its ancestors.
pub async fn mkdir(observer: &Client, path: &LockPath) {
    observer.mkdir(path.as_str(), &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
}

/// Waits until the condition is true.
pub async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is().await {
        assert!(began.elapsed() < Duration::from_secs(30), "not after 30 s: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the backend is connected in this epoch.
pub async fn connected(backend: &ZkBackend, epoch: u64) {
    until(&format!("connected in epoch {epoch}"), async || {
        let session = backend.session_events().current();
        session.epoch == epoch && session.state == SessionState::Connected
    })
    .await;
}

/// A backend behind a proxy, and an observer with a direct connection.
pub struct Linked {
    pub proxy: FaultProxy,
    pub backend: ZkBackend,
    pub observer: Client,
}

pub async fn linked(server: &zlock_testkit::ZooKeeper) -> Linked {
    linked_with(server, |options| options).await
}

pub async fn linked_with(
    server: &zlock_testkit::ZooKeeper,
    with: impl FnOnce(ZkOptions) -> ZkOptions,
) -> Linked {
    let proxy = FaultProxy::start_zookeeper(server.addr()).await;
    let backend = ZkBackend::connect(with(options(&proxy.connect_string()))).await.unwrap();
    let observer = observer(&server.connect_string()).await;
    Linked { proxy, backend, observer }
}
