//! Helpers shared by the tests.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests; each file uses some of it"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Client, GetOptions};
use futures_util::FutureExt;
use tokio::time::{Instant, sleep};
use zlock_core::{
    CoordinationBackend, Created, Existence, Label, LockPath, Node, NodeId, NodeIds, SessionState, Target,
    Watch,
};
use zlock_etcd::{EtcdBackend, EtcdOptions};
use zlock_testkit::{Etcd, FaultProxy};

/// The TTL of these tests.
pub const TTL: Duration = Duration::from_secs(4);

pub fn options(hosts: &str) -> EtcdOptions {
    EtcdOptions::new(hosts.split(',')).with_ttl(TTL)
}

pub async fn backend(hosts: &str) -> EtcdBackend {
    EtcdBackend::connect(options(hosts)).await.unwrap()
}

/// A separate client, to inspect and change the store.
pub async fn observer(hosts: &str) -> Client {
    Client::connect(hosts.split(',').collect::<Vec<_>>(), None).await.unwrap()
}

/// A path that no other test of this process uses.
pub fn path(name: &str) -> LockPath {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    LockPath::new(format!("/{name}-{}/lock", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap()
}

pub fn token() -> NodeId {
    NodeIds::random().next()
}

pub async fn create(backend: &EtcdBackend, path: &LockPath, label: Label) -> Created {
    backend.create_ephemeral_sequential(path, label, &token(), b"data").await.unwrap()
}

/// Starts a create and gives it up, as a cancelled acquisition does.
pub async fn give_up(backend: &EtcdBackend, path: &LockPath) {
    let token = token();
    let create = backend.create_ephemeral_sequential(path, Label::Lock, &token, b"");
    assert!(create.now_or_never().is_none());
    backend.delete(path, &Target::Id(token)).await.unwrap();
}

pub async fn watch(backend: &EtcdBackend, path: &LockPath, node: &Node) -> Watch {
    match backend.exists_with_watch(path, node).await.unwrap() {
        Existence::Watching(watch) => watch,
        other => panic!("{other:?}"),
    }
}

/// Returns the direct children as stored at the server.
pub async fn names(observer: &Client, path: &LockPath) -> Vec<String> {
    let prefix = format!("{path}/");
    let options = GetOptions::new().with_prefix().with_keys_only();
    let answer = observer.kv_client().get(prefix.as_str(), Some(options)).await.unwrap();
    let names = answer.kvs().iter().map(|kv| kv.key_str().unwrap()[prefix.len()..].to_owned());
    names.filter(|name| !name.contains('/')).collect()
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
pub async fn connected(backend: &EtcdBackend, epoch: u64) {
    until(&format!("connected in epoch {epoch}"), async || {
        let session = backend.session_events().current();
        session.epoch == epoch && session.state == SessionState::Connected
    })
    .await;
}

/// Ends a session at the server, as an operator would.
pub async fn revoke(observer: &Client, backend: &dyn CoordinationBackend) {
    let id = backend.session_events().current().id.get().cast_signed();
    observer.lease_client().revoke(id).await.unwrap();
}

/// A backend behind a proxy, and an observer with a direct connection.
pub struct Linked {
    pub proxy: FaultProxy,
    pub backend: EtcdBackend,
    pub observer: Client,
}

pub async fn linked(server: &Etcd) -> Linked {
    linked_with(server, |options| options).await
}

pub async fn linked_with(server: &Etcd, with: impl FnOnce(EtcdOptions) -> EtcdOptions) -> Linked {
    let proxy = FaultProxy::start(server.addr()).await;
    let backend = EtcdBackend::connect(with(options(&proxy.connect_string()))).await.unwrap();
    let observer = observer(&server.connect_string()).await;
    Linked { proxy, backend, observer }
}
