//! `leave`.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::{member, register, remove, watch};
use crate::Case;
use crate::case::{LONG, MOMENT};

/// A member or a group that does not exist is not an error.
pub async fn missing_is_no_error(case: &Case<'_>) {
    let (a, w7, other) = (case.connect().await, member(case, "w7"), member(case, "other"));
    remove(&a, &w7).await;
    register(&a, &w7, b"a").await;
    remove(&a, &other).await;
    remove(&a, &w7).await;
    remove(&a, &w7).await;
    assert_eq!(watch(&a, &case.path("group")).await.0, [""; 0]);
}

/// A member of another session is not removed.
pub async fn others_stay(case: &Case<'_>) {
    let (a, b, w7) = (case.connect().await, case.connect().await, member(case, "w7"));
    register(&a, &w7, b"a").await;
    remove(&b, &w7).await;
    assert_eq!(watch(&b, &case.path("group")).await.0, ["w7"]);
}

/// The removal is not reported as one by another client.
pub async fn removal_is_not_reported(case: &Case<'_>) {
    let (a, w1, w2) = (case.connect().await, member(case, "w1"), member(case, "w2"));
    let stays = register(&a, &w2, b"stays").await;
    let left = register(&a, &w1, b"a").await;
    remove(&a, &w1).await;
    // Long enough for the heartbeats that look for nodes.
    sleep(case.store.session_timeout()).await;
    assert!(!left.deletion.is_deleted() && !stays.deletion.is_deleted());
}

/// A join whose future was dropped before this call does not take effect after this call returned `Ok`.
pub async fn dropped_join_is_void(case: &Case<'_>) {
    let (a, b, w7, group) =
        (case.connect().await, case.connect().await, member(case, "w7"), case.path("group"));
    for polls in 1..200 {
        let is_done = {
            let mut join = pin!(a.join(&w7, b"dropped", false));
            let mut is_done = false;
            for _ in 0..polls {
                is_done = join.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
                if is_done {
                    break;
                }
                yield_now().await;
            }
            is_done
        };
        remove(&a, &w7).await;
        assert_eq!(watch(&b, &group).await.0, [""; 0], "after {polls} polls");
        sleep(MOMENT / 20).await;
        assert_eq!(watch(&b, &group).await.0, [""; 0], "later, after {polls} polls");
        if is_done {
            return;
        }
    }
}

/// A member that joins after this call returned `Ok` is not removed.
pub async fn later_member_stays(case: &Case<'_>) {
    let (a, b, w7, group) =
        (case.connect().await, case.connect().await, member(case, "w7"), case.path("group"));
    for _ in 0..case.many(20, 5) {
        register(&a, &w7, b"a").await;
        remove(&a, &w7).await;
        let again = register(&a, &w7, b"again").await;
        sleep(MOMENT / 20).await;
        assert_eq!(watch(&b, &group).await.0, ["w7"]);
        assert!(!again.deletion.is_deleted());
        remove(&a, &w7).await;
    }
}

/// Cases that need [`Store::links`](crate::Store::links).
pub mod links {
    use super::*;

    /// A join whose future was dropped before this call does not take effect after this call returned `Ok`.
    pub async fn dropped_join_over_a_broken_link_is_void(case: &Case<'_>) {
        let (a, b, w7, group) =
            (case.connect().await, case.connect().await, member(case, "w7"), case.path("group"));
        for mute in [false, true] {
            if mute {
                case.links().mute(&a).await;
            } else {
                case.links().freeze(&a).await;
            }
            let joined = timeout(MOMENT, a.join(&w7, b"dropped", false)).await;
            assert!(joined.is_err(), "answered over a link that is mute: {mute}");
            let heal = async {
                sleep(MOMENT).await;
                case.links().heal(&a).await;
            };
            let left = timeout(3 * case.store.session_timeout() + LONG, a.leave(&w7));
            let (left, ()) = tokio::join!(left, heal);
            left.expect("it is answered").unwrap();
            assert_eq!(watch(&b, &group).await.0, [""; 0], "mute: {mute}");
            sleep(MOMENT).await;
            assert_eq!(watch(&b, &group).await.0, [""; 0], "later, mute: {mute}");
            let again = register(&a, &w7, b"again").await;
            assert_eq!(watch(&b, &group).await.0, ["w7"]);
            assert!(!again.deletion.is_deleted());
            remove(&a, &w7).await;
        }
    }
}
