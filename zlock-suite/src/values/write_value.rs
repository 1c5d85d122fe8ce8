//! `write_value`.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use zlock_core::{
    Deletion, Error, ErrorKind, Existence, GuardNode, Joined, Label, LockPath, Node, Target, Value, Version,
    WriteOutcome,
};

use super::{read, recreate, watch, write, written};
use crate::case::{LONG, MOMENT, TOO_MUCH};
use crate::{Case, Connection};

async fn guard(case: &Case<'_>, backend: &Connection, lock: &LockPath) -> (Node, GuardNode) {
    let node = case.create(backend, lock, Label::Lock).await.node;
    let guard = GuardNode::new(lock.clone(), node.name.clone(), node.fencing_token.unwrap());
    (node, guard)
}

/// More than 1,000,000 bytes of data are refused with `InvalidArgument`.
pub async fn too_much_data_is_refused(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.value("value"));
    let data = vec![7; TOO_MUCH];
    let refused = a.write_value(&path, None, &data, None).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let version = written(&a, &path, None, &data[1..]).await;
    assert_eq!(read(&a, &path).await, Some(Value::new(&data[1..], version)));
}

/// A value with another version is a conflict, returned with what is there now, and nothing is written.
pub async fn other_version_is_a_conflict(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.value("value"));
    let none = WriteOutcome::Conflict(None);
    assert_eq!(write(&a, &path, Some(Version::new(7, 7)), b"x").await, none);
    let one = written(&a, &path, None, b"one").await;
    let two = written(&b, &path, Some(one), b"two").await;
    let now = Value::new(*b"two", two);
    for backend in [&a, &b] {
        for expected in [None, Some(one), Some(Version::new(two.created(), two.number() + 1))] {
            let conflict = WriteOutcome::Conflict(Some(now.clone()));
            assert_eq!(write(backend, &path, expected, b"x").await, conflict, "{expected:?}");
        }
        assert_eq!(read(backend, &path).await, Some(now.clone()));
    }
}

/// Of several writes that expect the same version, one succeeds.
pub async fn one_of_several_succeeds(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.value("value"));
    let mut expected = None;
    for _ in 0..10 {
        // Two of the same client, too.
        let outcomes = tokio::join!(
            write(&a, &path, expected, b"1"),
            write(&b, &path, expected, b"2"),
            write(&a, &path, expected, b"3"),
        );
        let outcomes = [outcomes.0, outcomes.1, outcomes.2];
        let versions = outcomes.iter().filter_map(|outcome| match outcome {
            WriteOutcome::Written(version) => Some(*version),
            _ => None,
        });
        let versions: Vec<_> = versions.collect();
        assert_eq!(versions.len(), 1, "{outcomes:?}");
        expected = Some(versions[0]);
        assert_eq!(read(&b, &path).await.map(|value| value.version), expected);
    }
}

/// The returned version is that which a read returns.
pub async fn version_is_that_of_a_read(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.value("value"));
    let mut expected = None;
    for n in 0..4_u8 {
        let version = written(&a, &path, expected, &[n]).await;
        assert_eq!(read(&a, &path).await.map(|value| value.version), Some(version));
        let (value, _watch) = watch(&a, &path).await;
        assert_eq!(value.map(|value| value.version), Some(version));
        assert_ne!(expected, Some(version));
        expected = Some(version);
    }
}

/// A value that was deleted and created again by another program has another version.
pub async fn recreated_has_another_version(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.value("value"));
    case.store.put(&path.parent().unwrap(), "value").await;
    // By other programs, the first version of each creation may have the same number.
    for _ in 0..3 {
        let old = read(&a, &path).await.unwrap().version;
        recreate(case, &path).await;
        for backend in [&a, &b] {
            let conflict = write(backend, &path, Some(old), b"x").await;
            assert!(
                matches!(&conflict, WriteOutcome::Conflict(Some(now)) if now.version != old),
                "{conflict:?}"
            );
        }
        let now = read(&b, &path).await.unwrap().version;
        let written = written(&a, &path, Some(now), b"new").await;
        recreate(case, &path).await;
        for old in [now, written] {
            let conflict = write(&a, &path, Some(old), b"x").await;
            assert!(
                matches!(&conflict, WriteOutcome::Conflict(Some(now)) if now.version != old),
                "{conflict:?}"
            );
        }
    }
}

