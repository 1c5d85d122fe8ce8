//! What tests of etcd share.

mod store;

use std::time::Duration;

use etcd_client::{Client, GetOptions};
use zlock_core::{CoordinationBackend, Label, LockPath, Needs, Target};
use zlock_etcd::{EtcdBackend, EtcdOptions};

pub use self::store::EtcdStore;
pub use crate::backends::{
    connected, create, lost_and_gone, path, record_states, release, suspended, token, watch,
};
use crate::{Etcd, FaultProxy, ready};

/// The TTL of sessions in tests about sessions.
pub const TTL: Duration = Duration::from_secs(4);

/// Returns the options of a backend.
#[must_use]
pub fn options(hosts: &str) -> EtcdOptions {
    EtcdOptions::new(hosts.split(',')).with_ttl(TTL)
}

/// Connects a backend.
///
/// # Panics
/// Panics if that fails.
pub async fn backend(hosts: &str) -> EtcdBackend {
    EtcdBackend::connect(options(hosts)).await.unwrap()
}

/// Connects a client of the library, to inspect and change the store.
///
/// # Panics
/// Panics if that fails.
pub async fn observer(hosts: &str) -> Client {
    Client::connect(hosts.split(',').collect::<Vec<_>>(), None).await.unwrap()
}

/// Starts a create and gives it up, as a cancelled acquisition does.
///
/// # Panics
/// Panics if the create is answered at once, or if the delete fails.
pub async fn give_up(backend: &EtcdBackend, path: &LockPath) {
    let token = token();
    assert!(
        ready(backend.create_ephemeral_sequential(path, Label::Lock, &token, b"", Needs::Queue)).is_none()
    );
    backend.delete(path, &Target::Id(token), None).await.unwrap();
}

/// Returns the direct children as stored at the server.
///
/// # Panics
/// Panics if the server does not answer.
pub async fn names(observer: &Client, path: &LockPath) -> Vec<String> {
    let prefix = format!("{path}/");
    let options = GetOptions::new().with_prefix().with_keys_only();
    let answer = observer.kv_client().get(prefix.as_str(), Some(options)).await.unwrap();
    let names = answer.kvs().iter().map(|kv| kv.key_str().unwrap()[prefix.len()..].to_owned());
    names.filter(|name| !name.contains('/')).collect()
}

/// Ends a session at the server, as an operator would.
///
/// # Panics
/// Panics if the server refuses it.
pub async fn revoke(observer: &Client, backend: &dyn CoordinationBackend) {
    let id = backend.session_events().current().id.get().cast_signed();
    observer.lease_client().revoke(id).await.unwrap();
}

/// A backend behind a proxy, and an observer with a direct connection.
pub struct Linked {
    /// Between the backend and the server.
    pub proxy: FaultProxy,
    /// The backend.
    pub backend: EtcdBackend,
    /// A client of the library.
    pub observer: Client,
}

impl std::fmt::Debug for Linked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Linked").field("backend", &self.backend).finish_non_exhaustive()
    }
}

/// Connects a backend through a proxy.
///
/// # Panics
/// Panics if that fails.
pub async fn linked(server: &Etcd) -> Linked {
    linked_with(server, |options| options).await
}

/// Connects a backend with other options through a proxy.
///
/// # Panics
/// Panics if that fails.
pub async fn linked_with(server: &Etcd, with: impl FnOnce(EtcdOptions) -> EtcdOptions) -> Linked {
    let proxy = FaultProxy::start(server.addr()).await;
    let backend = EtcdBackend::connect(with(options(&proxy.connect_string()))).await.unwrap();
    let observer = observer(&server.connect_string()).await;
    Linked { proxy, backend, observer }
}
