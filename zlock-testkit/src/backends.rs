//! What tests of all backends share.

use std::sync::atomic::{AtomicUsize, Ordering};

use zlock_core::{
    CoordinationBackend, Created, Existence, Label, LockPath, Needs, Node, NodeId, NodeIds, SessionState,
    Watch,
};
use zlock_recipes::{Guard, Release};

use crate::until;

/// Returns a path that no other test of this process uses.
///
/// # Panics
/// Panics if the name is not a path segment.
pub fn path(name: &str) -> LockPath {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    LockPath::new(format!("/{name}-{}/lock", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap()
}

/// Returns a new node ID.
pub fn token() -> NodeId {
    NodeIds::random().next()
}

/// Appends a node.
///
/// # Panics
/// Panics if the create fails.
pub async fn create(backend: &impl CoordinationBackend, path: &LockPath, label: Label) -> Created {
    backend.create_ephemeral_sequential(path, label, &token(), b"data", Needs::Queue).await.unwrap()
}

/// Watches a node that exists.
///
/// # Panics
/// Panics if it does not, or if its label has changed.
pub async fn watch(backend: &impl CoordinationBackend, path: &LockPath, node: &Node) -> Watch {
    match backend.exists_with_watch(path, node).await.unwrap() {
        Existence::Watching(watch) => watch,
        other => panic!("{other:?}"),
    }
}

/// Waits until the backend is connected in this epoch.
///
/// # Panics
/// See [`until`].
pub async fn connected(backend: &impl CoordinationBackend, epoch: u64) {
    until(&format!("connected in epoch {epoch}"), async || {
        let session = backend.session_events().current();
        session.epoch == epoch && session.state == SessionState::Connected
    })
    .await;
}

/// Releases a lock that is held.
///
/// # Panics
/// Panics if the store does not confirm it.
pub async fn release(guard: Guard) {
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}
