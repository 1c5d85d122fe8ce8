//! `join`.

use tokio::time::{sleep, timeout};
use zlock_core::{Consistency, ErrorKind, Joined, Label, Target, WriteOutcome};

use super::{contents, is_taken, member, register, remove, replace, try_join, watch};
use crate::Case;
use crate::case::{LONG, MOMENT, TOO_MUCH};

/// More than 1,000,000 bytes of data are refused with `InvalidArgument`.
pub async fn too_much_data_is_refused(case: &Case<'_>) {
    let (a, w7) = (case.connect().await, member(case, "w7"));
    let refused = a.join(&w7, &[7; TOO_MUCH], false).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let first = register(&a, &w7, b"a").await;
    assert_eq!(contents(&a, &case.path("group")).await["w7"].number, first.number);
}

/// A member of another session is `Taken`, and stays as it is.
pub async fn member_of_another_session_is_taken(case: &Case<'_>) {
    let (a, b, w7) = (case.connect().await, case.connect().await, member(case, "w7"));
    let first = register(&a, &w7, b"a").await;
    for _ in 0..2 {
        let second = try_join(&b, &w7, b"b", false).await;
        assert!(is_taken(&second, first.session), "{second:?}");
    }
    let now = &contents(&b, &case.path("group")).await["w7"];
    assert_eq!((&*now.data, now.number, now.session), (&b"a"[..], first.number, Some(first.session)));
    assert!(!first.deletion.is_deleted());
}

/// Of several sessions that join with the same name, one succeeds.
pub async fn one_of_several_succeeds(case: &Case<'_>) {
    let (a, b, c, w7) =
        (case.connect().await, case.connect().await, case.connect().await, member(case, "w7"));
    for _ in 0..5 {
        let joined = tokio::join!(
            try_join(&a, &w7, b"a", false),
            try_join(&b, &w7, b"b", false),
            try_join(&c, &w7, b"c", false),
        );
        let joined = [(&a, joined.0), (&b, joined.1), (&c, joined.2)];
        let winners: Vec<_> =
            joined.iter().filter(|(_, joined)| matches!(joined, Joined::Joined(_))).collect();
        assert_eq!(winners.len(), 1, "{joined:?}");
        for (backend, _) in &joined {
            remove(backend, &w7).await;
        }
    }
}

