//! Helpers shared by the tests.

use std::time::Duration;

use zlock_core::{
    CoordinationBackend, Created, Label, LockPath, Needs, NodeIds, Result, Session, SessionState,
};
use zlock_mem::MemBackend;

/// The default session timeout.
pub(crate) const T: Duration = Duration::from_secs(10);
pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) fn path() -> LockPath {
    LockPath::new("/app/orders").unwrap()
}

pub(crate) async fn try_create(backend: &MemBackend, label: Label) -> Result<Created> {
    backend
        .create_ephemeral_sequential(&path(), label, &NodeIds::random().next(), b"data", Needs::Queue)
        .await
}

pub(crate) async fn create(backend: &MemBackend) -> Created {
    try_create(backend, Label::Lock).await.unwrap()
}

/// Waits until the session is in this epoch and state.
pub(crate) async fn until(backend: &MemBackend, epoch: u64, state: SessionState) -> Session {
    let mut events = backend.session_events();
    let mut session = events.current();
    while (session.epoch, session.state) != (epoch, state) {
        session = events.changed().await;
    }
    session
}

/// Fails a test that hangs. In paused time, that takes no real time.
pub(crate) async fn limit(body: impl Future<Output = ()>) {
    let limit = Duration::from_secs(3 * 60 * 60);
    assert!(tokio::time::timeout(limit, body).await.is_ok(), "not done after {limit:?}");
}
