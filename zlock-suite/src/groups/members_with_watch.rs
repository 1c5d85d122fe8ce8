//! `members_with_watch`.

use tokio::time::timeout;
use zlock_core::Label;

use super::{contents, member, register, remove, replace, watch};
use crate::Case;
use crate::case::MOMENT;

/// Each member is listed once, and no place in a queue is.
pub async fn each_member_is_listed_once(case: &Case<'_>) {
    let (a, b, group) = (case.connect().await, case.connect().await, case.path("group"));
    let names = ["w1", "w 2", "0123abcd-4567-89ab-cdef-0123456789ab", "694d7a3c2f1b5e05", "ü"];
    for (n, name) in names.iter().enumerate() {
        register(if n % 2 == 0 { &a } else { &b }, &member(case, name), name.as_bytes()).await;
    }
    case.create(&a, &group, Label::Lock).await;
    let found = contents(&b, &group).await;
    let mut expected = names.to_vec();
    expected.sort_unstable();
    assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), expected);
    for (name, contents) in found {
        assert_eq!(contents.data, name.as_bytes());
    }
}

/// No change between the response and the watch is lost.
pub async fn no_change_is_lost(case: &Case<'_>) {
    let (a, b, c, w7, group) = (
        case.connect().await,
        case.connect().await,
        case.connect().await,
        member(case, "w7"),
        case.path("group"),
    );
    for n in 0..case.many(20, 5) {
        let (watched, _) = tokio::join!(watch(&b, &group), register(&a, &w7, b"a"));
        if watched.0.is_empty() {
            let fired = timeout(case.store.session_timeout(), watched.1).await;
            assert!(fired.is_ok(), "join {n} was neither listed nor reported");
        }
        // Where a listing has names alone, the replacement of a member is reported by its own watch, or by this one.
        let before = contents(&b, &group).await.remove("w7").unwrap();
        let (watched, now) = tokio::join!(watch(&b, &group), replace(&c, &w7, b"c"));
        let seen = contents(&b, &group).await.remove("w7").unwrap();
        assert!(before.number < now.number && seen.number == now.number, "{before:?} {seen:?}");
        drop(watched);
        let (watched, ()) = tokio::join!(watch(&b, &group), remove(&c, &w7));
        if !watched.0.is_empty() {
            let fired = timeout(case.store.session_timeout(), watched.1).await;
            assert!(fired.is_ok(), "leave {n} was neither listed nor reported");
        }
    }
}

/// A missing group has no members, and can be watched.
pub async fn missing_can_be_watched(case: &Case<'_>) {
    let (a, b, w7, group) =
        (case.connect().await, case.connect().await, member(case, "w7"), case.path("group"));
    let (names, mut fires) = watch(&b, &group).await;
    assert_eq!(names, [""; 0]);
    assert!(timeout(MOMENT, &mut fires).await.is_err(), "fired without a change");
    register(&a, &w7, b"a").await;
    fires.await;
    // The first event may be that of the group alone.
    case.until("the member is seen", async || watch(&b, &group).await.0 == ["w7"]).await;
}

/// The watch fires, with any event, when its session ends.
pub async fn end_of_its_session_fires(case: &Case<'_>) {
    let (a, w7, group) = (case.connect().await, member(case, "w7"), case.path("group"));
    let b = case.connect().await;
    register(&b, &w7, b"b").await;
    let (_, fires) = watch(&a, &group).await;
    case.store.expire(&a).await;
    fires.await;
}

/// Cases that need [`Store::watches`](crate::Store::watches).
pub mod watches {
    use super::*;

    /// A dropped watch is removed from the server.
    pub async fn dropped_watch_leaves_none(case: &Case<'_>) {
        let (a, w7, group) = (case.connect().await, member(case, "w7"), case.path("group"));
        register(&a, &w7, b"a").await;
        let before = case.watches().await;
        let both = (watch(&a, &group).await, watch(&a, &case.path("missing")).await);
        assert!(case.watches().await > before);
        drop(both);
        case.until("the watches are removed", async || case.watches().await <= before).await;
    }
}