/// A member of this session is found, and not created again.
pub async fn own_member_is_found(case: &Case<'_>) {
    let (a, w7) = (case.connect().await, member(case, "w7"));
    let first = register(&a, &w7, b"a").await;
    for replaces in [false, true] {
        match try_join(&a, &w7, b"again", replaces).await {
            Joined::Joined(again) => assert_eq!(again.number, first.number),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(contents(&a, &case.path("group")).await["w7"].data, b"a");
}

/// A value is not replaced: the member is beside it, or its name is `Taken` by no session.
pub async fn value_is_not_replaced(case: &Case<'_>) {
    let (a, b, w7) = (case.connect().await, case.connect().await, member(case, "w7"));
    case.put(&case.path("group"), "w7").await;
    let empty = a.value(&w7, Consistency::Latest).await.unwrap().unwrap();
    let written = a.write_value(&w7, Some(empty.version), b"value", None).await.unwrap();
    let WriteOutcome::Written(version) = written else { panic!("{written:?}") };
    for replaces in [false, true] {
        for backend in [&a, &b] {
            let joined = try_join(backend, &w7, b"member", replaces).await;
            assert!(matches!(joined, Joined::Taken(None) | Joined::Joined(_)), "{joined:?}");
            remove(backend, &w7).await;
        }
    }
    let now = a.value(&w7, Consistency::Latest).await.unwrap().unwrap();
    assert_eq!((&*now.data, now.version), (&b"value"[..], version));
}

/// A queue at the path is not replaced, and does not end with the member.
pub async fn queue_at_the_path_stays(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("lock"));
    let first = case.create(&a, &path, Label::Lock).await;
    try_join(&b, &path, b"member", true).await;
    let second = case.create(&a, &path, Label::Lock).await.node;
    remove(&b, &path).await;
    assert!(case.has(&path, &[&first.node, &second]).await && !first.deletion.is_deleted());
    // Nor is a place that has the name.
    if let Ok(place) = path.join(first.node.name.as_str()) {
        for backend in [&a, &b] {
            let _ = backend.join(&place, b"member", true).await;
            remove(backend, &place).await;
            assert!(case.has(&path, &[&first.node, &second]).await && !first.deletion.is_deleted());
        }
    }
    for node in [first.node, second] {
        a.delete(&path, &Target::Node(node), None).await.unwrap();
    }
}

/// The member belongs to the session of the returned epoch, and is removed when that session ends.
pub async fn ends_with_its_session(case: &Case<'_>) {
    let (a, b, w7) = (case.connect().await, case.connect().await, member(case, "w7"));
    let first = register(&a, &w7, b"a").await;
    let session = a.session_events().current();
    assert_eq!((first.session, first.epoch), (session.id, session.epoch));
    case.store.expire(&a).await;
    let group = case.path("group");
    case.until("the member is removed", async || case.store.names(&group).await.is_empty()).await;
    register(&b, &w7, b"b").await;
    case.connected(&a, 2).await;
    let late = try_join(&a, &w7, b"a", false).await;
    assert!(is_taken(&late, b.session_events().current().id), "{late:?}");
}

/// A member that is replaced is never missing from a listing in between.
pub async fn replaced_is_never_missing(case: &Case<'_>) {
    let (a, b, c, w7) =
        (case.connect().await, case.connect().await, case.connect().await, member(case, "w7"));
    register(&a, &w7, b"0").await;
    for n in 0..case.many(20, 5) {
        let (by, group) = (if n % 2 == 0 { &b } else { &a }, case.path("group"));
        let looks = async {
            for _ in 0..4 {
                assert_eq!(watch(&c, &group).await.0, ["w7"]);
            }
        };
        tokio::join!(replace(by, &w7, b"next"), looks);
    }
    let now = contents(&c, &case.path("group")).await;
    assert_eq!(now["w7"].data, b"next");
}

/// A member that was replaced does not end with the session that owned it before.
pub async fn replaced_outlives_the_earlier_session(case: &Case<'_>) {
    let (a, b, w7) = (case.connect().await, case.connect().await, member(case, "w7"));
    register(&a, &w7, b"old").await;
    let second = replace(&b, &w7, b"new").await;
    case.store.expire(&a).await;
    sleep(MOMENT).await;
    let now = &contents(&b, &case.path("group")).await["w7"];
    assert_eq!((&*now.data, now.number, now.session), (&b"new"[..], second.number, Some(second.session)));
    case.connected(&a, 2).await;
    // The session that owned it before removes nothing, either.
    remove(&a, &w7).await;
    assert_eq!(contents(&b, &case.path("group")).await.len(), 1);
    assert!(!second.deletion.is_deleted());
}

/// The number of a member is larger than that of every earlier one of the same name.
pub async fn numbers_increase(case: &Case<'_>) {
    let (a, b, w7, group) =
        (case.connect().await, case.connect().await, member(case, "w7"), case.path("group"));
    let mut last = 0;
    for n in 0..6 {
        let registration = match n % 3 {
            0 => register(&a, &w7, b"a").await,
            1 => replace(&b, &w7, b"b").await,
            _ => {
                remove(&b, &w7).await;
                case.store.remove_parent(&group).await;
                let joined = register(&a, &w7, b"a").await;
                remove(&a, &w7).await;
                joined
            }
        };
        assert!(registration.number > last, "{registration:?} after {last}");
        last = registration.number;
    }
}

/// A member that another client deletes or replaces while its session is live is reported through `deletion`.
pub async fn deletion_is_reported(case: &Case<'_>) {
    let (a, b, group) = (case.connect().await, case.connect().await, case.path("group"));
    let (w1, w2) = (member(case, "w1"), member(case, "w2"));
    for both in [false, true] {
        // A session finds that of one node in another way than that of several.
        let stays = if both { Some(register(&a, &w2, b"stays").await) } else { None };
        let mut deletion = register(&a, &w1, b"a").await.deletion;
        case.store.remove(&group, "w1").await;
        let limit = 2 * case.store.session_timeout() + LONG;
        timeout(limit, deletion.deleted()).await.expect("the deletion is reported");
        let mut deletion = register(&a, &w1, b"a").await.deletion;
        replace(&b, &w1, b"b").await;
        timeout(limit, deletion.deleted()).await.expect("the replacement is reported");
        assert!(stays.is_none_or(|stays| !stays.deletion.is_deleted()));
        remove(&b, &w1).await;
    }
}

/// Missing parents are created.
pub async fn missing_parents_are_created(case: &Case<'_>) {
    let (a, deep) = (case.connect().await, case.root().join("deep/down/group").unwrap());
    case.uses([deep.clone()]);
    let w7 = deep.join("w7").unwrap();
    register(&a, &w7, b"a").await;
    assert_eq!(watch(&a, &deep).await.0, ["w7"]);
    remove(&a, &w7).await;
}

/// Cases that need [`Store::links`](crate::Store::links).
pub mod links {
    use super::*;

    /// A lost response does not change the result.
    pub async fn lost_answer_does_not_change_the_result(case: &Case<'_>) {
        let (a, b, w7, group) =
            (case.connect().await, case.connect().await, member(case, "w7"), case.path("group"));
        for replaces in [false, true] {
            case.links().mute(&b).await;
            let heal = async {
                // Where it takes several requests to replace a member, the first one has no answer.
                let joins = async {
                    while contents(&a, &group).await.get("w7").is_none_or(|w7| w7.data != b"b") {
                        sleep(MOMENT / 20).await;
                    }
                };
                let _ = timeout(2 * MOMENT, joins).await;
                case.links().heal(&b).await;
            };
            let (joined, ()) = tokio::join!(b.join(&w7, b"b", replaces), heal);
            let now = contents(&a, &group).await.remove("w7").unwrap();
            let Ok(Joined::Joined(joined)) = joined else { panic!("replaces: {replaces}, {joined:?}") };
            assert_eq!((Some(joined.session), joined.number), (now.session, now.number));
            remove(&b, &w7).await;
            register(&a, &w7, b"a").await;
        }
        // Taken stays taken.
        case.links().mute(&b).await;
        let heal = async {
            sleep(MOMENT).await;
            case.links().heal(&b).await;
        };
        let (joined, ()) = tokio::join!(try_join(&b, &w7, b"b", false), heal);
        assert!(is_taken(&joined, a.session_events().current().id), "{joined:?}");
    }
}