/// A write whose guard is gone changes nothing.
pub async fn gone_guard_changes_nothing(case: &Case<'_>) {
    let (a, b, path, lock) =
        (case.connect().await, case.connect().await, case.value("value"), case.path("lock"));
    let (node, guard) = guard(case, &a, &lock).await;
    let mut expected = None;
    for writer in [&a, &b, &a] {
        let outcome = writer.write_value(&path, expected, b"one", Some(&guard)).await.unwrap();
        let WriteOutcome::Written(version) = outcome else { panic!("{outcome:?}") };
        expected = Some(version);
    }
    a.delete(&lock, &Target::Node(node), None).await.unwrap();
    for writer in [&a, &b] {
        let outcome = writer.write_value(&path, expected, b"two", Some(&guard)).await.unwrap();
        assert_eq!(outcome, WriteOutcome::GuardGone);
        let outcome = writer.write_value(&case.value("other"), None, b"two", Some(&guard)).await.unwrap();
        assert_eq!(outcome, WriteOutcome::GuardGone);
    }
    assert_eq!(read(&a, &path).await, Some(Value::new(*b"one", expected.unwrap())));
    assert_eq!(read(&a, &case.value("other")).await, None);
}

/// A guard with the same name that was created later is another guard.
pub async fn later_guard_is_another(case: &Case<'_>) {
    let (a, path, lock) = (case.connect().await, case.value("value"), case.path("lock"));
    let (node, first) = guard(case, &a, &lock).await;
    a.delete(&lock, &Target::Node(node), None).await.unwrap();
    let (node, second) = guard(case, &a, &lock).await;
    let outcome = a.write_value(&path, None, b"one", Some(&first)).await.unwrap();
    assert_eq!(outcome, WriteOutcome::GuardGone);
    let outcome = a.write_value(&path, None, b"one", Some(&second)).await.unwrap();
    assert!(matches!(outcome, WriteOutcome::Written(_)), "{outcome:?}");
    a.delete(&lock, &Target::Node(node), None).await.unwrap();
}

/// A guard that is to be deleted is deleted by a successful write, and by no other.
pub async fn guard_is_deleted_with_a_successful_write(case: &Case<'_>) {
    let (a, b, path, lock) =
        (case.connect().await, case.connect().await, case.value("value"), case.path("lock"));
    let mut expected = None;
    for n in 0..3_u8 {
        let ((node, guard), behind) =
            (guard(case, &a, &lock).await, case.create(&b, &lock, Label::Lock).await.node);
        let guard = guard.and_delete(node.clone());
        let wrong = a.write_value(&path, Some(Version::new(7, 7)), b"x", Some(&guard)).await.unwrap();
        assert!(matches!(wrong, WriteOutcome::Conflict(_)), "{wrong:?}");
        let Existence::Watching(watch) = b.exists_with_watch(&lock, &node).await.unwrap() else {
            panic!("a write that conflicts has deleted the guard");
        };
        let outcome = a.write_value(&path, expected, &[n], Some(&guard)).await.unwrap();
        let WriteOutcome::Written(version) = outcome else { panic!("{outcome:?}") };
        timeout(LONG, watch).await.expect("the waiter behind is woken");
        let queue = b.children(&lock, None).await.unwrap();
        assert_eq!((queue.find(&node.id), queue.position(&behind.id)), (None, Some(0)));
        let again = a.write_value(&path, Some(version), b"x", Some(&guard)).await.unwrap();
        assert_eq!(again, WriteOutcome::GuardGone);
        assert_eq!(a.delete(&lock, &Target::Node(node), None).await.unwrap(), Deletion::AlreadyDeleted);
        b.delete(&lock, &Target::Node(behind), None).await.unwrap();
        assert_eq!(read(&b, &path).await, Some(Value::new([n], version)));
        expected = Some(version);
    }
}

/// The deletion of such a guard is not reported as one by another client.
pub async fn deleted_guard_is_not_reported(case: &Case<'_>) {
    let (a, path, lock) = (case.connect().await, case.value("value"), case.path("lock"));
    let stays = case.create(&a, &case.path("other"), Label::Lock).await;
    let created = case.create(&a, &lock, Label::Lock).await;
    let node = created.node.clone();
    let guard = GuardNode::new(lock.clone(), node.name.clone(), node.fencing_token.unwrap());
    let guard = guard.and_delete(node);
    let outcome = a.write_value(&path, None, b"one", Some(&guard)).await.unwrap();
    assert!(matches!(outcome, WriteOutcome::Written(_)), "{outcome:?}");
    // Long enough for the heartbeats that look for nodes.
    sleep(case.store.session_timeout()).await;
    assert!(!created.deletion.is_deleted() && !stays.deletion.is_deleted());
    // The name, if it is used again, is that of another node, whose deletion is reported.
    let next = case.create(&a, &lock, Label::Lock).await;
    case.store.remove(&lock, next.node.name.as_str()).await;
    let mut deletion = next.deletion.clone();
    timeout(LONG, deletion.deleted()).await.expect("the deletion of the next node is reported");
    a.delete(&lock, &Target::Node(next.node), None).await.unwrap();
    a.delete(&case.path("other"), &Target::Node(stays.node), None).await.unwrap();
}

