//! What tests of all backends share.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinHandle;
use tokio::time::Instant;
use zlock_core::{
    CoordinationBackend, Created, Existence, Label, LockPath, Needs, Node, NodeId, NodeIds, SessionEvents,
    SessionState, Watch,
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
pub async fn watch(backend: &(impl CoordinationBackend + ?Sized), path: &LockPath, node: &Node) -> Watch {
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

/// Waits until the session is suspended.
///
/// # Panics
/// See [`until`].
pub async fn suspended(backend: &impl CoordinationBackend) {
    let events = backend.session_events();
    until("suspended", async || events.current().state == SessionState::Suspended).await;
}

/// Records each state that a listener reports from now on, with its epoch, until this one.
pub async fn record_states(
    events: &SessionEvents,
    last: (u64, SessionState),
) -> JoinHandle<Vec<(u64, SessionState)>> {
    let mut listener = events.listen();
    listener.next().await;
    tokio::spawn(async move {
        let mut states = Vec::new();
        while states.last() != Some(&last)
            && let Some(session) = listener.next().await
        {
            states.push((session.epoch, session.state));
        }
        states
    })
}

/// Returns when the backend's first session is lost, and when another client sees that its node is gone.
///
/// # Panics
/// Panics if the first session ends in another way.
pub async fn lost_and_gone(
    backend: &impl CoordinationBackend,
    is_gone: impl AsyncFnMut() -> bool,
) -> (Instant, Instant) {
    let mut events = backend.session_events();
    let lost = async {
        let session = events.ended(1).await;
        assert_eq!((session.epoch, session.state), (1, SessionState::Lost));
        Instant::now()
    };
    let gone = async {
        until("the node is gone", is_gone).await;
        Instant::now()
    };
    tokio::join!(lost, gone)
}

/// Releases a lock that is held.
///
/// # Panics
/// Panics if the store does not confirm it.
pub async fn release(guard: Guard) {
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}
