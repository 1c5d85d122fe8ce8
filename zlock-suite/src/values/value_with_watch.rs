//! `value_with_watch`.

use tokio::time::timeout;
use zlock_core::Value;

use super::{recreate, watch, written};
use crate::Case;
use crate::case::MOMENT;

/// No write between the response and the watch is lost.
pub async fn no_write_is_lost(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.value("value"));
    let mut expected = Some(written(&a, &path, None, b"").await);
    for n in 0..20_u8 {
        let data = [n];
        let (watched, version) = tokio::join!(watch(&b, &path), written(&a, &path, expected, &data));
        if watched.0.is_none_or(|value| value.version != version) {
            let fired = timeout(case.store.session_timeout(), watched.1).await;
            assert!(fired.is_ok(), "write {n} was neither read nor reported");
        }
        expected = Some(version);
    }
}

/// A missing value can be watched.
pub async fn missing_can_be_watched(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.value("value"));
    let (seen, fires) = watch(&b, &path).await;
    assert_eq!(seen, None);
    let version = written(&a, &path, None, b"one").await;
    fires.await;
    let (seen, mut silent) = watch(&b, &path).await;
    assert_eq!(seen, Some(Value::new(*b"one", version)));
    assert!(timeout(MOMENT, &mut silent).await.is_err(), "fired without a change");
    written(&a, &path, Some(version), b"two").await;
    silent.await;
}

/// The watch fires when the value is deleted and created again by another program.
pub async fn recreation_fires(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.value("value"));
    let version = written(&a, &path, None, b"one").await;
    let (_, fires) = watch(&a, &path).await;
    recreate(case, &path).await;
    fires.await;
    let (now, _watch) = watch(&a, &path).await;
    assert_ne!(now.unwrap().version, version);
}

/// The watch fires, with any event, when its session ends.
pub async fn end_of_its_session_fires(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.value("value"));
    written(&a, &path, None, b"one").await;
    let (_, fires) = watch(&a, &path).await;
    case.store.expire(&a).await;
    fires.await;
}

/// Cases that need [`Store::watches`](crate::Store::watches).
pub mod watches {
    use super::*;

    /// A dropped watch is removed from the server.
    pub async fn dropped_watch_leaves_none(case: &Case<'_>) {
        let (a, path, missing) = (case.connect().await, case.value("value"), case.value("missing"));
        written(&a, &path, None, b"one").await;
        let before = case.watches().await;
        let both = (watch(&a, &path).await, watch(&a, &missing).await);
        assert!(case.watches().await > before);
        drop(both);
        case.until("the watches are removed", async || case.watches().await <= before).await;
    }
}