/// A member is not overwritten: the value is beside it, or the error is `InvalidArgument`.
pub async fn member_is_not_overwritten(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.value("w7"));
    let old = written(&b, &path, None, b"old").await;
    case.store.remove(case.root(), "w7").await;
    let Joined::Joined(member) = a.join(&path, b"payload", false).await.unwrap() else {
        panic!("not joined");
    };
    let mut is_beside = false;
    for writer in [&a, &b] {
        match writer.write_value(&path, None, b"x", None).await {
            Ok(WriteOutcome::Written(_)) => is_beside = true,
            Ok(WriteOutcome::Conflict(Some(_))) if is_beside => {}
            Ok(other) => panic!("{other:?}"),
            Err(refused) => {
                let kind = (refused.kind(), refused.is_ambiguous());
                assert_eq!(kind, (ErrorKind::InvalidArgument, false), "{refused}");
            }
        }
        // A version that is no more is a conflict everywhere.
        let late = writer.write_value(&path, Some(old), b"x", None).await;
        assert!(!matches!(late, Ok(WriteOutcome::Written(_))), "{late:?}");
    }
    let taken = b.join(&path, b"", false).await.unwrap();
    assert!(matches!(taken, Joined::Taken(Some(session)) if session == member.session), "{taken:?}");
    a.leave(&path).await.unwrap();
    if !is_beside {
        written(&b, &path, None, b"new").await;
    }
}

/// Missing parents are created.
pub async fn missing_parents_are_created(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.value("deep").join("down/below").unwrap());
    let version = written(&a, &path, None, b"one").await;
    assert_eq!(read(&a, &path).await, Some(Value::new(*b"one", version)));
    // Everything below the value's first segment is removed with it.
    let parent = path.parent().unwrap();
    a.close().await.unwrap();
    case.until("the receipts are gone", async || case.store.names(&path).await.is_empty()).await;
    case.store.remove(&parent, "below").await;
    if case.store.names(&case.value("deep")).await.contains(&"down".to_owned()) {
        case.store.remove(&case.value("deep"), "down").await;
    }
}

/// Another session can write the value after the session that wrote it has ended.
pub async fn outlives_its_session(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.value("value"));
    let one = written(&a, &path, None, b"one").await;
    case.store.expire(&a).await;
    assert_eq!(read(&b, &path).await, Some(Value::new(*b"one", one)));
    let two = written(&b, &path, Some(one), b"two").await;
    case.connected(&a, 2).await;
    written(&a, &path, Some(two), b"three").await;
}

/// A write that was dropped does not take effect after a later operation on the path.
pub async fn dropped_write_is_void_after_a_later_operation(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.value("value"));
    let mut expected = written(&a, &path, None, b"").await;
    for polls in 1..200_u32 {
        let data = polls.to_be_bytes();
        let is_done = {
            let mut write = pin!(a.write_value(&path, Some(expected), &data, None));
            let mut is_done = false;
            for _ in 0..polls {
                is_done = write.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
                if is_done {
                    break;
                }
                yield_now().await;
            }
            is_done
        };
        let now = read(&a, &path).await.unwrap();
        sleep(MOMENT / 20).await;
        assert_eq!(read(&a, &path).await, Some(now.clone()), "after {polls} polls");
        expected = now.version;
        if is_done {
            return;
        }
    }
}

/// Cases that need [`Store::links`](crate::Store::links).
pub mod links {
    use super::*;

    /// A lost response does not change the result.
    pub async fn lost_answer_does_not_change_the_result(case: &Case<'_>) {
        let (a, b, path, lock) =
            (case.connect().await, case.connect().await, case.value("value"), case.path("lock"));
        let (node, guard) = guard(case, &b, &lock).await;
        let mut expected = None;
        // Each mute takes the answer to a heartbeat with it. So many in a row would end the session.
        let timeout = case.store.session_timeout();
        let is_well = async || b.session_events().current().slack().is_some_and(|left| left > timeout / 2);
        for n in 0..4_u8 {
            case.until("a heartbeat is answered", is_well).await;
            case.links().mute(&b).await;
            let heal = async {
                let takes_effect = async || read(&a, &path).await.is_some_and(|value| value.data == [n]);
                case.until("the write takes effect", takes_effect).await;
                case.links().heal(&b).await;
            };
            let data = [n];
            let write = b.write_value(&path, expected, &data, Some(&guard));
            let (outcome, ()) = tokio::join!(write, heal);
            let now = read(&a, &path).await.unwrap();
            assert_eq!(outcome.unwrap(), WriteOutcome::Written(now.version), "write {n}");
            expected = Some(now.version);
        }
        // Nor if the write deletes the guard: an attempt that finds it gone was not the first.
        case.until("a heartbeat is answered", is_well).await;
        case.links().mute(&b).await;
        let guard = guard.and_delete(node.clone());
        let heal = async {
            let takes_effect = async || read(&a, &path).await.is_some_and(|value| value.data == b"last");
            case.until("the write takes effect", takes_effect).await;
            case.links().heal(&b).await;
        };
        let (outcome, ()) = tokio::join!(b.write_value(&path, expected, b"last", Some(&guard)), heal);
        let now = read(&a, &path).await.unwrap();
        assert_eq!(outcome.unwrap(), WriteOutcome::Written(now.version));
        let deletion = b.delete(&lock, &Target::Node(node), None).await.unwrap();
        assert_eq!(deletion, Deletion::AlreadyDeleted);
        // A conflict stays one.
        case.links().mute(&b).await;
        let heal = async {
            sleep(MOMENT).await;
            case.links().heal(&b).await;
        };
        let (outcome, ()) = tokio::join!(write(&b, &path, None, b"x"), heal);
        assert_eq!(outcome, WriteOutcome::Conflict(read(&a, &path).await));
    }

    /// A write whose response is lost is not reported as a conflict after the value was deleted.
    pub async fn deleted_value_is_not_a_conflict_after_a_lost_answer(case: &Case<'_>) {
        let (a, b, path) = (case.connect().await, case.connect().await, case.value("value"));
        let first = written(&a, &path, None, b"first").await;
        // On ZooKeeper, the receipt exists from now on, so that one request writes the value.
        let second = written(&b, &path, Some(first), b"second").await;
        case.links().mute(&b).await;
        let end = async {
            let takes_effect = async || read(&a, &path).await.is_some_and(|value| value.data == b"third");
            case.until("the write takes effect", takes_effect).await;
            case.store.remove(&path.parent().unwrap(), "value").await;
            case.links().heal(&b).await;
        };
        let write = b.write_value(&path, Some(second), b"third", None);
        let (outcome, ()) = tokio::join!(biased; write, end);
        match outcome {
            Ok(WriteOutcome::Written(_)) => {}
            // The receipt was deleted together with the value.
            Err(error) if error.is_ambiguous() => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(read(&a, &path).await, None);
    }

    /// A write that may have created the value in an earlier session does not create it again: its outcome is unknown.
    pub async fn value_is_not_created_again_in_the_next_session(case: &Case<'_>) {
        let (a, b, path) = (case.connect().await, case.connect().await, case.value("value"));
        let delete = async || case.store.remove(&path.parent().unwrap(), "value").await;
        // The parents exist from now on, so that one request creates the value.
        written(&a, &path, None, b"first").await;
        delete().await;
        case.links().mute(&b).await;
        let end = async {
            case.until("the write takes effect", async || read(&a, &path).await.is_some()).await;
            delete().await;
            case.store.expire(&b).await;
            case.links().heal(&b).await;
        };
        let write = b.write_value(&path, None, b"once", None);
        // On a store in memory, the response is lost only if the write is polled again before the link is healed.
        let (outcome, ()) = tokio::join!(biased; write, end);
        assert!(outcome.as_ref().is_err_and(Error::is_ambiguous), "{outcome:?}");
        assert_eq!(read(&a, &path).await, None);
        // Nor is the next write mistaken for it.
        case.connected(&b, 2).await;
        written(&b, &path, None, b"next").await;
    }

    /// A write that was dropped does not take effect after a later operation on the path.
    pub async fn dropped_write_over_a_frozen_link_is_void(case: &Case<'_>) {
        let (a, b, path) = (case.connect().await, case.connect().await, case.value("value"));
        let mut expected = written(&a, &path, None, b"").await;
        for mute in [false, true] {
            if mute {
                case.links().mute(&a).await;
            } else {
                case.links().freeze(&a).await;
            }
            let write = a.write_value(&path, Some(expected), b"dropped", None);
            assert!(timeout(MOMENT, write).await.is_err(), "answered over a link that is mute: {mute}");
            let heal = async {
                sleep(MOMENT).await;
                case.links().heal(&a).await;
            };
            let (now, ()) = tokio::join!(read(&a, &path), heal);
            sleep(MOMENT).await;
            assert_eq!(read(&b, &path).await, now, "mute: {mute}");
            expected = now.unwrap().version;
            expected = written(&a, &path, Some(expected), b"next").await;
        }
    }
}
